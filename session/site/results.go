package site

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"pushrelay/wire"
	"pushrelay/wire/seal"
)

// Why of notices that this package makes itself, beside the relay's deadline, unsealed, lapsed and cancelled.
const (
	WhyCancelled = "cancelled"
	WhyRefused   = "refused" // with the code: the relay lost its memory and doesn't take the job again
)

// Why a result isn't believed.
var (
	// ErrUnverified, within Result.Err, means that a result doesn't prove to be the device's answer to this job.
	ErrUnverified = errors.New("site: the result doesn't verify")
	errDevice     = errors.New("another device than the payload was sealed to")
	errOutcome    = errors.New("the outcome isn't the one that was declared")
	errDeadline   = errors.New("the deadline isn't the job's")
)

// Result is one finished job. Outcome and Ran are set only when it is Verified.
type Result struct {
	JobID       string
	LeaseID     string
	Verified    bool  // signed by the device, for this job, deadline and direction
	Err         error // why not Verified; wraps ErrUnverified
	Outcome     seal.Outcome
	Ran         seal.Ran
	Disposition string // as declared in the clear: ok, error or canceled
	RunnerID    string
	RunnerOwner string
	Device      wire.PublicIdentity
}

// Notice says that a job is over without a result.
type Notice struct {
	JobID string
	Why   string // deadline, unsealed, lapsed, cancelled, or a word of this package
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
		s.log.Warn().Str("error", saying(r.Err)).Str("job", printable(j.JobID)).Msg("a result doesn't verify")
	}
	if !seen {
		if err := guard(func() error { return s.cfg.OnResult(s.calls, r) }); err != nil {
			s.log.Warn().Str("error", saying(err)).Str("job", printable(j.JobID)).Msg("a result wasn't handled; the relay offers it again")
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

// expected holds a result against what is remembered of its job; another process may have submitted it.
func (s *Site) expected(e *entry, leaseID, keyID string, deadlineAt int64) error {
	if e == nil {
		return nil
	}
	if e.deadlineAt != deadlineAt {
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

// notices takes jobs that the relay dropped.
func (s *Site) notices(frame []byte) error {
	f, err := wire.Decode[wire.Notices](frame)
	if err != nil {
		return err
	}
	if len(f.Jobs) > maxQueuedResults {
		return errors.New("site: too many notices at once")
	}
	for _, n := range f.Jobs {
		g := wire.Grant{JobID: n.JobID, LeaseID: n.LeaseID}
		if !s.admit(g, 0) {
			continue
		}
		s.work.Go(func() {
			defer s.leave(g, 0)
			if s.place() {
				defer s.vacate()
				s.notice(g, n)
			}
		})
	}
	return nil
}

func (s *Site) notice(g wire.Grant, n wire.Notice) {
	s.mu.Lock()
	seen := s.handled.seen(g)
	s.mu.Unlock()
	if !seen {
		if err := s.tell(Notice{JobID: n.JobID, Why: n.Why}); err != nil {
			return
		}
	}
	s.mu.Lock()
	if g.LeaseID != "" {
		s.handled.add(g)
	}
	s.finish(n.JobID)
	s.mu.Unlock()
	if g.LeaseID != "" {
		s.collected(g)
	}
}

// noticed tells of an end that this package found out itself; there is nothing to collect.
func (s *Site) noticed(n Notice) {
	s.work.Go(func() {
		if s.place() {
			defer s.vacate()
			_ = s.tell(n) // logged there
		}
	})
}

func (s *Site) tell(n Notice) error {
	if s.cfg.OnNotice != nil {
		if err := guard(func() error { return s.cfg.OnNotice(s.calls, n) }); err != nil {
			s.log.Warn().Str("error", saying(err)).Str("job", printable(n.JobID)).Msg("a notice wasn't handled")
			return err
		}
	}
	s.event(EventNotice, n.JobID, "", n.Why)
	return nil
}

func (s *Site) requeued(frame []byte) error {
	f, err := wire.Decode[wire.Notices](frame)
	if err != nil {
		return err
	}
	for _, n := range f.Jobs {
		s.event(EventRequeued, n.JobID, n.LeaseID, n.Why)
	}
	return nil
}

// collected tells the relay, soon, that a grant is handled.
func (s *Site) collected(g wire.Grant) {
	s.mu.Lock()
	if len(s.toTell) < maxRemembered { // beyond, the relay offers it again
		s.toTell = append(s.toTell, g)
	}
	l := s.link
	s.mu.Unlock()
	if l != nil {
		poke(l.collect)
	}
}

// collector sends what was handled; while one frame is under way the next one gathers.
func (s *Site) collector(l *link) {
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-l.collect:
		}
		for s.collectSome(l) {
		}
	}
}

func (s *Site) collectSome(l *link) bool {
	s.mu.Lock()
	n := min(len(s.toTell), wire.MaxList)
	batch := append([]wire.Grant(nil), s.toTell[:n]...)
	s.telling = n
	s.mu.Unlock()
	if n == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(l.ctx, requestPatience)
	defer cancel()
	_, err := request[wire.OKReply](ctx, l, func(dst []byte, id string) []byte {
		return wire.AppendGrants(dst, wire.TypeCollected, id, batch)
	})
	s.mu.Lock()
	s.telling = 0
	if !ended(err) { // else the next session tells it
		s.toTell = s.toTell[n:]
	}
	if len(s.toTell) == 0 {
		s.toTell = nil
	}
	s.touch()
	s.mu.Unlock()
	if err != nil {
		if !ended(err) {
			s.log.Warn().Str("error", saying(err)).Int("jobs", n).Msg("handled results couldn't be collected; the relay offers them again")
		}
		return false
	}
	for _, g := range batch {
		s.event(EventCollected, g.JobID, g.LeaseID, "")
	}
	return true
}
