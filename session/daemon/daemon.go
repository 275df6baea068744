package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/rs/zerolog"

	"pushrelay/session"
	"pushrelay/session/internal/ask"
	"pushrelay/wire"
)

// conn is what a daemon needs of a session; *session.Conn has it.
type conn interface {
	Request(ctx context.Context, build func(dst []byte, id string) []byte) ([]byte, error)
	RequestBulk(ctx context.Context, build func(id string) [][]byte) ([]byte, error)
	SessionID() string
}

// Daemon keeps one session with the relay up and runs what it is offered. Make one with New, and call Run once.
type Daemon struct {
	// Immutable.
	cfg          Config
	log          zerolog.Logger
	client       *session.Client
	capabilities []byte // as the wire has them
	budget       int    // bytes of a hello that grants may take
	shelf        *shelf
	history      *history
	spent        *spent // nil: no grants are asked for
	lock         *os.File

	jobs     context.Context // of all running jobs
	stopJobs context.CancelCauseFunc
	started  atomic.Bool
	done     chan struct{} // closed when Run is over
	work     sync.WaitGroup

	// Guarded by mu.
	mu        sync.Mutex
	ledger    ledger
	sites     sites
	link      *link // nil while there is no session
	paused    bool
	stopping  bool
	endClient context.CancelFunc  // ends the client; set by Run
	down      map[jobKey]struct{} // given back once because of ErrUnavailable
	changed   chan struct{}       // closed and made anew when a grant or the link changes
}

// New checks the configuration, takes StateDir and reads the results that are still to be reported.
func New(cfg Config) (*Daemon, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	d := &Daemon{
		cfg: cfg, log: cfg.Log, ledger: newLedger(), down: map[jobKey]struct{}{},
		changed: make(chan struct{}), done: make(chan struct{}),
		capabilities: wire.AppendCapabilities(nil, cfg.Dialect, cfg.Capabilities),
	}
	d.budget = cfg.grantBudget(d.capabilities)
	d.jobs, d.stopJobs = context.WithCancelCause(context.Background())
	if err := d.openState(); err != nil {
		return nil, err
	}
	client, err := session.NewClient(session.ClientConfig{
		URL: cfg.URL, Caller: cfg.RunnerID, Role: wire.RoleDaemon, Sign: cfg.Keys.SignRequest, Body: d.hello,
		Handler: handler{d}, Log: cfg.Log, Transport: cfg.Transport, CAFile: cfg.CAFile, Budget: cfg.Budget,
	})
	if err != nil {
		return nil, errors.Join(err, d.closeState())
	}
	d.client = client
	return d, nil
}

func (d *Daemon) openState() error {
	lock, err := lockDir(d.cfg.StateDir)
	if err != nil {
		return err
	}
	d.lock = lock
	history, skipped, err := openHistory(d.cfg.StateDir)
	if err != nil {
		return errors.Join(err, lock.Close())
	}
	d.history = history
	if skipped > 0 {
		d.log.Warn().Int("lines", skipped).Msg("the record of finished grants is damaged; the rest of it is used")
	}
	if d.cfg.ControlPlane != nil {
		var damaged bool
		if d.spent, damaged, err = openSpent(d.cfg.StateDir, d.cfg.wall()); err != nil {
			return errors.Join(err, d.closeState())
		}
		if damaged {
			d.log.Warn().Str("for", spentFor.String()).Msg("the record of used grants is damaged; no job is taken until all that it may have named are too old")
		}
	}
	shelf, records, err := openShelf(filepath.Join(d.cfg.StateDir, "results"), func(name string, err error) {
		d.log.Error().Str("error", ask.Saying(err)).Str("file", name).Msg("a kept result is damaged and was set aside; its job will run again")
	})
	if err != nil {
		return errors.Join(err, d.closeState())
	}
	d.shelf = shelf
	for _, r := range records {
		w := &work{grant: r.Grant, phase: finished, result: r, stub: wire.Stub{
			ID: r.Grant.JobID, Site: r.Site, DeadlineAt: r.DeadlineAt,
		}}
		if !d.ledger.add(w) {
			d.log.Warn().Msg("two results of one job were kept; one of them is left alone")
		}
	}
	return nil
}

func (d *Daemon) closeState() error {
	err := d.history.close()
	if d.spent != nil {
		err = errors.Join(err, d.spent.close())
	}
	return errors.Join(err, d.lock.Close())
}

// hello fills what a daemon says of itself; called for each session.
func (d *Daemon) hello(b *wire.HelloBody) {
	b.ProtocolVersion = string(d.cfg.Dialect)
	b.Client = d.cfg.clientInfo()
	b.Capabilities = d.capabilities
	b.Slots = d.cfg.Slots
	d.mu.Lock()
	defer d.mu.Unlock()
	b.Paused = d.paused || d.stopping
	b.ActiveLeases = fitting(d.ledger.active(), d.budget)
}

// fitting cuts a list of grants to what a hello has room for. New work stops before that; only results that were kept
// from a time with fewer capabilities can be too many.
func fitting(grants []wire.Grant, room int) []wire.Grant {
	for i, g := range grants {
		if room -= grantBytes(g); room < 0 {
			return grants[:i]
		}
	}
	return grants
}

// Run keeps a session up until ctx ends, Stop was called or the relay ended it for good; then everything that it started
// is over. Grants without a result are given back within two seconds. Nil after ctx or Stop.
func (d *Daemon) Run(ctx context.Context) error {
	if !d.started.CompareAndSwap(false, true) {
		return errors.New("daemon: Run was called twice; make a new Daemon")
	}
	inner, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	d.mu.Lock()
	d.endClient = end
	if d.stopping {
		end()
	}
	d.mu.Unlock()
	over := make(chan struct{})
	quit := context.AfterFunc(ctx, func() {
		defer close(over)
		brief, cancel := context.WithCancel(context.Background())
		cancel() // finish nothing, only give back
		_ = d.wind(brief)
	})
	err := d.client.Run(inner)
	if !quit() {
		<-over
	}
	d.stopJobs(ErrStopped)
	d.work.Wait()
	closed := d.closeState()
	close(d.done)
	if inner.Err() != nil {
		err = nil
	}
	return errors.Join(err, closed)
}

// Stop ends the daemon gracefully: no new work, what hasn't begun is given back, what runs is finished and reported until
// ctx ends, then given back as well. It returns when Run is over; ctx's error when work was cut short.
func (d *Daemon) Stop(ctx context.Context) error {
	err := d.wind(ctx)
	if d.started.Load() {
		<-d.done
	}
	return err
}

// wind is Stop up to the end of the session.
func (d *Daemon) wind(ctx context.Context) error {
	d.mu.Lock()
	d.stopping = true
	l := d.link
	d.mu.Unlock()
	d.log.Info().Msg("stopping: no new jobs are taken")
	err := ctx.Err()
	if err == nil {
		d.giveBack(l, wire.ReleaseShutdown, offered, awaiting)
		if l != nil {
			d.announce(ctx, l)
		}
		err = d.drained(ctx)
	}
	if err != nil {
		d.giveBack(l, wire.ReleaseShutdown, offered, awaiting, running)
	}
	d.stopJobs(ErrStopped)
	d.mu.Lock()
	end := d.endClient
	d.mu.Unlock()
	if end != nil {
		end()
	}
	return err
}

// drained waits until nothing runs and, while there is a session, no result waits for its answer.
func (d *Daemon) drained(ctx context.Context) error {
	for {
		d.mu.Lock()
		idle := d.ledger.busy() == 0 && (d.link == nil || len(d.ledger.byGrant) == 0)
		changed := d.changed
		d.mu.Unlock()
		if idle {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("daemon: stopped before all work was done; it was given back: %w", context.Cause(ctx))
		}
	}
}

// giveBack releases all grants of these phases and waits, at most two seconds, for the relay to know.
func (d *Daemon) giveBack(l *link, reason string, phases ...phase) {
	var grants []wire.Grant
	d.mu.Lock()
	for _, p := range phases {
		for _, w := range d.ledger.in(p) {
			if w.stop != nil {
				w.stop(ErrStopped)
			}
			d.ledger.remove(w)
			grants = append(grants, w.grant)
		}
	}
	d.touch()
	d.mu.Unlock()
	if l == nil || len(grants) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(l.ctx, politeStop)
	defer cancel()
	d.release(ctx, l, grants, reason)
}

// Pause takes no new jobs from now on; what was accepted runs to its end. Safe to call at any time.
func (d *Daemon) Pause() { d.setPaused(true) }

// Resume takes new jobs again after Pause.
func (d *Daemon) Resume() { d.setPaused(false) }

func (d *Daemon) setPaused(paused bool) {
	d.mu.Lock()
	same := d.paused == paused
	d.paused = paused
	l := d.link
	d.mu.Unlock()
	if l != nil && !same {
		d.announce(l.ctx, l)
	}
}

// announce tells the relay what the daemon can do now; it is absolute, so repeating it does no harm.
func (d *Daemon) announce(ctx context.Context, l *link) {
	ctx, cancel := context.WithTimeout(ctx, politeStop)
	defer cancel()
	d.mu.Lock()
	f := wire.Ready{Capabilities: d.capabilities, Slots: d.cfg.Slots, Paused: d.paused || d.stopping}
	d.mu.Unlock()
	_, err := l.conn.Request(ctx, func(dst []byte, id string) []byte {
		f.Head = wire.Head{Type: wire.TypeReady, ID: id}
		b, err := wire.Encode(f)
		if err != nil {
			return nil // not possible: capabilities were checked in New
		}
		return append(dst, b...)
	})
	if err != nil {
		d.log.Warn().Str("error", ask.Saying(err)).Msg("the relay wasn't told whether jobs are wanted; the next hello tells it")
	}
}

// touch wakes who waits for a change. mu is held.
func (d *Daemon) touch() {
	close(d.changed)
	d.changed = make(chan struct{})
}
