package main

import (
	"os"
	"path/filepath"
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
		"a cancel reaches a running daemon", "a daemon dies, another one finishes", "results wait for a site that was away",
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
