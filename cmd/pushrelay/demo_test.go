package main

import (
	"net/http"
	"os"
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

func TestDemo(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	p := start(t, "", "demo")
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
	p := start(t, "", "demo", "--exec", "exit 1")
	if code := p.exit(); code != app.ExitFailed || !strings.Contains(p.out.String(), "MISSING") {
		t.Errorf("code %d", code)
	}
}

func TestDemoCanBeInterrupted(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	p := start(t, "", "demo", "--exec", "exec sleep 600")
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
	p := start(t, "", "demo", "--keep", "--exec", "false")
	if code := p.exit(); code != app.ExitFailed {
		t.Errorf("code %d", code)
	}
}

func TestDemoKeepsJobsComing(t *testing.T) {
	beside := start(t, "", "demo") // of which there may be several
	defer func() {
		if code := beside.exit(); code != app.ExitOK {
			t.Errorf("the other one ends with %d", code)
		}
	}()
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	p := start(t, "", "demo", "--keep")
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
