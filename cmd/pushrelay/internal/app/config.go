package app

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// maxConfigBytes bounds a configuration file; a larger one is surely another file.
const maxConfigBytes = 1 << 20

// Config is embedded by commands that read a configuration file.
type Config struct {
	Config      string `help:"JSON file with settings; its keys are the names of the flags." type:"path" placeholder:"FILE"`
	CheckConfig bool   `help:"Check all settings and the files they name, print them and stop." env:"-"`
}

// notInFile are flags that make no sense within the file itself.
func notInFile() []string { return []string{"help", "config", "check-config"} }

// fileResolver answers settings from the file that --config or PUSHRELAY_CONFIG names. A setting that the environment
// has is left alone: kong reads it before, and flags win by themselves.
type fileResolver struct {
	values map[string]any
	read   bool
}

// Validate has nothing to say before the command is known.
func (f *fileResolver) Validate(*kong.Application) error { return nil }

// Resolve answers a flag's value from the file, or nil.
func (f *fileResolver) Resolve(kctx *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	if !f.read {
		f.read = true
		if err := f.load(kctx); err != nil {
			return nil, err
		}
	}
	value, ok := f.values[flag.Name]
	if !ok || slices.Contains(notInFile(), flag.Name) {
		return nil, nil
	}
	for _, env := range flag.Envs {
		if _, set := os.LookupEnv(env); set {
			return nil, nil
		}
	}
	return value, nil
}

func (f *fileResolver) load(kctx *kong.Context) error {
	path := ""
	var known []string
	for _, flag := range kctx.Flags() {
		if flag.Name == "config" {
			path, _ = kctx.FlagValue(flag).(string)
		}
		if !slices.Contains(notInFile(), flag.Name) {
			known = append(known, flag.Name)
		}
	}
	if path == "" {
		return nil
	}
	values, err := readConfig(path)
	if err != nil {
		return Usagef("%s: %w", path, err)
	}
	for key := range values {
		if !slices.Contains(known, key) {
			return Usagef("%s: unknown setting %q%s; remove it, or correct it to one of: %s", path, key, closest(key, known),
				strings.Join(known, ", "))
		}
	}
	f.values = values
	return nil
}

func readConfig(path string) (map[string]any, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("the configuration can't be read: %w", err)
	}
	defer file.Close()
	raw, err := io.ReadAll(io.LimitReader(file, maxConfigBytes+1))
	switch {
	case err != nil:
		return nil, err
	case len(raw) > maxConfigBytes:
		return nil, fmt.Errorf("over %d bytes is no configuration", maxConfigBytes)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	values := map[string]any{}
	if err := dec.Decode(&values); err != nil {
		return nil, fmt.Errorf("not one JSON object: %w", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, fmt.Errorf("not one JSON object: something follows it")
	}
	return values, plain(values)
}

// plain turns numbers into their text, which is what flags are parsed from, and refuses what no flag can hold.
func plain(values map[string]any) error {
	for key, value := range values {
		switch v := value.(type) {
		case json.Number:
			values[key] = v.String()
		case string, bool:
		case []any:
			for _, item := range v {
				if _, ok := item.(string); !ok {
					return fmt.Errorf("%q must be a list of strings", key)
				}
			}
		default:
			return fmt.Errorf("%q must be a string, a number, true, false or a list of strings", key)
		}
	}
	return nil
}

// closest suggests a known name that shares most of its letters with a mistyped one.
func closest(key string, known []string) string {
	normal := func(s string) string {
		return strings.ToLower(strings.NewReplacer("-", "", "_", "", ".", "").Replace(s))
	}
	for _, name := range known {
		if a, b := normal(key), normal(name); a == b || strings.HasPrefix(a, b) || strings.HasPrefix(b, a) {
			return fmt.Sprintf(" (did you mean %q?)", name)
		}
	}
	return ""
}
