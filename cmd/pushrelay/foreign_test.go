//go:build foreign || interop

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"pushrelay/cmd/pushrelay/internal/setup"
)

const (
	clientDir  = "../../docs/client"
	vectorsDir = "../../docs/vectors"

	// long is the length of a prompt that travels in parts, and whose result does.
	long = 1 << 20
	// longPatience is for npm and for prompts of that length on a busy machine.
	longPatience = 4 * time.Minute
)

// TestForeignClient holds the protocol's document to the code: its example client was written from the document, shares
// nothing with this code, and has to work with this program's relay, daemon and site.
func TestForeignClient(t *testing.T) {
	client := installClient(t)
	vectors, err := filepath.Abs(vectorsDir)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(output(t, "", client.script("vectors.mjs", vectors)))

	r := serveRelay(t)
	t.Run("its daemon", func(t *testing.T) {
		stop := client.daemon(t, r)
		prompts := []string{"plain", `<b> & "quotes" \ é 😀`, filled("", long)}
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		out := output(t, strings.Join(prompts, "\n")+"\n", exec.Command(
			self, "site", "submit", "--relay", r.url, "--key", setup.KeyFile(r.dir, "site-one"),
			"--site", "site-one", "--owner", "owner-a", "--json",
		))
		stop(expectTexts(t, out, prompts)...)
	})
	t.Run("its site", func(t *testing.T) {
		p := r.daemon("runner-a1", "--exec", "LC_ALL=C tr a-z A-Z")
		client.publish(t, r, 3, 0)
		client.publish(t, r, 1, long)
		p.signal(syscall.SIGTERM)
		p.exit()
	})
	t.Run("both", func(t *testing.T) {
		stop := client.daemon(t, r)
		jobs := client.publish(t, r, 5, 0)
		jobs = append(jobs, client.publish(t, r, 2, long)...)
		stop(jobs...)
	})
}

// foreign is an installed copy of the example client.
type foreign struct{ dir, node string }

func installClient(t *testing.T) foreign {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatal("there is no node: install Node 20 or later, or leave out the build tag foreign")
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		t.Fatal("there is no npm: install it, or leave out the build tag foreign")
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(clientDir)); err != nil {
		t.Fatal(err)
	}
	install := exec.Command(npm, "install", "--no-audit", "--no-fund", "--ignore-scripts")
	install.Dir = dir
	output(t, "", install)
	return foreign{dir: dir, node: node}
}

func (f foreign) script(name string, args ...string) *exec.Cmd {
	return exec.Command(f.node, append([]string{filepath.Join(f.dir, name)}, args...)...)
}

// daemon starts the client's daemon. What it answers ends it, once it has reported the jobs, whose results it must have
// forgotten then.
func (f foreign) daemon(t *testing.T, r *relay) (stop func(jobs ...string)) {
	t.Helper()
	state := t.TempDir()
	p := startCommand(t, "", f.script("daemon.mjs",
		"--relay", r.url, "--key", setup.KeyFile(r.dir, "runner-a1"), "--runner", "runner-a1", "--state", state, "--slots", "2"))
	p.await(p.err, `"event":"connected"`)
	return func(jobs ...string) {
		t.Helper()
		for _, job := range jobs {
			p.await(p.err, `"event":"reported"`, job)
		}
		p.signal(syscall.SIGTERM)
		if code := p.exit(); code != 0 {
			t.Errorf("the daemon ended with %d", code)
		}
		kept, err := os.ReadDir(state)
		if err != nil {
			t.Fatal(err)
		}
		if len(kept) > 0 {
			t.Errorf("the daemon keeps %d results that were answered", len(kept))
		}
	}
}

// publish runs the client's site with that many jobs of that many bytes each, checks the results and answers
// the ids.
func (f foreign) publish(t *testing.T, r *relay, jobs, size int) (ids []string) {
	t.Helper()
	var prompts []string
	for n := range jobs {
		// As site.mjs makes them.
		prompts = append(prompts, filled(fmt.Sprintf("job %d: <b> & \"quotes\" \\ \u2028 😀 ", n+1), size))
	}
	return expectTexts(t, output(t, "", f.script("site.mjs",
		"--relay", r.url, "--key", setup.KeyFile(r.dir, "site-one"), "--site", "site-one", "--owner", "owner-a",
		"--jobs", fmt.Sprint(jobs), "--bytes", fmt.Sprint(size),
	)), prompts)
}

// filled lengthens text to size bytes. A text may have a million UTF-16 units, so that a mebibyte must not be ASCII only.
func filled(text string, size int) string {
	missing := max(0, size-len(text))
	return text + strings.Repeat("x", missing%3) + strings.Repeat("aé", missing/3)
}

// expectTexts checks lines of JSON, of which each job must have one with its prompt in upper case, and
// answers the ids.
func expectTexts(t *testing.T, out string, prompts []string) (ids []string) {
	t.Helper()
	type result struct {
		ID        string
		Job, Line int // of site.mjs, of site submit; both count from 1
		OK        bool
		Text      string
	}
	var results []result
	for line := range strings.Lines(out) {
		var res result
		if err := json.Unmarshal([]byte(line), &res); err != nil {
			t.Fatalf("%v in the line %.200q", err, line)
		}
		results = append(results, res)
	}
	if len(results) != len(prompts) {
		t.Fatalf("%d results for %d jobs", len(results), len(prompts))
	}
	slices.SortFunc(results, func(a, b result) int { return cmp.Compare(a.Job+a.Line, b.Job+b.Line) })
	for i, res := range results {
		if want := asciiUpper(prompts[i]); !res.OK || res.Text != want || res.Job+res.Line != i+1 {
			t.Errorf("result %+.300v (%d bytes), want %.80q (%d bytes)", res, len(res.Text), want, len(want))
		}
		ids = append(ids, res.ID)
	}
	return ids
}

func asciiUpper(s string) string {
	return strings.Map(func(c rune) rune {
		if 'a' <= c && c <= 'z' {
			return c - 'a' + 'A'
		}
		return c
	}, s)
}

// output runs a command to its end, which must be a good one, and answers what it printed.
func output(t *testing.T, stdin string, cmd *exec.Cmd) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), longPatience)
	defer cancel()
	bounded := exec.CommandContext(ctx, cmd.Path, cmd.Args[1:]...)
	bounded.Dir, bounded.Env = cmd.Dir, append(os.Environ(), asProgram+"=1")
	bounded.Stdin = strings.NewReader(stdin)
	bounded.WaitDelay = patience
	var stdout, stderr bytes.Buffer
	bounded.Stdout, bounded.Stderr = &stdout, &stderr
	if err := bounded.Run(); err != nil {
		t.Fatalf("%v: %v\nstdout: %.2000s\nstderr: %.4000s", cmd.Args, cmp.Or(ctx.Err(), err), &stdout, &stderr)
	}
	return stdout.String()
}
