package crash

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"pushrelay/session/daemon"
	"pushrelay/session/site"
	"pushrelay/wire"
	"pushrelay/wire/seal"
)

const (
	slots = 6
	// openJobs is how many jobs a site keeps open.
	openJobs = 16
	// cutsBorne is after how many crashes a client is replaced: each makes it wait for longer before it comes back.
	cutsBorne = 2
)

// end is a client in this process: a site or a daemon, one object after another.
type end struct {
	w    *world
	name string
	gate *gate

	sessions atomic.Int32 // that it had
	cuts     atomic.Int32 // how many of them ended

	stop func() // ends the object and waits; nil when there is none
	age  int    // crashes that the object has seen

	mu   sync.Mutex
	site *site.Site // nil for a daemon
}

func (e *end) current() *site.Site {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.site
}

// hear counts sessions; both kinds of ends have the same words for them.
func (e *end) hear(what string) {
	switch what {
	case string(daemon.EventConnected):
		e.sessions.Add(1)
	case string(daemon.EventDisconnected):
		e.cuts.Add(1)
	default:
		return
	}
	e.w.ledger.touch()
}

// connected waits until a client has a session.
func (w *world) connected(e *end) {
	w.t.Helper()
	timeout := time.After(patience)
	for {
		_, changed := w.ledger.count("", func(*entry) bool { return false })
		if e.sessions.Load() > e.cuts.Load() {
			return
		}
		select {
		case <-changed:
		case <-timeout:
			w.t.Fatalf("%s doesn't come back\nlast lines of the relay:\n%v", e.name, w.relay.log)
		}
	}
}

// startSite makes a new process of the site: it knows its jobs, and not what became of them.
func (e *end) startSite() {
	l := e.w.ledger
	transport := e.gate.transport()
	s, err := site.New(site.Config{
		URL: e.w.url, SiteID: e.name, Keys: e.w.keys[e.name], Transport: transport,
		OnEvent: func(ev site.Event) {
			e.hear(string(ev.Type))
			l.hearSite(ev)
		},
		Lookup: func(_ context.Context, id string) (site.Job, bool, error) {
			known, ok := l.lookup(id)
			return e.w.jobOf(&known), ok, nil
		},
		OnResult: func(_ context.Context, r site.Result) error { l.delivered(r); return nil },
		OnNotice: func(_ context.Context, n site.Notice) error { l.dropped(n); return nil },
	})
	require.NoError(e.w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- s.Run(ctx) }()
	e.mu.Lock()
	e.site = s
	e.mu.Unlock()
	e.age = 0
	e.stop = func() {
		e.stop = nil
		cancel()
		e.w.ended(e.name, <-over)
		transport.CloseIdleConnections()
	}
	e.again()
}

// again publishes what isn't over, and some of what is: that must change nothing.
func (e *end) again() {
	over := 0
	for _, j := range e.w.ledger.copies() {
		if j.site != e.name || j.withdrawn || j.over() && over >= 3 {
			continue
		}
		if j.over() {
			over++
		}
		e.submit(j.id)
	}
}

// submit publishes a job of the ledger on the object that the site has now, without waiting.
func (e *end) submit(id string) {
	known, _ := e.w.ledger.lookup(id)
	s := e.current()
	e.w.calls.Go(func() {
		answer := s.Submit(e.w.life, e.w.jobOf(&known))[0]
		switch {
		case answer.Err == nil:
			e.w.ledger.submitted(id, answer.State, known.done())
		case errors.Is(answer.Err, site.ErrWithdrawn):
			e.w.ledger.with(id, func(j *entry) { j.withdrawn = !j.enqueued })
		case errors.Is(answer.Err, site.ErrStopped), errors.Is(answer.Err, site.ErrPending):
		default:
			e.w.ledger.fault("job %s was refused: %v", id, answer.Err)
		}
	})
}

// cancel asks for a job to be stopped after a while.
func (e *end) cancel(id string, after time.Duration) {
	e.w.calls.Go(func() {
		if !pause(e.w.life, after) {
			return
		}
		sure := false // that the relay has the job
		e.w.ledger.with(id, func(j *entry) { j.cancelAsked, sure = true, j.enqueued })
		done, err := e.current().Cancel(e.w.life, id)
		if err != nil {
			return // perhaps it took effect
		}
		e.w.ledger.with(id, func(j *entry) { j.cancelled = done[0] })
		if sure && !done[0] {
			e.w.ledger.fault("job %s was published, and is unknown when it is cancelled", id)
		}
	})
}

// startDaemon makes a new process of the daemon: it has its folder and no memory.
func (e *end) startDaemon() {
	transport := e.gate.transport()
	d, err := e.w.newDaemon(daemon.Config{
		URL: e.w.url, RunnerID: e.name, Keys: e.w.keys[e.name], StateDir: filepath.Join(e.w.dir, e.name+".state"), Slots: slots,
		Capabilities: []wire.Capability{{
			Kind: site.KindGenerate, BackendID: "crash", BackendClass: "process", Service: "crash", Model: "crash", OfferScope: "private",
		}},
		Run: e, Transport: transport,
		OnEvent: func(ev daemon.Event) {
			e.hear(string(ev.Type))
			e.w.ledger.hearDaemon(e.name, ev)
		},
	})
	require.NoError(e.w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- d.Run(ctx) }()
	e.age = 0
	e.stop = func() {
		e.stop = nil
		cancel()
		e.w.ended(e.name, <-over)
		e.w.ledger.restarted(e.name)
		transport.CloseIdleConnections()
	}
}

// newDaemon takes the folder that the last daemon let go of. A relay that another world was starting just then may have
// inherited its lock for a moment.
func (w *world) newDaemon(cfg daemon.Config) (d *daemon.Daemon, err error) {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if d, err = daemon.New(cfg); err == nil || !strings.Contains(err.Error(), "in use") || !pause(w.life, time.Millisecond) {
			break
		}
	}
	return d, err
}

// Run is the daemon's work.
func (e *end) Run(ctx context.Context, job daemon.Job) (daemon.Answer, error) {
	work, answer := e.w.ledger.begins(job)
	if !e.w.works(ctx, job.Grant.JobID, work) {
		return daemon.Answer{}, context.Cause(ctx)
	}
	return daemon.Answer{Text: answer}, nil
}

// works does a job's work: it takes its time, or waits until the test lets it finish.
func (w *world) works(ctx context.Context, id string, work time.Duration) bool {
	e, _ := w.ledger.lookup(id)
	if e.held == nil {
		return pause(ctx, work)
	}
	select {
	case <-e.held:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// pause waits, and answers false when ctx ended first.
func pause(ctx context.Context, span time.Duration) bool {
	timer := time.NewTimer(span)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// jobOf is a job as its site publishes it.
func (w *world) jobOf(e *entry) site.Job {
	payload, err := seal.GeneratePayload{Prompt: e.prompt}.Encode()
	if err != nil {
		w.ledger.fault("job %s: %v", e.id, err)
	}
	return site.Job{ID: e.id, Kind: site.KindGenerate, Owner: e.owner, Deadline: e.deadline, Payload: payload}
}
