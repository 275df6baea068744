package site

import (
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"pushrelay/session/internal/ask"
	"pushrelay/wire"
	"pushrelay/wire/seal"
)

// Why a result isn't believed.
var (
	// ErrUnverified, within Result.Err, means that a result doesn't prove to be the device's answer to this job.
	ErrUnverified = errors.New("site: the result doesn't verify")
	errDevice     = errors.New("another device than the payload was sealed to")
	errOutcome    = errors.New("the outcome isn't the one that was declared")
	errDeadline   = errors.New("the deadline is neither the job's nor one that a polling device set since: it was published with another one before, or this machine's clock is wrong")
)

// Result is one finished job. Outcome and Ran are set only when it is Verified.
type Result struct {
	JobID       string
	LeaseID     string
	Verified    bool  // signed by the device, for this job and direction, with a deadline that fits
	Err         error // why not Verified; wraps ErrUnverified
	Outcome     seal.Outcome
	Ran         seal.Ran
	Disposition string // as declared in the clear: ok, error or canceled
	RunnerID    string
	RunnerOwner string
	Device      wire.PublicIdentity
}

// finished names a job whose result was told; its id alone could be used again.
type finished struct {
	jobID      string
	deadlineAt int64
}

// results takes finished jobs; each is handled on a goroutine of its own.
func (s *Site) results(frame []byte) error {
	f, err := wire.Decode[wire.Results](frame)
	if err != nil {
		return err
	}
	if len(f.Jobs) > wire.MaxList {
		return errors.New("site: too many results at once")
	}
	dropped := 0
	for _, j := range f.Jobs {
		g := wire.Grant{JobID: j.JobID, LeaseID: j.LeaseID}
		if !s.admit(g, len(j.Envelope)) {
			dropped++
			continue
		}
		s.work.Go(func() {
			defer s.leave(g, len(j.Envelope))
			if s.place() {
				defer s.vacate()
				s.result(g, j)
			}
		})
	}
	if dropped > 0 {
		s.log.Info().Int("results", dropped).Msg("results are being handled already or are too many; the relay offers them again")
	}
	return nil
}

// admit takes one result or notice into work, unless it is there already or too much is.
func (s *Site) admit(g wire.Grant, size int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, working := s.busy[g]; working || len(s.busy) >= maxQueuedResults || s.queued+size > maxQueuedBytes {
		return false
	}
	s.busy[g] = struct{}{}
	s.queued += size
	return true
}

func (s *Site) leave(g wire.Grant, size int) {
	s.mu.Lock()
	delete(s.busy, g)
	s.queued -= size
	s.touch()
	s.mu.Unlock()
}

// place waits for room for a callback; false when the site stops.
func (s *Site) place() bool {
	select {
	case s.places <- struct{}{}:
		return true
	case <-s.calls.Done():
		return false
	}
}

func (s *Site) vacate() { <-s.places }

// result verifies one result, calls back and collects.
func (s *Site) result(g wire.Grant, j wire.ResultJob) {
	s.mu.Lock()
	seen := s.handled.seen(g)
	e := s.jobs[j.JobID]
	s.mu.Unlock()
	if seen {
		s.collected(g)
		return
	}
	r, key := s.verify(e, j)
	if r.Verified {
		s.mu.Lock()
		seen = s.handled.seen(key)
		s.mu.Unlock()
	} else {
		s.log.Warn().Str("error", ask.Saying(r.Err)).Str("job", ask.Printable(j.JobID)).Msg("a result doesn't verify")
	}
	if !seen {
		if err := guard(func() error { return s.cfg.OnResult(s.calls, r) }); err != nil {
			s.unhandled(err).Str("error", ask.Saying(err)).Str("job", ask.Printable(j.JobID)).Msg("a result wasn't handled; the relay offers it again")
			return
		}
		s.event(EventResult, j.JobID, j.LeaseID, j.Disposition)
	}
	s.mu.Lock()
	s.handled.add(g)
	if r.Verified {
		s.handled.add(key)
	}
	s.finish(j.JobID)
	s.mu.Unlock()
	s.collected(g)
}

// finish forgets a job that has its end. mu is held.
func (s *Site) finish(jobID string) {
	e := s.jobs[jobID]
	if e == nil {
		return
	}
	delete(s.jobs, jobID)
	e.settle(Submitted{JobID: jobID, State: "done"})
}

// errPanicked names a panic by its type alone: its value may quote a result.
var errPanicked = errors.New("site: a callback panicked")

// guard turns a panic of a callback into an error.
func guard(call func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %T\n%s", errPanicked, p, debug.Stack())
		}
	}()
	return call()
}

func (s *Site) verify(e *entry, j wire.ResultJob) (Result, finished) {
	r := Result{
		JobID: j.JobID, LeaseID: j.LeaseID, Disposition: j.Disposition, RunnerID: j.RunnerID, RunnerOwner: j.RunnerOwner,
		Device: j.Device,
	}
	opened, deadlineAt, err := s.open(e, j)
	if err != nil {
		r.Err = fmt.Errorf("%w: %w", ErrUnverified, err)
		return r, finished{}
	}
	r.Verified, r.Outcome, r.Ran = true, opened.Outcome, opened.Ran
	return r, finished{j.JobID, deadlineAt}
}

func (s *Site) open(e *entry, j wire.ResultJob) (seal.Result, int64, error) {
	keyID, err := s.device(j.RunnerID, j.Device)
	if err != nil {
		return seal.Result{}, 0, err
	}
	env, err := wire.ParseEnvelope(j.Envelope)
	if err != nil {
		return seal.Result{}, 0, err
	}
	if err := s.expected(e, j.LeaseID, keyID, env.DeadlineAt); err != nil {
		return seal.Result{}, 0, err
	}
	keys := s.cfg.Keys
	for _, k := range s.cfg.Previous {
		if k.KeyID() == env.RecipientKeyID {
			keys = k
		}
	}
	plain, err := seal.Open(keys, j.Device, seal.Expected{JobID: j.JobID, Direction: wire.DirectionResult}, env)
	if err != nil {
		return seal.Result{}, 0, err
	}
	got, err := seal.ParseResult(plain)
	if err == nil && got.Outcome.Outcome != j.Disposition {
		err = errOutcome
	}
	return got, env.DeadlineAt, err
}

// Devices that poll sign another deadline than the job's: their own time of sealing and a day.
const (
	pollersDeadline = 24 * time.Hour
	clockTolerance  = 10 * time.Minute // between the device's clock and ours
)

// pollers reports whether a deadline is one that a polling device set between the job's submission and now. An older
// result of the same device, for an earlier job with this id, has an earlier one.
func (e *entry) pollers(deadlineAt int64, now time.Time) bool {
	sealed := time.UnixMilli(deadlineAt).Add(-pollersDeadline)
	return !sealed.Before(e.submittedAt.Add(-clockTolerance)) && !sealed.After(now.Add(clockTolerance))
}

// expected holds a result against what is remembered of its job; another process may have submitted it.
func (s *Site) expected(e *entry, leaseID, keyID string, deadlineAt int64) error {
	if e == nil {
		return nil
	}
	if e.deadlineAt != deadlineAt && !e.pollers(deadlineAt, time.Now()) {
		return errDeadline
	}
	s.mu.Lock()
	to, ours := e.sealedTo[leaseID]
	s.mu.Unlock()
	if ours && to != keyID {
		return errDevice
	}
	return nil
}
