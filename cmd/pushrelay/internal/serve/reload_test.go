package serve

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"pushrelay/hub/projection"
)

// heard is a log that tells of each line.
type heard struct {
	mu    sync.Mutex
	lines []string
	more  chan struct{}
}

func (h *heard) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, string(p))
	close(h.more)
	h.more = make(chan struct{})
	return len(p), nil
}

// await answers once a line beyond the first `from` has the word, and how many lines there are then.
func (h *heard) await(t *testing.T, from int, word string) int {
	t.Helper()
	timeout := time.After(20 * time.Second)
	for {
		h.mu.Lock()
		for i := from; i < len(h.lines); i++ {
			if strings.Contains(h.lines[i], word) {
				h.mu.Unlock()
				return i + 1
			}
		}
		more := h.more
		h.mu.Unlock()
		select {
		case <-more:
		case <-timeout:
			t.Fatalf("no line with %q after %v", word, h.lines[from:])
		}
	}
}

// watched is a reloader at work on a file.
type watched struct {
	path   string
	log    *heard
	holder *projection.Holder
	reload *reloader
	p      *projections
}

func watch(t *testing.T, version int64) *watched {
	t.Helper()
	first := example(t, version, "site-one")
	w := &watched{path: filepath.Join(t.TempDir(), "projection.json"), log: &heard{more: make(chan struct{})}}
	write(t, w.path, first)
	w.p, w.holder = held(t, first)
	w.p.log = zerolog.New(w.log)
	apply := func(raw []byte) error {
		_, err := w.p.apply(raw, sourceFile)
		return err
	}
	w.reload = newReloader(w.path, first, apply, zerolog.New(w.log))
	if err := w.reload.open(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.reload.run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return w
}

func write(t *testing.T, path string, raw []byte) {
	t.Helper()
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (w *watched) has(site string) bool {
	_, ok := w.holder.Current().SiteByID(site)
	return ok
}

func TestReloadWhenTheFileChanges(t *testing.T) {
	w := watch(t, 0)
	write(t, w.path, example(t, 0, "site-two"))
	w.log.await(t, 0, "projection in force")
	if !w.has("site-two") || w.has("site-one") {
		t.Error("the new projection isn't in force whole")
	}
}

func TestReloadWhenTheFileIsReplaced(t *testing.T) {
	w := watch(t, 0)
	next := w.path + ".next"
	seen := 0
	for _, site := range []string{"site-two", "site-three"} { // the second time the first watch would be on a file that is gone
		write(t, next, example(t, 0, site))
		if err := os.Rename(next, w.path); err != nil {
			t.Fatal(err)
		}
		seen = w.log.await(t, seen, "projection in force")
		if !w.has(site) {
			t.Errorf("%s isn't in force", site)
		}
	}
}

func TestReloadThroughLinks(t *testing.T) {
	dir := t.TempDir()
	version := func(name string, raw []byte) {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name, "projection.json"), raw)
	}
	link := func(to, name string) {
		temp := filepath.Join(dir, "..tmp")
		if err := os.Symlink(to, temp); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(temp, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	first := example(t, 0, "site-one")
	version("..1", first)
	version("..2", example(t, 0, "site-two"))
	link("..1", "..data")
	link(filepath.Join("..data", "projection.json"), "projection.json")

	applied := make(chan string, 8)
	r := newReloader(filepath.Join(dir, "projection.json"), first, func(raw []byte) error {
		applied <- string(raw)
		return nil
	}, zerolog.Nop())
	if err := r.open(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go r.run(ctx)
	link("..2", "..data")
	select {
	case raw := <-applied:
		if !strings.Contains(raw, "site-two") {
			t.Error("it read the old one")
		}
	case <-time.After(20 * time.Second):
		t.Fatal("a swapped link went unnoticed")
	}
}

func TestReloadKeepsTheOldOne(t *testing.T) {
	good := example(t, 0, "site-two")
	cases := map[string]func(t *testing.T, path string){
		"half-written": func(t *testing.T, path string) { write(t, path, good[:len(good)/2]) },
		"empty":        func(t *testing.T, path string) { write(t, path, nil) },
		"garbage":      func(t *testing.T, path string) { write(t, path, []byte("{}")) },
		"removed": func(t *testing.T, path string) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		},
	}
	for name, damage := range cases {
		t.Run(name, func(t *testing.T) {
			w := watch(t, 0)
			damage(t, w.path)
			seen := w.log.await(t, 0, "projection-kept")
			if !w.has("site-one") {
				t.Error("the old one isn't in force any more")
			}
			write(t, w.path, good)
			w.log.await(t, seen, "projection in force")
			if !w.has("site-two") {
				t.Error("it didn't recover")
			}
		})
	}
}

func TestLastArrivalWins(t *testing.T) {
	w := watch(t, 0)
	if _, err := w.p.apply(example(t, 0, "pushed"), sourceAdmin); err != nil {
		t.Fatal(err)
	}
	if !w.has("pushed") {
		t.Fatal("the push isn't in force")
	}
	seen := w.log.await(t, 0, sourceAdmin)
	w.reload.Now() // as SIGHUP does
	seen = w.log.await(t, seen, "projection in force")
	if !w.has("site-one") {
		t.Error("SIGHUP didn't put the file back in force")
	}
	write(t, w.path, example(t, 0, "site-two"))
	w.log.await(t, seen, "projection in force")
	if !w.has("site-two") {
		t.Error("the changed file isn't in force")
	}
}

func TestOnlyAHigherVersionWins(t *testing.T) {
	w := watch(t, 3)
	if _, err := w.p.apply(example(t, 7, "pushed"), sourceAdmin); err != nil {
		t.Fatal(err)
	}
	seen := w.log.await(t, 0, "projection in force")
	write(t, w.path, example(t, 5, "site-two"))
	seen = w.log.await(t, seen, "projection-kept")
	if !w.has("pushed") {
		t.Error("a lower version took over")
	}
	write(t, w.path, example(t, 8, "site-three"))
	w.log.await(t, seen, "projection in force")
	if !w.has("site-three") {
		t.Error("a higher version was refused")
	}
}
