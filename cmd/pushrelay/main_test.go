package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"pushrelay/cmd/pushrelay/internal/app"
	"pushrelay/cmd/pushrelay/internal/setup"
)

// asProgram makes the test's binary the program itself, so that tests run real processes of exactly this code.
const asProgram = "PUSHRELAY_TEST_AS_PROGRAM"

// patience bounds every wait; nothing here takes that long.
const patience = 60 * time.Second

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Exit(m.Run())
}

// process is a child that runs the program.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	out    *lines
	err    *lines
	exited chan struct{}
}

// lines collects a child's output and tells of each line.
type lines struct {
	mu   sync.Mutex
	all  []string
	more chan struct{}
}

func newLines() *lines { return &lines{more: make(chan struct{})} }

func (l *lines) follow(r io.Reader) {
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		l.mu.Lock()
		l.all = append(l.all, scanner.Text())
		close(l.more)
		l.more = make(chan struct{})
		l.mu.Unlock()
	}
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.all, "\n")
}

// start runs the program with these arguments; it is killed when the test ends.
func start(t *testing.T, stdin string, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return startCommand(t, stdin, exec.Command(self, args...))
}

// startCommand starts a command; stdin is for one without a standard input of its own.
func startCommand(t *testing.T, stdin string, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd, out: newLines(), err: newLines(), exited: make(chan struct{})}
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, asProgram+"=1")
	if cmd.Stdin == nil {
		cmd.Stdin = strings.NewReader(stdin)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var followers sync.WaitGroup
	followers.Go(func() { p.out.follow(stdout) })
	followers.Go(func() { p.err.follow(stderr) })
	go func() {
		defer close(p.exited)
		followers.Wait()
		_ = cmd.Wait() // its code is asked for in exit
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-p.exited
		if t.Failed() {
			t.Logf("%v\nstdout:\n%v\nstderr:\n%v", cmd.Args[1:], p.out, p.err)
		}
	})
	return p
}

// await answers the first line of l that has all the words.
func (p *process) await(l *lines, words ...string) string {
	p.t.Helper()
	timeout := time.After(patience)
	for {
		l.mu.Lock()
		for _, line := range l.all {
			if hasAll(line, words) {
				l.mu.Unlock()
				return line
			}
		}
		more := l.more
		l.mu.Unlock()
		select {
		case <-more:
		case <-p.exited:
			if line := l.String(); !hasAll(line, words) {
				p.t.Fatalf("%v ended without a line of %q", p.cmd.Args[1:], words)
			}
		case <-timeout:
			p.t.Fatalf("%v wrote no line of %q", p.cmd.Args[1:], words)
		}
	}
}

func hasAll(line string, words []string) bool {
	for _, word := range words {
		if !strings.Contains(line, word) {
			return false
		}
	}
	return true
}

// exit waits for the end and answers the code.
func (p *process) exit() int {
	p.t.Helper()
	select {
	case <-p.exited:
	case <-time.After(patience):
		p.t.Fatalf("%v doesn't end", p.cmd.Args[1:])
	}
	return p.cmd.ProcessState.ExitCode()
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// relay is a served relay with the example's keys.
type relay struct {
	*process
	dir        string
	url, admin string
	keys       setup.Made
}

func serveRelay(t *testing.T, args ...string) *relay {
	t.Helper()
	dir := t.TempDir()
	made, err := setup.Make(dir)
	if err != nil {
		t.Fatal(err)
	}
	args = append([]string{
		"serve", "--projection", setup.ProjectionFile(dir), "--listen", "127.0.0.1:0",
		"--admin-listen", "127.0.0.1:0", "--log-format", "json", "--store", "memory",
	}, args...)
	r := &relay{process: start(t, "", args...), dir: dir, keys: made}
	var l struct{ URL, Admin string }
	if err := json.Unmarshal([]byte(r.await(r.err, `"event":"listening"`)), &l); err != nil {
		t.Fatal(err)
	}
	r.url, r.admin = l.URL, l.Admin
	return r
}

// daemon starts a device of the example.
func (r *relay) daemon(runner string, args ...string) *process {
	r.t.Helper()
	p := start(r.t, "", append([]string{
		"daemon", "--relay", r.url, "--key", setup.KeyFile(r.dir, runner), "--runner", runner,
		"--state", setup.StateDir(r.dir, runner), "--log-format", "json",
	}, args...)...)
	p.await(p.err, `"message":"connected"`)
	return p
}

// submit starts a submission of site-one for owner-a.
func (r *relay) submit(stdin string, args ...string) *process {
	r.t.Helper()
	return start(r.t, stdin, append([]string{
		"site", "submit", "--relay", r.url, "--key", setup.KeyFile(r.dir, "site-one"), "--site", "site-one", "--owner", "owner-a",
	}, args...)...)
}

// get answers a status of the admin listener; 0 when there is none.
func (r *relay) get(path string) int {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.admin+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

// inProcess runs the program's parser and command in this process.
func inProcess(t *testing.T, args ...string) (code int, out, errOut string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = app.Main(t.Context(), new(cli), app.Streams{In: strings.NewReader(""), Out: &stdout, Err: &stderr}, args)
	return code, stdout.String(), stderr.String()
}

func gone(pid int) bool { return syscall.Kill(pid, 0) != nil }

// until polls a condition of another process that tells of nothing by itself.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	timeout := time.After(patience)
	for !ok() {
		select {
		case <-ticker.C:
		case <-timeout:
			t.Fatalf("not in time: %s", what)
		}
	}
}

func readFile(t *testing.T, elem ...string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		return ""
	}
	return string(raw)
}

// waiting answers how many jobs are in the relay's queue.
func waiting(t *testing.T, r *relay) int {
	t.Helper()
	resp, err := http.Get(r.admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(raw), `pushrelay_store_jobs{state="queued"} `)
	n := 0
	_, _ = fmt.Sscan(rest, &n)
	return n
}
