package serve

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pushrelay/wire"
)

const debugToken = "a-token-for-the-debug-page"

func TestNoDebugPageUnlessAskedFor(t *testing.T) {
	r, _ := started(t, nil)
	defer r.Close()
	if r.DebugURL() != "" {
		t.Error("there is one")
	}
	for _, path := range []string{"/debug", "/debug/", "/debug/app.js", "/debug/stream", "/debug/session"} {
		for _, base := range []string{r.AdminURL(), r.URL()} {
			if code, _ := status(t, base+path); code != http.StatusNotFound {
				t.Errorf("%s is %d", base+path, code)
			}
		}
	}
}

func TestTheDebugPageIsTheAdminListenersOnly(t *testing.T) {
	r, _ := started(t, func(s *Settings) { s.Debug, s.DebugToken = true, debugToken })
	defer r.Close()
	if r.DebugURL() != r.AdminURL()+"/debug/" {
		t.Errorf("it is at %q", r.DebugURL())
	}
	for path, want := range map[string]int{"/debug/": 200, "/debug/app.js": 200, "/debug/session": 401, "/debug/none": 404, "/debugger": 404} {
		if code, _ := status(t, r.AdminURL()+path); code != want {
			t.Errorf("%s is %d, want %d", path, code, want)
		}
		if code, _ := status(t, r.URL()+path); code != http.StatusNotFound {
			t.Errorf("%s is %d on the public listener", path, code)
		}
	}
	if code, _ := status(t, r.AdminURL()+"/metrics"); code != http.StatusOK {
		t.Errorf("the metrics are %d", code)
	}
	if code, _ := status(t, r.URL()+wire.SitePath); code == http.StatusNotFound {
		t.Error("sessions aren't served")
	}
}

func TestDebugHosts(t *testing.T) {
	set := Settings{AdminHost: []string{"ops.internal"}}
	for host, want := range map[string]bool{
		"localhost": true, "127.0.0.1": true, "127.9.9.9": true, "[::1]": true, "ops.internal": true, "OPS.internal": true,
		"192.0.2.1": false, "evil.example": false, "localhost.evil.example": false, "": false,
	} {
		if set.debugHost(host) != want {
			t.Errorf("%q is %v", host, !want)
		}
	}
	set.AdminRemote = true
	if !set.debugHost("192.0.2.1") || set.debugHost("evil.example") {
		t.Error("by any address, and by no other name")
	}
}

func TestDebugTokens(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := file("good", debugToken+"\r\n")
	cases := []struct {
		name, file, env string
		want            string // of the error; empty: the token
	}{
		{"a file", good, "", ""},
		{"the environment", "", debugToken, ""},
		{"both", good, debugToken, "keep one"},
		{"neither", "", "", "--debug-token-file"},
		{"no file there", filepath.Join(dir, "none"), "", "can't be read"},
		{"an empty file", file("empty", "\n"), "", "one line"},
		{"a long file", file("long", strings.Repeat("x", 4096)), "", "no usable token"},
		{"two lines", file("lines", debugToken+"\n"+debugToken), "", "one line"},
		{"a short one", "", "short", "5 characters"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(debugTokenVariable, c.env)
			token, err := (&Settings{Debug: true, DebugTokenFile: c.file}).debugToken()
			switch {
			case c.want == "" && (err != nil || token != debugToken):
				t.Errorf("%q, %v", token, err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%v doesn't say %q", err, c.want)
			case err != nil && strings.Contains(err.Error(), debugToken):
				t.Error("the error tells the token")
			}
		})
	}
	set := Settings{Debug: true, AdminListen: adminOff}
	if err := set.debugPlace(); err == nil || !strings.Contains(err.Error(), "--admin-listen") {
		t.Errorf("%v", err)
	}
}
