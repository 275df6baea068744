package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"pushrelay/cmd/pushrelay/internal/app"
	"pushrelay/cmd/pushrelay/internal/setup"
)

// A relay that is stopped keeps its folder: it may go on at any moment.
func TestAStoppedHolderIsOneToo(t *testing.T) {
	t.Parallel()
	r, data := keptJobs(t, 1)
	r.signal(syscall.SIGSTOP)
	defer r.signal(syscall.SIGCONT)
	began := time.Now()
	p := serveOn(t, r, data)
	if code := p.exit(); code != app.ExitLocked || time.Since(began) > 5*time.Second {
		t.Errorf("code %d after %v", code, time.Since(began))
	}
	if said := p.err.String(); !strings.Contains(said, data) || !strings.Contains(said, "process "+strconv.Itoa(r.cmd.Process.Pid)) {
		t.Errorf("it says %q", said)
	}
	r.signal(syscall.SIGCONT)
	if r.get("/readyz") != 200 || waiting(t, r) != 1 {
		t.Error("the one that has it doesn't go on")
	}
}

func serveOn(t *testing.T, r *relay, data string) *process {
	return start(t, "", "serve", "--projection", setup.ProjectionFile(r.dir), "--data", data, "--listen", "127.0.0.1:0", "--admin-listen", "off")
}

// Of relays that begin at once on one folder, new or not, one gets it, and the others name that one.
func TestOneOfManyGetsTheFolder(t *testing.T) {
	t.Parallel()
	r := serveRelay(t, "--store", "memory")
	data := filepath.Join(t.TempDir(), "data")
	for range 2 {
		var all []*process
		for range 5 {
			all = append(all, serveOn(t, r, data))
		}
		var winner *process
		until(t, "one has it", func() bool {
			for _, p := range all {
				if strings.Contains(p.out.String(), "listening on") {
					winner = p
				}
			}
			return winner != nil
		})
		for _, p := range all {
			if p == winner {
				continue
			}
			if code := p.exit(); code != app.ExitLocked || !strings.Contains(p.err.String(), "process "+strconv.Itoa(winner.cmd.Process.Pid)) {
				t.Errorf("code %d, %s", code, p.err)
			}
		}
		winner.signal(syscall.SIGTERM)
		if code := winner.exit(); code != app.ExitOK {
			t.Errorf("code %d", code)
		}
	}
}

// A compaction that is killed leaves the store as it was, or compact; and nothing beside it once it is opened again.
func TestCompactKilled(t *testing.T) {
	t.Parallel()
	r, data := keptJobs(t, 900)
	r.signal(syscall.SIGTERM)
	r.exit()
	was := inspect(t, data)
	began := time.Now()
	if code := start(t, "", "store", "compact", data).exit(); code != app.ExitOK {
		t.Fatalf("code %d", code)
	}
	whole := time.Since(began)
	killed := 0
	for range 15 {
		p := start(t, "", "store", "compact", data)
		select {
		case <-p.exited:
		case <-time.After(rand.N(whole)):
			_ = p.cmd.Process.Kill()
		}
		if p.exit() != app.ExitOK {
			killed++
		}
		is := inspect(t, data)
		if fmt.Sprint(is.Jobs, is.Epoch, is.Bytes, is.Sites) != fmt.Sprint(was.Jobs, was.Epoch, was.Bytes, was.Sites) {
			t.Fatalf("%+v became %+v", was, is)
		}
	}
	if killed == 0 {
		t.Error("none was killed")
	}
	again := serveRelay(t, "--store", "disk", "--data", data)
	if n := waiting(t, again); n != 900 {
		t.Errorf("%d jobs wait", n)
	}
	files, err := os.ReadDir(data)
	if err != nil || len(files) != 2 {
		t.Errorf("%v, %v", files, err)
	}
}
