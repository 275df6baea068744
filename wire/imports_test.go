package wire_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "pushrelay"

// allowed lists what a folder's code may import of this module (design, section 9). A folder that isn't listed takes
// the rule of the nearest one above it; what a folder imports of its own subtree is listed like the rest.
func allowed() map[string][]string {
	return map[string][]string{
		"cmd":                  {"*"},
		"web":                  {"hub", "wire"},
		"hub":                  {"store", "session", "wire", "hub/projection", "hub/grants"},
		"hub/projection":       {"wire"},
		"hub/grants":           {"wire"},
		"session":              {"wire"},
		"session/daemon":       {"session", "session/internal/ask", "wire", "wire/seal"},
		"session/site":         {"session", "session/internal/ask", "wire", "wire/seal"},
		"session/internal/ask": {"wire"},
		// What tests share: of servers, and of both client ends.
		"session/internal/pipe": {},
		"session/internal/fake": {"session", "wire"},
		"session/poll":          {"session", "wire"},
		"store":                 {"wire"},
		"store/memory":          {"store", "wire"},
		"store/disk":            {"store", "store/memory", "wire"},
		"store/valkey":          {"store", "wire"},
		// The suite may use any store's parts that the contract declares, and tests use the suite.
		"store/storetest": {"store", "wire"},
		"wire":            {},
		"wire/seal":       {"wire"},
	}
}

// sealers lists who may hold private keys: the client ends and the programs.
func sealers() []string { return []string{"cmd", "session/daemon", "session/site", "wire/seal"} }

func under(dir, top string) bool { return dir == top || strings.HasPrefix(dir, top+"/") }

// rule finds the most specific entry for dir.
func rule(dir string) ([]string, bool) {
	rules := allowed()
	for ; dir != "."; dir = filepath.ToSlash(filepath.Dir(dir)) {
		if r, ok := rules[dir]; ok {
			return r, true
		}
	}
	return nil, false
}

// projectImports walks the module and calls f for each import of a package of the module.
func projectImports(t *testing.T, f func(file, dir, imported string, test bool)) int {
	t.Helper()
	files := 0
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name := entry.Name(); name == "testdata" || name == "vendor" || path != ".." && strings.HasPrefix(name, ".") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		files++
		source, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		file, err := filepath.Rel("..", path)
		if err != nil {
			return err
		}
		file = filepath.ToSlash(file)
		for _, spec := range source.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if local, ok := strings.CutPrefix(imported, module+"/"); ok {
				f(file, filepath.ToSlash(filepath.Dir(file)), local, strings.HasSuffix(file, "_test.go"))
			}
		}
		return nil
	})
	require.NoError(t, err)
	return files
}

// Imports flow one way. Test files may import more (storetest, real parties), but never past the next test.
func TestImportsFlowOneWay(t *testing.T) {
	files := projectImports(t, func(file, dir, imported string, test bool) {
		if test {
			return
		}
		may, ok := rule(dir)
		if !ok {
			t.Errorf("%s: folder %s has no import rule", file, dir)
			return
		}
		if !slices.Contains(may, imported) && !slices.Contains(may, "*") {
			t.Errorf("%s imports %s; %s may import %v", file, imported, dir, may)
		}
	})
	assert.Greater(t, files, 10, "the walk found no code")
}

// The relay is blind because the code that opens envelopes isn't part of it (rule 1). Test files of server packages may
// play a client against themselves, so only code counts.
func TestServerSideCannotSeal(t *testing.T) {
	projectImports(t, func(file, dir, imported string, test bool) {
		if test || !under(imported, "wire/seal") {
			return
		}
		assert.True(t, slices.ContainsFunc(sealers(), func(top string) bool { return under(dir, top) }),
			"%s imports %s", file, imported)
	})
}

// Nothing but wire/seal may reach for the primitives that open a box, nor for key files' format.
func TestOpeningStaysInSeal(t *testing.T) {
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		source, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range source.Imports {
			if strings.HasPrefix(spec.Path.Value, `"golang.org/x/crypto/nacl`) {
				assert.True(t, strings.HasPrefix(filepath.ToSlash(path), "../wire/seal/"), "%s imports %s", path, spec.Path.Value)
			}
		}
		return nil
	})
	require.NoError(t, err)
}

func TestImportRuleLookup(t *testing.T) {
	may, ok := rule("cmd/pushrelay/init")
	assert.True(t, ok)
	assert.Equal(t, []string{"*"}, may)
	_, ok = rule("unheard/of")
	assert.False(t, ok)
}
