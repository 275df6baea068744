package daemon

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"pushrelay/session/internal/ask"
	"pushrelay/wire"
	"pushrelay/wire/seal"
)

const (
	maxDown     = 1024 // jobs remembered as given back once
	maxSaid     = 8 << 10
	unknownWhat = "unknown"
)

// perform does one grant's work from its payload to its result.
func (d *Daemon) perform(ctx context.Context, l *link, w *work, view sites, envelope []byte) {
	got, err := d.open(w, view, envelope)
	if err != nil {
		d.grantLog(w.grant).Str("error", ask.Saying(err)).Msg("a payload doesn't verify and was not run")
		d.handBack(l, w, wire.ReleaseRefused)
		return
	}
	if deadline := time.UnixMilli(got.deadlineAt); l.serverNow().After(deadline) {
		d.grantLog(w.grant).Msg("a payload came after its job's deadline and was not run")
		d.handBack(l, w, wire.ReleaseRefused)
		return
	}
	d.event(EventStarted, w.grant, w.stub.Kind, "")
	start := time.Now()
	answer, err := d.call(ctx, job(w, got))
	took := time.Since(start)
	if cause := context.Cause(ctx); errors.Is(cause, ErrLost) || errors.Is(cause, ErrStopped) {
		return // nothing is reported; who stopped it gave the grant back
	}
	if errors.Is(err, ErrUnavailable) && d.firstTimeDown(w) {
		d.grantLog(w.grant).Str("error", why(err)).Msg("the backend is down; the job was given back")
		d.handBack(l, w, wire.ReleaseBackendDown)
		return
	}
	outcome := d.outcome(ctx, w, answer, err)
	if outcome.Code != "" {
		d.grantLog(w.grant).Str("code", outcome.Code).Msg("the job failed; its site is told why")
	}
	d.finish(w, got.sender, seal.Result{Outcome: outcome, Ran: d.ran(w, answer, took)})
}

func job(w *work, got opened) Job {
	return Job{
		Grant: w.grant, Kind: w.stub.Kind, Owner: w.stub.Owner, Site: w.stub.Site, Purpose: w.stub.Purpose, Service: w.service(),
		Size: w.stub.SizeClass, Deadline: time.UnixMilli(got.deadlineAt), Prompt: got.prompt,
	}
}

// call runs the Runner; its panic costs one job, not the daemon.
func (d *Daemon) call(ctx context.Context, j Job) (a Answer, err error) {
	defer func() {
		if p := recover(); p != nil {
			d.log.Error().Str("stack", string(debug.Stack())).Msg("the runner panicked; the job fails")
			err = &RunError{Code: "runner-panic", Message: "the device's runner failed; try again later", Retryable: true}
		}
	}()
	if err := ctx.Err(); err != nil {
		return Answer{}, err // stopped before it began
	}
	return d.cfg.Run.Run(ctx, j)
}

// why is a runner's error for a log line; a RunError's message may quote the job, so that only its code is told.
func why(err error) string {
	var e *RunError
	if errors.As(err, &e) {
		return ask.Printable(e.Code)
	}
	return ask.Saying(err)
}

// firstTimeDown says whether the job wasn't given back for a backend before.
func (d *Daemon) firstTimeDown(w *work) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, again := d.down[w.key()]; again || w.canceled {
		delete(d.down, w.key())
		return false
	}
	if len(d.down) >= maxDown {
		clear(d.down)
	}
	d.down[w.key()] = struct{}{}
	return true
}

// outcome is what the site is told. A runner that answered although it was cancelled did the work: that stands.
func (d *Daemon) outcome(ctx context.Context, w *work, a Answer, err error) seal.Outcome {
	if err == nil {
		d.mu.Lock()
		delete(d.down, w.key())
		d.mu.Unlock()
		return seal.OK(a.Text)
	}
	if errors.Is(context.Cause(ctx), ErrCanceled) {
		return seal.Canceled()
	}
	var e *RunError
	if errors.As(err, &e) && e.Code != "" {
		return seal.Failed(said(e.Code, unknownWhat), said(e.Message, e.Code), e.Retryable)
	}
	return seal.Failed("failed", said(err.Error(), "the job failed"), true)
}

// said bounds a text of a runner and never leaves it empty.
func said(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s[:min(len(s), maxSaid)]
}

func (d *Daemon) ran(w *work, a Answer, took time.Duration) seal.Ran {
	c, _ := d.service(w.stub.Kind, w.service()) // it was one when the job was taken
	r := seal.Ran{Model: a.Model, BackendClass: a.Backend, DurationMs: took.Milliseconds()}
	if r.Model == "" {
		r.Model = c.Model
	}
	if d.cfg.Dialect != wire.Dialect0 { // which doesn't know the member
		r.Stop = a.Stop
	}
	if r.BackendClass != "http" && r.BackendClass != "process" {
		r.BackendClass = c.BackendClass
	}
	return r
}

// handBack gives a grant back that won't be run, unless it is gone already.
func (d *Daemon) handBack(l *link, w *work, reason string) {
	d.mu.Lock()
	held := d.ledger.byGrant[w.grant] == w
	d.ledger.remove(w)
	if d.link != nil {
		l = d.link // a newer session, perhaps
	}
	d.touch()
	d.mu.Unlock()
	if held {
		d.releaseSoon(l, []wire.Grant{w.grant}, reason)
	}
}

// finish seals a result, keeps it and sends it.
func (d *Daemon) finish(w *work, sender wire.PublicIdentity, r seal.Result) {
	d.mu.Lock()
	to, listed := d.sites.recipient(sender)
	d.mu.Unlock()
	if !listed {
		to = sender // the relay decides what becomes of it
	}
	rec, envelope, err := d.sealed(w.grant, w.stub, to, r)
	if err != nil {
		d.grantLog(w.grant).Str("error", ask.Saying(err)).Msg("a result can't be sealed; the job is given back")
		d.handBack(nil, w, wire.ReleaseRefused)
		return
	}
	if !d.keep(w, rec, envelope) {
		return
	}
	d.event(EventFinished, w.grant, w.stub.Kind, rec.Disposition)
	d.mu.Lock()
	l := d.link
	d.mu.Unlock()
	if l != nil {
		d.sendSoon(l, w)
	}
}

// keep writes a result down and makes the work finished; false when the grant was lost meanwhile.
func (d *Daemon) keep(w *work, rec *record, envelope []byte) bool {
	if err := d.history.add(w.grant); err != nil {
		d.log.Error().Str("error", ask.Saying(err)).Msg("a finished grant can't be recorded; make room in StateDir")
	}
	if err := d.shelf.put(rec, envelope); err != nil {
		d.log.Error().Str("error", ask.Saying(err)).Msg("a result is kept in memory only; make room in StateDir")
		rec.kept = envelope
	}
	d.mu.Lock()
	held := d.ledger.byGrant[w.grant] == w
	if held {
		w.phase, w.result, w.stop = finished, rec, nil
	}
	d.touch()
	d.mu.Unlock()
	if !held {
		d.forget(w)
	}
	return held
}

// sealed makes the record of a result. One that is too large becomes an error that says so.
func (d *Daemon) sealed(g wire.Grant, stub wire.Stub, to wire.PublicIdentity, r seal.Result) (*record, []byte, error) {
	envelope, err := d.sealResult(g, stub, to, r)
	if errors.Is(err, seal.ErrTooLarge) {
		r.Outcome = seal.Failed("result-too-large", "the answer is larger than the relay carries; ask for a shorter one", false)
		envelope, err = d.sealResult(g, stub, to, r)
	}
	if errors.Is(err, seal.ErrBadPlaintext) || errors.Is(err, seal.ErrNotText) {
		r.Outcome = seal.Failed("bad-result", "the device's runner gave an answer that can't be sent", false)
		r.Ran = seal.Ran{Model: unknownWhat, BackendClass: "process"}
		envelope, err = d.sealResult(g, stub, to, r)
	}
	if err != nil {
		return nil, nil, err
	}
	return &record{
		Version: recordVersion, Grant: g, Site: stub.Site, SealedTo: to, DeadlineAt: stub.DeadlineAt,
		Disposition: r.Outcome.Outcome, size: len(envelope),
	}, envelope, nil
}

func (d *Daemon) sealResult(g wire.Grant, stub wire.Stub, to wire.PublicIdentity, r seal.Result) ([]byte, error) {
	if len(r.Outcome.Text) > wire.MaxEnvelopeBytes {
		return nil, seal.ErrTooLarge
	}
	plain, err := r.Encode()
	if err != nil {
		return nil, err
	}
	e, err := seal.Seal(d.cfg.Keys, to, seal.Context{
		JobID: g.JobID, Direction: wire.DirectionResult, DeadlineAt: stub.DeadlineAt,
	}, plain)
	if err != nil {
		return nil, fmt.Errorf("daemon: sealing: %w", err)
	}
	return e.Raw, nil
}
