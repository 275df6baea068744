package app

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// trial is a command with a setting of each kind.
type trial struct {
	Go trialCommand `cmd:""`
}

type trialCommand struct {
	Config
	Name  string        `default:"built-in"`
	Wait  time.Duration `default:"1s"`
	Size  Bytes         `default:"1MiB"`
	Count int           `default:"1"`
	Loud  bool
	Hosts []string
}

func (c *trialCommand) Run(s Streams) error {
	_, err := fmt.Fprintf(s.Out, "%s %v %v %d %v %v", c.Name, c.Wait, c.Size, c.Count, c.Loud, c.Hosts)
	return err
}

func run(t *testing.T, commands any, args ...string) (code int, out, errOut string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = Main(t.Context(), commands, Streams{In: strings.NewReader(""), Out: &stdout, Err: &stderr}, args)
	return code, stdout.String(), stderr.String()
}

func file(t *testing.T, contents string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(path, []byte(contents), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPrecedence(t *testing.T) {
	all := `{"name":"file","wait":"2s","size":"2MiB","count":2,"loud":true,"hosts":["a","b"]}`
	cases := []struct {
		name, file string
		env        map[string]string
		args       []string
		want       string
	}{
		{"defaults", "", nil, nil, "built-in 1s 1MiB 1 false []"},
		{"file", all, nil, nil, "file 2s 2MiB 2 true [a b]"},
		{
			"environment", "",
			map[string]string{"PUSHRELAY_NAME": "env", "PUSHRELAY_LOUD": "true", "PUSHRELAY_HOSTS": "c,d"},
			nil,
			"env 1s 1MiB 1 true [c d]",
		},
		{
			"environment over file", all,
			map[string]string{"PUSHRELAY_NAME": "env", "PUSHRELAY_SIZE": "3MiB", "PUSHRELAY_HOSTS": "c"},
			nil,
			"env 2s 3MiB 2 true [c]",
		},
		{
			"flags over both", all,
			map[string]string{"PUSHRELAY_NAME": "env", "PUSHRELAY_COUNT": "3"},
			[]string{"--name=flag", "--count", "4", "--hosts=e", "--hosts=f"},
			"flag 2s 2MiB 4 true [e f]",
		},
		{"numbers may be numbers or text", `{"size":3145728,"count":"7"}`, nil, nil, "built-in 1s 3MiB 7 false []"},
		{"large numbers stay whole", `{"size":268435456,"count":1000000}`, nil, nil, "built-in 1s 256MiB 1000000 false []"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			for k, v := range c.env {
				t.Setenv(k, v)
			}
			args := append([]string{"go"}, c.args...)
			if c.file != "" {
				args = append(args, "--config", file(t, c.file))
			}
			code, out, errOut := run(t, new(trial), args...)
			if code != ExitOK || out != c.want {
				t.Errorf("code %d, %q, want %q; %s", code, out, c.want, errOut)
			}
		})
	}
}

func TestConfigFromEnvironment(t *testing.T) {
	t.Setenv("PUSHRELAY_CONFIG", file(t, `{"name":"file"}`))
	if code, out, errOut := run(t, new(trial), "go"); code != ExitOK || !strings.HasPrefix(out, "file ") {
		t.Errorf("code %d, %q; %s", code, out, errOut)
	}
}

func TestRefusals(t *testing.T) {
	cases := []struct {
		name, file string
		args       []string
		want       []string
	}{
		{"unknown key", `{"nam":"x"}`, nil, []string{`unknown setting "nam"`, "did you mean", "name"}},
		{"unknown key among good ones", `{"name":"x","listne":"y"}`, nil, []string{`unknown setting "listne"`, "correct it"}},
		{"the file names a file", `{"config":"x"}`, nil, []string{`unknown setting "config"`}},
		{"not JSON", `name: x`, nil, []string{"not one JSON object"}},
		{"a list", `[]`, nil, []string{"not one JSON object"}},
		{"two objects", `{} {}`, nil, []string{"something follows"}},
		{"null", `{"name":null}`, nil, []string{`"name" must be`}},
		{"nested", `{"name":{}}`, nil, []string{`"name" must be`}},
		{"mixed list", `{"hosts":["a",1]}`, nil, []string{"list of strings"}},
		{"wrong kind", `{"count":"many"}`, nil, []string{"count", "many"}},
		{"unit", "", []string{"--size=3XB"}, []string{"size", "KiB, MiB or GiB"}},
		{"negative", "", []string{"--size=-3"}, []string{"size"}},
		{"overflow", "", []string{"--size=9999999999GiB"}, []string{"size"}},
		{"duration", "", []string{"--wait=soon"}, []string{"wait"}},
		{"unknown flag", "", []string{"--nme=x"}, []string{"unknown flag", "--help"}},
		{"no such file", "", []string{"--config=/nonexistent/x.json"}, []string{"can't be read"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			args := append([]string{"go"}, c.args...)
			if c.file != "" {
				args = append(args, "--config", file(t, c.file))
			}
			code, out, errOut := run(t, new(trial), args...)
			if code != ExitUsage || out != "" {
				t.Fatalf("code %d, output %q, want %d and none", code, out, ExitUsage)
			}
			if strings.Contains(errOut, "--help:") {
				t.Errorf("%q blames a flag that has nothing to do with it", errOut)
			}
			for _, want := range c.want {
				if !strings.Contains(errOut, want) {
					t.Errorf("%q doesn't say %q", errOut, want)
				}
			}
		})
	}
}

func TestBytesText(t *testing.T) {
	for text, want := range map[string]Bytes{"0": 0, "17": 17, "1KiB": KiB, " 2 MiB ": 2 * MiB, "3GiB": 3 * GiB} {
		var got Bytes
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
		var again Bytes
		if err := again.UnmarshalText([]byte(got.String())); err != nil || again != got {
			t.Errorf("%v doesn't survive its text: %v, %v", got, again, err)
		}
	}
}
