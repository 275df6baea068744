package crash

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pushrelay/cmd/pushrelay/internal/setup"
	"pushrelay/store"
)

// world is one relay after another, and the clients that outlive them.
type world struct {
	t      *testing.T
	rng    *rand.Rand // of the test's goroutine
	dir    string     // keys, projection, the daemons' folders
	data   string     // the relay's folder
	port   string
	url    string
	admin  string   // HOST:PORT
	args   []string // of the relay, besides
	keys   setup.Made
	ledger *ledger
	gate   *gate
	relay  *relay // the last one

	sites, daemons []*end

	life  context.Context //nolint:containedctx // of calls that clients make; ends with the world
	end   context.CancelFunc
	calls sync.WaitGroup
	made  int
}

func newWorld(t *testing.T, seed uint64, args ...string) *world {
	t.Helper()
	w := &world{
		t: t, rng: rand.New(rand.NewPCG(seed, 0)), dir: t.TempDir(), port: freePort(t), args: args,
		ledger: newLedger(), gate: newGate(),
	}
	w.data, w.url, w.admin = filepath.Join(w.dir, "data"), "http://127.0.0.1:"+w.port, "127.0.0.1:"+freePort(t)
	var err error
	w.keys, err = setup.Make(w.dir)
	require.NoError(t, err)
	w.life, w.end = context.WithCancel(context.Background())
	for _, name := range setup.Sites() {
		w.sites = append(w.sites, &end{w: w, name: name, gate: w.gate})
	}
	for _, d := range setup.Devices() {
		w.daemons = append(w.daemons, &end{w: w, name: d.Runner, gate: w.gate})
	}
	t.Cleanup(w.close)
	return w
}

// close ends all clients.
func (w *world) close() {
	w.end()
	for _, e := range append(w.daemons, w.sites...) {
		if e.stop != nil {
			e.stop()
		}
	}
	w.calls.Wait()
}

// ended judges how a client ended.
func (w *world) ended(name string, err error) {
	if err != nil {
		w.ledger.fault("%s ended: %v", name, err)
	}
}

// join starts all clients.
func (w *world) join() {
	for _, s := range w.sites {
		s.startSite()
	}
	for _, d := range w.daemons {
		d.startDaemon()
	}
}

// start starts a relay on the folder.
func (w *world) start() {
	w.t.Helper()
	w.relay = startProgram(w.t, append([]string{
		"serve", "--projection", setup.ProjectionFile(w.dir), "--data", w.data, "--listen", "127.0.0.1:" + w.port,
		"--admin-listen", w.admin, "--payload-window", "60s", "--drain-window", "100ms", "--max-per-address", "1000", "--log-format", "json",
	}, w.args...)...)
}

// listen waits until the relay listens, and lets clients dial.
func (w *world) listen() {
	w.t.Helper()
	select {
	case <-w.relay.listening:
	case <-w.relay.exited:
		w.t.Fatalf("the relay didn't start on what the last one left:\n%v", w.relay.log)
	case <-time.After(patience):
		w.t.Fatalf("the relay doesn't listen:\n%v", w.relay.log)
	}
	w.gate.set(true)
}

// kill ends the relay without a warning.
func (w *world) kill() {
	w.t.Helper()
	w.gate.set(false)
	require.NoError(w.t, w.relay.cmd.Process.Kill())
	require.Equal(w.t, -1, w.relay.exit(w.t), "it ended before it was killed:\n%v", w.relay.log)
}

// publish makes jobs until each site has enough of them open.
func (w *world) publish() {
	for _, s := range w.sites {
		n, _ := w.ledger.count(s.name, func(e *entry) bool { return !e.over() })
		for range openJobs - n {
			e := w.newJob(s.name)
			cancel, after := w.rng.IntN(12) == 0, time.Duration(w.rng.IntN(800))*time.Millisecond
			w.ledger.add(e)
			s.submit(e.id)
			if cancel {
				s.cancel(e.id, after)
			}
		}
	}
}

// newJob makes a job: mostly small and short, some large, some that outlast a relay or two.
func (w *world) newJob(siteID string) *entry {
	w.made++
	devices := setup.Devices()
	e := &entry{
		id: fmt.Sprintf("job-%d", w.made), site: siteID, owner: devices[w.rng.IntN(len(devices))].Owner,
		deadline: time.Now().Add(time.Hour).Truncate(time.Millisecond),
	}
	e.prompt, e.answer = "question "+e.id, "answer "+e.id
	switch w.rng.IntN(10) {
	case 0:
		e.prompt += strings.Repeat(" more", 20_000)
	case 1:
		e.answer += strings.Repeat(" more", 20_000)
	}
	switch n := w.rng.IntN(10); {
	case n < 3:
		e.work = time.Duration(w.rng.IntN(400)) * time.Millisecond
	case n < 5:
		e.work = time.Duration(800+w.rng.IntN(2500)) * time.Millisecond
	}
	return e
}

// live publishes until the time is over.
func (w *world) live(span time.Duration) {
	over := time.NewTimer(span)
	defer over.Stop()
	for {
		w.publish()
		_, changed := w.ledger.count("", func(*entry) bool { return false })
		select {
		case <-changed:
		case <-over.C:
			return
		}
	}
}

// faultless fails the test when the ledger has faults.
func (w *world) faultless(when string) {
	w.t.Helper()
	if faults := w.ledger.found(); len(faults) > 0 {
		w.t.Fatalf("%s:\n  %s\nlast lines of the relay:\n%v", when, strings.Join(faults, "\n  "), w.relay.log)
	}
}

// until waits until so many jobs are as they should be.
func (w *world) until(what string, n int, holds func(e *entry) bool) {
	w.t.Helper()
	timeout := time.After(patience)
	for {
		got, changed := w.ledger.count("", holds)
		if got >= n {
			return
		}
		select {
		case <-changed:
		case <-timeout:
			w.faultless("while waiting")
			w.t.Fatalf("%d of %d jobs are %s\nlast lines of the relay:\n%v", got, n, what, w.relay.log)
		}
	}
}

// stop ends the relay in order.
func (w *world) stop() {
	w.t.Helper()
	w.gate.set(false)
	require.NoError(w.t, w.relay.cmd.Process.Signal(syscall.SIGTERM))
	require.Zero(w.t, w.relay.exit(w.t), "the relay doesn't end in order:\n%v", w.relay.log)
}

// finish ends the relay in order and verifies that it left nothing that a site waits for.
func (w *world) finish() {
	w.t.Helper()
	w.stop()
	w.survey(openCopy)
	w.faultless("after its end")
	w.empty(openCopy)
}

// settle waits until every job is over, and collected.
func (w *world) settle() {
	w.t.Helper()
	timeout := time.After(patience)
	for {
		open, changed := w.ledger.count("", func(e *entry) bool { return !e.settled() })
		if open == 0 {
			return
		}
		select {
		case <-changed:
		case <-timeout:
			w.faultless("when jobs didn't end")
			var left []string
			for _, e := range w.ledger.copies() {
				if !e.settled() {
					left = append(left, fmt.Sprintf("%+v", e))
				}
			}
			w.t.Fatalf("%d jobs don't end:\n%.5000s\nlast lines of the relay:\n%v", open, strings.Join(left, "\n"), w.relay.log)
		}
	}
}

// copyData copies the relay's folder as a dead process left it.
func (w *world) copyData() string {
	w.t.Helper()
	to := filepath.Join(w.dir, "copy")
	require.NoError(w.t, os.RemoveAll(to))
	require.NoError(w.t, os.CopyFS(to, os.DirFS(w.data)))
	return to
}

// survey opens a copy of what the dead relay left and compares it with what was acknowledged.
func (w *world) survey(open func(dir string) (store.RoutingStore, error)) {
	w.t.Helper()
	if _, err := os.Stat(w.data); os.IsNotExist(err) {
		return // it was killed before it had a folder
	}
	s, err := open(w.copyData())
	require.NoError(w.t, err, "the folder of a relay that was killed can't be opened")
	defer func() { require.NoError(w.t, s.Close()) }()
	for _, e := range w.ledger.copies() {
		j, err := s.Job(w.t.Context(), e.site, e.id)
		for _, fault := range compare(&e, j, err) {
			w.ledger.fault("after a crash: job %s: %s; the store has %+v, %v", e.id, fault, j, err)
		}
		if err == nil && j.State == store.Done {
			w.ledger.with(e.id, func(l *entry) { l.dead, l.kept, l.gathered = true, j.Disposition != "", j.Collected })
		}
	}
}

// compare answers what of a job's acknowledgements the store doesn't bear out.
func compare(e *entry, j store.Job, err error) (faults []string) {
	must := func(ok bool, what string) {
		if !ok {
			faults = append(faults, what)
		}
	}
	if !e.enqueued {
		return nil
	}
	must(err == nil, "the enqueue was acknowledged")
	must(!e.cancelled || j.Cancelled || j.State == store.Done, "the cancel was acknowledged")
	must(e.reported == "" || j.State == store.Done && j.Lease == e.reported, "the result was acknowledged")
	must(!e.collected || j.State == store.Done && j.Collected, "the collect was acknowledged")
	for lease := range e.sealed {
		if e.gone[lease] == "" && !e.cancelAsked {
			must(j.Lease == lease && j.State >= store.Ready, "the seal for "+lease+" was acknowledged")
		}
	}
	return faults
}
