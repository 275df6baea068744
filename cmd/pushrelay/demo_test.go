package main

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"pushrelay/cmd/pushrelay/internal/app"
)

// leftovers are what a demonstration may not leave behind.
func leftovers(t *testing.T, temp string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(temp, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// startDemo starts a demonstration that makes its folders in temp.
func startDemo(t *testing.T, temp string, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, append([]string{"demo"}, args...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+temp)
	return startCommand(t, "", cmd)
}

func TestDemo(t *testing.T) {
	t.Parallel()
	temp := t.TempDir()
	p := startDemo(t, temp)
	if code := p.exit(); code != app.ExitOK {
		t.Fatalf("code %d", code)
	}
	out := p.out.String()
	for _, want := range []string{
		"text-8", "15 words", "cancel asked", "stopped", "kill -9", "site away", "site back", "Summary",
		"/debug/ with the token ", "a cancel reaches a running daemon", "a daemon dies, another one finishes", "results wait for a site that was away",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("it doesn't show %q", want)
		}
	}
	if strings.Contains(out, "MISSING") || strings.Count(out, " ok") < 4 {
		t.Error("something is missing")
	}
	if left := leftovers(t, temp); len(left) > 0 {
		t.Errorf("it left %v", left)
	}
}

func TestDemoWithACommandAndAFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(file, []byte("one line\n\nand another\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, "", "demo", "--file", file, "--exec", "tr a-z A-Z")
	if code := p.exit(); code != app.ExitOK || !strings.Contains(p.out.String(), "AND ANOTHER") {
		t.Errorf("code %d", code)
	}
}

func TestDemoFailsWhenItsCommandDoes(t *testing.T) {
	t.Parallel()
	p := start(t, "", "demo", "--exec", "exit 1")
	if code := p.exit(); code != app.ExitFailed || !strings.Contains(p.out.String(), "MISSING") {
		t.Errorf("code %d", code)
	}
}

func TestDemoCanBeInterrupted(t *testing.T) {
	t.Parallel()
	temp := t.TempDir()
	p := startDemo(t, temp, "--exec", "exec sleep 600")
	p.await(p.out, "1. text through a command")
	p.signal(syscall.SIGINT)
	if code := p.exit(); code != app.ExitInterrupted {
		t.Errorf("code %d", code)
	}
	if left := leftovers(t, temp); len(left) > 0 {
		t.Errorf("it left %v", left)
	}
}

func TestDemoKeepsNothingWhenSomethingIsMissing(t *testing.T) {
	t.Parallel()
	p := start(t, "", "demo", "--keep", "--exec", "false")
	if code := p.exit(); code != app.ExitFailed {
		t.Errorf("code %d", code)
	}
}

func TestDemoKeepsJobsComing(t *testing.T) {
	t.Parallel()
	beside := start(t, "", "demo") // of which there may be several
	defer func() {
		if code := beside.exit(); code != app.ExitOK {
			t.Errorf("the other one ends with %d", code)
		}
	}()
	temp := t.TempDir()
	p := startDemo(t, temp, "--keep")
	line := p.await(p.out, "Watch them at", "/debug/", "with the token")
	fields := strings.Fields(line)
	url, token := fields[slices.Index(fields, "at")+1], fields[len(fields)-1]
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("the page is %d", resp.StatusCode)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"login", strings.NewReader(`{"token":"`+token+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Origin", strings.TrimSuffix(url, "/debug/"))
	login, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer login.Body.Close()
	if login.StatusCode != http.StatusNoContent {
		t.Errorf("the token is answered %d", login.StatusCode)
	}
	p.await(p.out, " published, ")
	p.signal(syscall.SIGINT)
	if code := p.exit(); code != app.ExitOK {
		t.Errorf("code %d", code)
	}
	if left := leftovers(t, temp); len(left) > 0 {
		t.Errorf("it left %v", left)
	}
}
