package crash

import (
	"bufio"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patience bounds every wait; nothing takes that long.
const patience = 90 * time.Second

// relay is one process of the program.
type relay struct {
	cmd       *exec.Cmd
	listening chan struct{} // closed when it says so
	exited    chan struct{}
	log       *tail
}

// tail keeps the last lines of a log.
type tail struct {
	mu    sync.Mutex
	lines []string
}

func (t *tail) add(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lines = append(t.lines, line); len(t.lines) > 200 {
		t.lines = t.lines[100:]
	}
}

func (t *tail) count(words string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, line := range t.lines {
		if strings.Contains(line, words) {
			n++
		}
	}
	return n
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.lines, "\n")
}

// startProgram starts the program with these arguments; it is killed when the test ends, however that is.
func startProgram(t *testing.T, args ...string) *relay {
	t.Helper()
	r := &relay{cmd: exec.Command(os.Getenv(programVar), args...), listening: make(chan struct{}), exited: make(chan struct{}), log: &tail{}}
	stderr, err := r.cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, r.cmd.Start())
	go func() {
		defer close(r.exited)
		r.follow(stderr)
		_ = r.cmd.Wait() // the code is asked for in exit
	}()
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		<-r.exited
	})
	return r
}

func (r *relay) follow(log io.Reader) {
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	said := false
	for lines.Scan() {
		r.log.add(lines.Text())
		if !said && strings.Contains(lines.Text(), `"event":"listening"`) {
			said = true
			close(r.listening)
		}
	}
}

// exit waits for the end and answers the code, -1 for a signal.
func (r *relay) exit(t *testing.T) int {
	t.Helper()
	select {
	case <-r.exited:
	case <-time.After(patience):
		t.Fatalf("the program doesn't end:\n%v", r.log)
	}
	return r.cmd.ProcessState.ExitCode()
}

// freePort answers a port for one relay after another. It is below those that connections get by themselves, so that
// nobody takes it while a relay is down.
func freePort(t *testing.T) string {
	t.Helper()
	for range 200 {
		port := strconv.Itoa(15_000 + rand.IntN(15_000))
		l, err := net.Listen("tcp", "127.0.0.1:"+port)
		if err == nil {
			require.NoError(t, l.Close())
			return port
		}
	}
	t.Fatal("no port is free")
	return ""
}

// gate lets connections begin while a relay listens. Clients find a relay that is down by themselves, but then wait for
// longer each time, as they should; a gate keeps that from being most of the test.
type gate struct {
	mu   sync.Mutex
	open chan struct{}
}

func newGate() *gate { return &gate{open: make(chan struct{})} }

func (g *gate) set(open bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.open:
		if !open {
			g.open = make(chan struct{})
		}
	default:
		if open {
			close(g.open)
		}
	}
}

func (g *gate) wait(ctx context.Context) error {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	select {
	case <-open:
		return nil
	case <-ctx.Done():
		return errors.New("no relay listens")
	}
}

// transport dials through the gate.
func (g *gate) transport() *http.Transport {
	return &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		if err := g.wait(ctx); err != nil {
			return nil, err
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}}
}
