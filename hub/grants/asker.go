package grants

import (
	"context"
	"crypto/ed25519"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"pushrelay/wire"
)

const (
	shutFirst = 500 * time.Millisecond // after the first failure of the endpoint, doubling
	shutMost  = 15 * time.Second
	warnEvery = 10 * time.Second // of grants that are worth nothing: a wrong key makes every one so
)

// Config says whom an Asker asks. Endpoint, Key and Now are required.
type Config struct {
	Endpoint Endpoint
	Key      ed25519.PublicKey // the control plane's
	Now      func() time.Time  // by which grants are fresh
	Timeout  time.Duration     // of one request; 0 means 2 s
	Parallel int               // requests at once; 0 means 8
	Log      zerolog.Logger
	// Told hears what became of questions; nil counts nothing. It must not block.
	Told func(o Outcome, n int)
	// Again is called when the endpoint may be asked again after failures; it must not block. May be nil.
	Again func()
}

// Asker asks in batches. Make one with New, end it with Close.
type Asker struct {
	// Immutable.
	cfg  Config
	ctx  context.Context //nolint:containedctx // of all requests: it ends with Close
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu      sync.Mutex
	line    []question
	workers int
	closed  bool
	fails   int       // in a row
	shut    time.Time // until then nobody asks
	since   time.Time // of the first of these failures
	reopen  *time.Timer
	warned  time.Time
}

// question is what one runner claimed at once.
type question struct {
	runner *wire.GrantRunner
	at     time.Time
	done   func([]Verdict)
}

// New makes an Asker that works at once.
func New(cfg Config) (*Asker, error) {
	if cfg.Endpoint == nil || cfg.Now == nil || len(cfg.Key) != ed25519.PublicKeySize {
		return nil, errors.New("grants: Endpoint, Key and Now are required")
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = 2 * time.Second
	}
	if cfg.Parallel <= 0 {
		cfg.Parallel = 8
	}
	if cfg.Told == nil {
		cfg.Told = func(Outcome, int) {}
	}
	a := &Asker{cfg: cfg}
	a.ctx, a.stop = context.WithCancel(context.Background())
	return a, nil
}

// Within is the longest that an answer takes: a question waits for one request of others, and then for its own.
func (a *Asker) Within() time.Duration { return 2 * a.cfg.Timeout }

// Open reports whether asking makes sense just now. While it doesn't, claims that need a grant would be in vain.
func (a *Asker) Open() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.openLocked()
}

func (a *Asker) openLocked() bool { return a.fails == 0 || !time.Now().Before(a.shut) }

// Submit asks for what one runner claimed, at most wire.MaxGrantJobs jobs; done gets a verdict for each, in order, once, on a
// goroutine of the Asker's, or after Close on the caller's. Submit doesn't block on anything else.
func (a *Asker) Submit(r *wire.GrantRunner, done func([]Verdict)) {
	a.mu.Lock()
	closed := a.closed
	if !closed {
		a.line = append(a.line, question{r, time.Now(), done})
		if a.workers < a.cfg.Parallel {
			a.workers++
			a.wg.Go(a.work)
		}
	}
	a.mu.Unlock()
	if closed {
		done(make([]Verdict, len(r.Jobs)))
	}
}

// Close ends all requests and declines whatever waits; it returns when everybody was told.
func (a *Asker) Close() {
	a.mu.Lock()
	a.closed = true
	if a.reopen != nil {
		a.reopen.Stop()
	}
	a.mu.Unlock()
	a.stop()
	a.wg.Wait()
}

// work asks batch after batch until nothing waits.
func (a *Asker) work() {
	for {
		batch, late := a.next()
		if len(batch) == 0 && len(late) == 0 {
			return
		}
		a.deny(late)
		if len(batch) > 0 {
			a.ask(batch)
		}
	}
}

// next takes the oldest questions, as many as fit into one request; those that waited too long, or that come while the
// endpoint fails or after Close, are late. Nothing ends the worker.
func (a *Asker) next() (batch, late []question) {
	a.mu.Lock()
	defer a.mu.Unlock()
	open := a.openLocked() && !a.closed
	jobs, n := 0, 0
	for _, q := range a.line {
		if !open || time.Since(q.at) > a.cfg.Timeout {
			late = append(late, q)
			n++
			continue
		}
		if jobs += len(q.runner.Jobs); jobs > wire.MaxGrantJobs && len(batch) > 0 {
			break
		}
		batch = append(batch, q)
		n++
	}
	clear(a.line[:n])
	a.line = a.line[n:]
	if n == 0 {
		a.workers--
		a.line = nil
	}
	return batch, late
}

func (a *Asker) deny(list []question) {
	for _, q := range list {
		a.cfg.Told(Failed, len(q.runner.Jobs))
		q.done(make([]Verdict, len(q.runner.Jobs)))
	}
}

// ask makes one request and gives everybody their verdicts.
func (a *Asker) ask(batch []question) {
	runners := make([]*wire.GrantRunner, len(batch))
	for i := range batch {
		runners[i] = batch[i].runner
	}
	ctx, cancel := context.WithTimeout(a.ctx, a.cfg.Timeout)
	answers, err := a.cfg.Endpoint.Ask(ctx, runners)
	cancel()
	if err != nil {
		a.failed(err)
		a.deny(batch)
		return
	}
	a.worked()
	byLease := make(map[string]*wire.GrantAnswer, len(answers))
	for i := range answers {
		byLease[answers[i].LeaseID] = &answers[i]
	}
	for _, q := range batch {
		verdicts := make([]Verdict, len(q.runner.Jobs))
		for i := range q.runner.Jobs {
			var o Outcome
			verdicts[i], o = a.judge(q.runner, &q.runner.Jobs[i], byLease[q.runner.Jobs[i].LeaseID])
			a.cfg.Told(o, 1)
		}
		q.done(verdicts)
	}
}

// judge verifies one answer; nil is none.
func (a *Asker) judge(r *wire.GrantRunner, j *wire.GrantJob, answer *wire.GrantAnswer) (Verdict, Outcome) {
	switch {
	case answer == nil:
		return Verdict{}, Failed
	case answer.Decline == wire.DeclinePermanent:
		return Verdict{Never: true}, Forbidden
	case answer.Decline != "":
		return Verdict{}, Declined
	}
	err := answer.Err
	if err == nil {
		err = answer.Grant.Check(a.cfg.Key, j.Stub, r.Owner, a.cfg.Now().UnixMilli(), relayMaxAgeMs)
	}
	if err == nil && !serves(r, j.Stub.Kind, answer.Grant.Service) {
		err = errService
	}
	if err != nil {
		a.warn(r, j, err)
		return Verdict{}, Invalid
	}
	return Verdict{Grant: answer.Grant}, Signed
}

func (a *Asker) warn(r *wire.GrantRunner, j *wire.GrantJob, err error) {
	a.mu.Lock()
	quiet := !a.warned.IsZero() && time.Since(a.warned) < warnEvery
	if !quiet {
		a.warned = time.Now()
	}
	a.mu.Unlock()
	if !quiet {
		a.cfg.Log.Warn().Str("event", "grant-invalid").Str("why", err.Error()).Str("job", j.Stub.ID).Str("site", j.SiteID).
			Str("runner", r.RunnerID).Msg("the control plane answered with a grant that is worth nothing; it isn't passed on")
	}
}

var errService = errors.New("grants: the device has no such service for this kind")

func serves(r *wire.GrantRunner, kind, service string) bool {
	for i := range r.Capabilities {
		if c := &r.Capabilities[i]; c.Kind == kind && c.Service == service {
			return true
		}
	}
	return false
}

// failed shuts the endpoint for a while, longer each time. An outage is told once.
func (a *Asker) failed(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return
	}
	a.fails++
	first := a.fails == 1
	if first {
		a.since = time.Now()
	}
	if !first && time.Now().Before(a.shut) {
		return // of a request that was under way: it counts as the same failure
	}
	wait := min(shutFirst<<min(a.fails-1, 10), shutMost)
	wait = wait/2 + rand.N(wait/2+1)
	a.shut = time.Now().Add(wait)
	if a.reopen != nil {
		a.reopen.Stop()
	}
	if a.cfg.Again != nil {
		a.reopen = time.AfterFunc(wait, a.cfg.Again)
	}
	if first {
		a.cfg.Log.Error().Err(err).Str("event", "grants-failing").Msg("the grant endpoint fails; jobs that need a grant wait until it is back")
	}
}

func (a *Asker) worked() {
	a.mu.Lock()
	fails, since := a.fails, a.since
	a.fails = 0
	a.mu.Unlock()
	if fails > 0 {
		a.cfg.Log.Info().Str("event", "grants-working").Int("failed", fails).
			Str("after", time.Since(since).Round(time.Millisecond).String()).Msg("the grant endpoint works again")
	}
}
