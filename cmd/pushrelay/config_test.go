package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"pushrelay/cmd/pushrelay/internal/app"
	"pushrelay/cmd/pushrelay/internal/setup"
)

func TestEveryCommandHasAnExample(t *testing.T) {
	parser, err := kong.New(new(cli))
	if err != nil {
		t.Fatal(err)
	}
	for _, leaf := range parser.Model.Leaves(true) {
		path := strings.Fields(leaf.Path())
		t.Run(strings.Join(path, " "), func(t *testing.T) {
			var all string // its own help, or that of the commands above it
			for n := range path {
				code, out, errOut := inProcess(t, append(path[:n+1:n+1], "--help")...)
				if code != app.ExitOK || errOut != "" {
					t.Errorf("code %d, %s", code, errOut)
				}
				if _, examples, ok := strings.Cut(out, "Examples:"); ok {
					all += examples
				}
			}
			if !strings.Contains(all, "pushrelay "+strings.Join(path, " ")) {
				t.Errorf("no example in:\n%s", all)
			}
		})
	}
}

func TestHelpWithoutACommand(t *testing.T) {
	for _, args := range [][]string{nil, {"--help"}, {"-h"}} {
		if code, out, errOut := inProcess(t, args...); code != app.ExitOK || !strings.Contains(out, "Exit codes:") || errOut != "" {
			t.Errorf("%v: code %d, %q, %s", args, code, out, errOut)
		}
	}
}

func config(t *testing.T, values map[string]any) string {
	t.Helper()
	raw, err := json.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "serve.json")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func projectionFile(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if _, err := setup.Make(dir); err != nil {
		t.Fatal(err)
	}
	return setup.ProjectionFile(dir)
}

// TestServeSettings sets each setting in each of the three places and reads it back from --check-config.
func TestServeSettings(t *testing.T) {
	projection := projectionFile(t)
	token := func(name string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte("secret-of-this-test"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	values := map[string][3]string{ // in the file, in the environment, as a flag
		"listen": {"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"}, "lease": {"10s", "20s", "30s"},
		"payload-window": {"1s", "2s", "3s"}, "max-deadline": {"1h0m0s", "2h0m0s", "3h0m0s"},
		"result-retention": {"1h0m0s", "2h0m0s", "3h0m0s"}, "jobs-per-site": {"10", "20", "30"},
		"bytes-per-site": {"10MiB", "20MiB", "30MiB"}, "unsealed": {"1", "2", "3"}, "budget": {"10MiB", "20MiB", "30MiB"},
		"max-sessions": {"10", "20", "30"}, "max-handshakes": {"100", "200", "300"}, "max-per-address": {"10", "20", "30"},
		"accept-per-second": {"10", "20", "30"}, "drain-window": {"1s", "2s", "3s"}, "drain-limit": {"10s", "20s", "30s"},
		"admin-listen": {"127.0.0.1:4", "127.0.0.1:5", "127.0.0.1:6"}, "public-url": {"http://a", "http://b", "http://c"},
		"origin": {"http://a", "http://b", "http://c"}, "trusted-proxy": {"10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16"},
		"hold-claim": {"1s", "2s", "0s"}, "hold-fetch": {"1s", "2s", "0s"}, "hold-pending": {"1s", "2s", "0s"},
		"admin-host": {"a", "b", "c"}, "store": {"memory", "disk", "memory"},
		"data":             {"/nonexistent/a", "/nonexistent/b", "/nonexistent/c"},
		"verification-url": {"http://a", "http://b", "http://c"}, "grant-url": {"http://a", "http://b", "http://c"},
		"control-plane-key": {strings.Repeat("A", 43), strings.Repeat("E", 43), strings.Repeat("I", 43)},
		"grant-timeout":     {"100ms", "200ms", "300ms"}, "grant-token-file": {token("a"), token("b"), token("c")},
		"debug": {"false", "true", "false"}, "debug-token-file": {"/1", token("a-token-for-the-page"), "/3"},
	}
	file := map[string]any{"projection": projection, "admin-remote": true}
	for name, v := range values {
		file[name] = v[0]
	}
	check := func(t *testing.T, place int, args ...string) {
		t.Helper()
		code, out, errOut := inProcess(t, append([]string{"serve", "--check-config", "--config", config(t, file)}, args...)...)
		if code != app.ExitOK {
			t.Fatalf("code %d: %s", code, errOut)
		}
		var got map[string]any
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatal(err)
		}
		for name, v := range values {
			if text := strings.Trim(strings.Trim(jsonText(t, got[name]), "[]"), `"`); text != v[place] {
				t.Errorf("%s is %s, want %s", name, text, v[place])
			}
		}
		if len(got) != len(values)+2 {
			t.Errorf("%d settings are shown, %d are tested", len(got), len(values)+2)
		}
	}
	check(t, 0)
	var flags []string
	for name, v := range values {
		t.Setenv("PUSHRELAY_"+strings.ToUpper(strings.ReplaceAll(name, "-", "_")), v[1])
		flags = append(flags, "--"+name+"="+v[2])
	}
	check(t, 1)
	check(t, 2, flags...)
}

func jsonText(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestServeRefusesSettings(t *testing.T) {
	projection := projectionFile(t)
	broken := filepath.Join(t.TempDir(), "broken.json")
	if err := os.WriteFile(broken, []byte(`{"sites":`), 0o600); err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		name, arg string
		want      []string
	}{
		{"short lease", "--lease=10ms", []string{"--lease", "1s to 1h"}},
		{"long lease", "--lease=48h", []string{"--lease", "1s to 1h"}},
		{"no lease", "--lease=0s", []string{"--lease"}},
		{"negative window", "--payload-window=-1s", []string{"--payload-window"}},
		{"small budget", "--budget=1MiB", []string{"--budget", "8MiB"}},
		{"small quota", "--bytes-per-site=1KiB", []string{"--bytes-per-site"}},
		{"no jobs", "--jobs-per-site=0", []string{"--jobs-per-site"}},
		{"no unsealed", "--unsealed=0", []string{"--unsealed"}},
		{"limit under window", "--drain-limit=5s", []string{"--drain-limit", "--drain-window"}},
		{"endless deadline", "--max-deadline=1000000h", []string{"--max-deadline"}},
		{"short retention", "--result-retention=1s", []string{"--result-retention"}},
		{"more an address than all", "--max-per-address=5000", []string{"--max-per-address", "--max-handshakes"}},
		{"no rate", "--accept-per-second=0", []string{"--accept-per-second"}},
		{"no port", "--listen=localhost", []string{"--listen", "HOST:PORT"}},
		{"open admin", "--admin-listen=0.0.0.0:9090", []string{"--admin-remote"}},
		{"open admin by a name", "--admin-listen=:9090", []string{"--admin-remote"}},
		{"public URL", "--public-url=relay.example.org", []string{"--public-url", "https://"}},
		{"public URL with a login", "--public-url=https://u:p@relay.example.org", []string{"--public-url"}},
		{"origin", "--origin=*", []string{"--origin", "https://"}},
		{"proxy", "--trusted-proxy=10.0.0.1", []string{"--trusted-proxy", "/8"}},
		{"store", "--store=tape", []string{"--store", "disk", "memory"}},
		{"data that is a file", "--data=" + projection, []string{"--data", "isn't a folder"}},
		{"no data", "--data=", []string{"--data"}},
		{"no projection there", "--projection=/nonexistent/p.json", []string{"can't be read"}},
		{"broken projection", "--projection=" + broken, []string{"projection"}},
		{"log level", "--log-level=loud", []string{"--log-level"}},
		{"grants without a key", "--grant-url=https://control.example.org", []string{"--control-plane-key"}},
		{"debug page without a token", "--debug", []string{"--debug-token-file", "PUSHRELAY_DEBUG_TOKEN"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			code, out, errOut := inProcess(t, "serve", "--projection="+projection, "--check-config", c.arg)
			if code != app.ExitUsage || out != "" {
				t.Errorf("code %d, %q", code, out)
			}
			for _, want := range c.want {
				if !strings.Contains(errOut, want) {
					t.Errorf("%q doesn't say %q", errOut, want)
				}
			}
		})
	}
}

func TestServeNeedsAProjection(t *testing.T) {
	if code, _, errOut := inProcess(t, "serve"); code != app.ExitUsage || !strings.Contains(errOut, "--projection") {
		t.Errorf("code %d, %s", code, errOut)
	}
}

func TestClientsRefuseSettings(t *testing.T) {
	dir := t.TempDir()
	if _, err := setup.Make(dir); err != nil {
		t.Fatal(err)
	}
	daemon := []string{"daemon", "--relay=http://x", "--key=" + setup.KeyFile(dir, "runner-a1"), "--runner=r", "--state=" + dir}
	site := []string{"site", "submit", "--relay=http://x", "--key=" + setup.KeyFile(dir, "site-one"), "--site=s", "--owner=o"}
	cases := []struct {
		name string
		args []string
		want string
	}{
		{"daemon without work", daemon, "--exec"},
		{"daemon with two backends", append(daemon, "--exec=cat", "--openai=http://x", "--model=m"), "exec"},
		{"daemon without a model", append(daemon, "--openai=http://x"), "--model"},
		{"daemon with a backend that is no URL", append(daemon, "--openai=nowhere", "--model=m"), "--openai \"nowhere\""},
		{"daemon with a service in dialect 0", append(daemon, "--exec=cat", "--dialect=0", "--service=s"), "--service"},
		{"daemon without an id", append(daemon, "--exec=cat", "--runner="), "--runner"},
		{"daemon without its certificates", append(daemon, "--exec=cat", "--check-config", "--ca="+dir+"/none"), "--ca"},
		{"daemon with no certificates", append(daemon, "--exec=cat", "--check-config", "--ca="+setup.ProjectionFile(dir)), "no certificate"},
		{"site without an id", append(site, "--site="), "--site"},
		{"site without an owner", append(site, "--owner="), "--owner"},
		{"site with no certificates", append(site, "--check-config", "--ca="+setup.ProjectionFile(dir)), "no certificate"},
		{"daemon with too many slots", append(daemon, "--exec=cat", "--slots=65"), "1 to 64"},
		{"daemon with a bad URL", append(daemon, "--exec=cat", "--relay=nowhere"), "--relay"},
		{"daemon without a key", append(daemon, "--exec=cat", "--key="+dir+"/none"), "keygen"},
		{"daemon of an unknown dialect", append(daemon, "--exec=cat", "--dialect=1"), "--dialect"},
		{"daemon of no scope", append(daemon, "--exec=cat", "--offer-scope=all"), "--offer-scope"},
		{"daemon with a key of nobody's", append(daemon, "--exec=cat", "--control-plane-key="+strings.Repeat("A", 43)), "--owner"},
		{"daemon with a key in dialect 0", append(daemon, "--exec=cat", "--owner=o", "--dialect=0", "--control-plane-key="+strings.Repeat("A", 43)), "--dialect"},
		{"site with a passed deadline", append(site, "--deadline=2001-01-01T00:00:00Z"), "has passed"},
		{"site with a far deadline", append(site, "--deadline=1000h"), "--deadline"},
		{"site with no deadline", append(site, "--deadline=soon"), "deadline"},
		{"site with a long prefix", append(site, "--id-prefix="+strings.Repeat("x", 300)), "--id-prefix"},
		{"site with another kind", append(site, "--kind=other"), "--kind"},
		{"site without its file", append(site, dir+"/none"), "can't be read"},
		{"nothing", []string{"site", "submit"}, "--relay"},
		{"unknown command", []string{"sreve"}, "serve"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			code, _, errOut := inProcess(t, c.args...)
			if code != app.ExitUsage || !strings.Contains(errOut, c.want) {
				t.Errorf("code %d, %q doesn't say %q", code, errOut, c.want)
			}
		})
	}
}

// TestCheckedConfigurationIsOne gives what --check-config prints to --config.
func TestCheckedConfigurationIsOne(t *testing.T) {
	dir := t.TempDir()
	if _, err := setup.Make(dir); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"serve", "--projection=" + setup.ProjectionFile(dir)},
		{"daemon", "--relay=http://x", "--key=" + setup.KeyFile(dir, "runner-a1"), "--runner=r", "--state=" + dir, "--exec=cat"},
		{"site", "submit", "--relay=http://x", "--key=" + setup.KeyFile(dir, "site-one"), "--site=s", "--owner=o"},
	} {
		code, first, errOut := inProcess(t, append(args, "--check-config")...)
		if code != app.ExitOK {
			t.Fatalf("%s: code %d, %s", args[0], code, errOut)
		}
		path := filepath.Join(t.TempDir(), "checked.json")
		if err := os.WriteFile(path, []byte(first), 0o600); err != nil {
			t.Fatal(err)
		}
		var command []string
		for _, a := range args {
			if !strings.HasPrefix(a, "--") {
				command = append(command, a)
			}
		}
		code, second, errOut := inProcess(t, append(command, "--check-config", "--config="+path)...)
		if code != app.ExitOK || first != second {
			t.Errorf("%s: code %d, %s\n%s\n%s", args[0], code, errOut, first, second)
		}
	}
}
