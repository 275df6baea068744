package main

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"pushrelay/cmd/pushrelay/internal/app"
	"pushrelay/cmd/pushrelay/internal/setup"
)

type record struct {
	ID, State, Text, Code, Runner string
	Line                          int
	OK                            bool
}

func records(t *testing.T, out string) map[int]record {
	t.Helper()
	all := map[int]record{}
	for line := range strings.Lines(out) {
		var r record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all[r.Line] = r
	}
	return all
}

func TestSubmitToADaemon(t *testing.T) {
	r := serveRelay(t)
	r.daemon("runner-a1", "--slots", "4", "--exec", "tr a-z A-Z")
	p := r.submit("first\n\n<b> & \u2028\nlast", "--json", "--id-prefix", "x-")
	if code := p.exit(); code != app.ExitOK {
		t.Fatalf("code %d", code)
	}
	got := records(t, p.out.String())
	want := map[int]string{1: "FIRST", 3: "<B> & \u2028", 4: "LAST"}
	if len(got) != len(want) {
		t.Errorf("%d records", len(got))
	}
	for n, text := range want {
		if g := got[n]; !g.OK || g.Text != text || g.ID != "x-"+strconv.Itoa(n) || g.Runner != "runner-a1" || g.State != "ok" {
			t.Errorf("line %d is %+v", n, g)
		}
	}
}

func TestSubmitTellsFailuresApart(t *testing.T) {
	t.Parallel()
	r := serveRelay(t)
	r.daemon("runner-a1", "--slots", "4", "--exec", "read x; test $x = good && echo fine")
	p := r.submit("good\nbad\n", "--json")
	if code := p.exit(); code != app.ExitSome {
		t.Errorf("code %d", code)
	}
	got := records(t, p.out.String())
	if !got[1].OK || got[2].OK || got[2].State != "error" || got[2].Code == "" {
		t.Errorf("%+v", got)
	}
	p = r.submit("bad\n")
	if code := p.exit(); code != app.ExitNone || !strings.Contains(p.out.String(), "-1 error: ") {
		t.Errorf("code %d", code)
	}
}

func TestSubmitOfNothing(t *testing.T) {
	r := serveRelay(t)
	if p := r.submit("\n  \n"); p.exit() != app.ExitOK || p.out.String() != "" {
		t.Error("nothing wasn't nothing")
	}
}

func TestSubmitManyFromAFile(t *testing.T) {
	t.Parallel()
	r := serveRelay(t)
	r.daemon("runner-a1", "--slots", "16", "--exec", "cat")
	r.daemon("runner-a2", "--slots", "16", "--exec", "cat")
	var text strings.Builder
	const lines = 150
	for i := range lines {
		text.WriteString("line " + strconv.Itoa(i+1) + "\n")
	}
	path := filepath.Join(t.TempDir(), "lines")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	p := r.submit("", "--json", path)
	if code := p.exit(); code != app.ExitOK {
		t.Fatalf("code %d", code)
	}
	got := records(t, p.out.String())
	if len(got) != lines {
		t.Errorf("%d records", len(got))
	}
	for n, g := range got {
		if g.Text != "line "+strconv.Itoa(n) {
			t.Errorf("line %d has %q", n, g.Text)
		}
	}
}

func TestCtrlCCancelsWhatIsOpen(t *testing.T) {
	r := serveRelay(t)
	pids := filepath.Join(t.TempDir(), "pid")
	d := r.daemon("runner-a1", "--exec", "echo $$ > "+pids+"; exec sleep 600")
	p := r.submit("one\ntwo\n", "--json")
	d.await(d.err, `"event":"started"`)
	until(t, "the command is there", func() bool { return strings.HasSuffix(readFile(t, pids), "\n") })
	pid, err := strconv.Atoi(strings.TrimSpace(readFile(t, pids)))
	if err != nil {
		t.Fatal(err)
	}
	p.signal(syscall.SIGINT)
	if code := p.exit(); code != app.ExitInterrupted {
		t.Errorf("code %d", code)
	}
	states := map[string]int{}
	for _, rec := range records(t, p.out.String()) {
		states[rec.State+rec.Code]++
	}
	if states["canceled"] != 1 || states["droppedcancelled"] != 1 {
		t.Errorf("%v", states)
	}
	d.await(d.err, `"event":"canceled"`)
	until(t, "the command is gone", func() bool { return gone(pid) })
}

func TestRepeatedSubmission(t *testing.T) {
	t.Parallel()
	r := serveRelay(t)
	at := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	args := []string{"--json", "--id-prefix", "again-", "--deadline", at}
	first := r.submit("one\n", args...)
	until(t, "the job waits", func() bool { return r.get("/readyz") == 200 && waiting(t, r) == 1 })
	if err := first.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	first.exit()
	second := r.submit("one\n", args...)
	d := r.daemon("runner-a1", "--exec", "tr a-z A-Z")
	if code := second.exit(); code != app.ExitOK {
		t.Fatalf("code %d", code)
	}
	if got := records(t, second.out.String()); got[1].Text != "ONE" {
		t.Errorf("%+v", got)
	}
	if n := strings.Count(d.err.String(), `"event":"started"`); n != 1 {
		t.Errorf("it ran %d times", n)
	}
	third := r.submit("one\n", args...)
	if code := third.exit(); code != app.ExitOK || records(t, third.out.String())[1].State != "done" {
		t.Errorf("code %d for what was done before", code)
	}
}

func TestTheWrongKeyIsRefused(t *testing.T) {
	r := serveRelay(t)
	p := start(t, "one\n", "site", "submit", "--relay", r.url, "--key", setup.KeyFile(r.dir, "site-two"), "--site", "site-one", "--owner", "owner-a")
	if code := p.exit(); code != app.ExitRefused || p.err.String() == "" {
		t.Errorf("code %d", code)
	}
	d := start(t, "", "daemon", "--relay", r.url, "--key", setup.KeyFile(r.dir, "runner-a2"), "--runner", "runner-a1",
		"--state", t.TempDir(), "--exec", "cat")
	if code := d.exit(); code != app.ExitRefused {
		t.Errorf("code %d", code)
	}
}

func TestADaemonStopsGracefully(t *testing.T) {
	r := serveRelay(t)
	gate := filepath.Join(t.TempDir(), "gate")
	d := r.daemon("runner-a1", "--exec", "read x; while ! test -e "+gate+"; do read -t 0.05 y </dev/zero; done; echo $x", "--stop-within", "20s")
	p := r.submit("one\n", "--json")
	d.await(d.err, `"event":"started"`)
	d.signal(syscall.SIGTERM)
	d.await(d.err, `"event":"stop"`)
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code := d.exit(); code != app.ExitOK {
		t.Errorf("the daemon's code is %d", code)
	}
	if code := p.exit(); code != app.ExitOK || records(t, p.out.String())[1].Text != "one" {
		t.Errorf("the site's code is %d", code)
	}
}

func TestADaemonStopsNow(t *testing.T) {
	r := serveRelay(t)
	d := r.daemon("runner-a1", "--exec", "exec sleep 600", "--stop-within", "600s")
	other := r.submit("one\n", "--json")
	d.await(d.err, `"event":"started"`)
	d.signal(syscall.SIGTERM)
	d.await(d.err, `"event":"stop"`)
	d.signal(syscall.SIGTERM)
	if code := d.exit(); code != app.ExitInterrupted {
		t.Errorf("code %d", code)
	}
	r.daemon("runner-a2", "--exec", "tr a-z A-Z") // what was given back goes on at once
	if code := other.exit(); code != app.ExitOK || records(t, other.out.String())[1].Runner != "runner-a2" {
		t.Errorf("code %d", code)
	}
}

// TestInitsCommandsWork pastes what init prints into shells, on another port.
func TestInitsCommandsWork(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a relay's try")
	p := start(t, "", "init", dir)
	if code := p.exit(); code != app.ExitOK {
		t.Fatalf("code %d", code)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PUSHRELAY_ADMIN_LISTEN", "off")
	t.Setenv("PUSHRELAY_LOG_FORMAT", "json")
	var commands []string
	for line := range strings.Lines(p.out.String()) {
		if command, ok := strings.CutPrefix(line, "   "); ok {
			commands = append(commands, strings.ReplaceAll(strings.TrimSpace(command), "127.0.0.1:8080", "127.0.0.1:"+port))
		}
	}
	if len(commands) != 3 {
		t.Fatalf("%d commands in:\n%v", len(commands), p.out)
	}
	paste := func(command string) *process { return startCommand(t, "", exec.Command("sh", "-c", "exec "+command)) }
	relay := paste(commands[0])
	relay.await(relay.err, `"event":"listening"`)
	device := paste(commands[1])
	device.await(device.err, `"message":"connected"`)
	site := startCommand(t, "", exec.Command("sh", "-c", commands[2]))
	if code := site.exit(); code != app.ExitOK {
		t.Errorf("code %d", code)
	}
	if out := site.out.String(); !strings.Contains(out, "FIRST LINE") || !strings.Contains(out, "SECOND LINE") {
		t.Errorf("%s", out)
	}
}
