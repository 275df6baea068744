package site

import (
	"context"
	"errors"
	"fmt"
	"time"

	"pushrelay/session"
	"pushrelay/session/internal/ask"
	"pushrelay/wire"
)

// ErrPending means that the relay hasn't answered yet: the job stays with this Site and is published as soon as it can be.
var ErrPending = errors.New("site: not published yet; it will be when there is a session, unless it is cancelled")

// Submitted is what became of one submitted job.
type Submitted struct {
	JobID string
	State string // queued, awaiting-payload, ready, running or done; done means that an earlier submission was finished
	Err   error  // a *wire.Error when the relay refused, ErrPending when ctx ended first
}

// Submit publishes jobs and waits until the relay answered for each, or ctx ends. Submitting a job again is harmless: a
// known id answers the state of what is published, unchanged. The answers are in the order of the jobs.
func (s *Site) Submit(ctx context.Context, jobs ...Job) []Submitted { return s.Begin(jobs...)(ctx) }

// Begin is Submit in two steps, for who has more to publish while a relay is away: it takes the jobs, in the order of its
// calls and without blocking, and what it answers waits as Submit does.
func (s *Site) Begin(jobs ...Job) (wait func(context.Context) []Submitted) {
	entries := make([]*entry, len(jobs))
	out := make([]Submitted, len(jobs))
	for i, j := range jobs {
		e, err := s.newEntry(j)
		out[i] = Submitted{JobID: e.id, Err: err}
		if err == nil {
			entries[i] = e
		}
	}
	s.register(entries)
	return func(ctx context.Context) []Submitted {
		for i, e := range entries {
			if e != nil {
				out[i] = s.wait(ctx, e)
			}
		}
		return out
	}
}

// register puts jobs into the book; one that is there already takes the place of its copy.
func (s *Site) register(entries []*entry) {
	s.mu.Lock()
	for i, e := range entries {
		if e == nil {
			continue
		}
		if known := s.jobs[e.id]; known != nil {
			entries[i] = known
			continue
		}
		s.seq++
		e.seq = s.seq
		s.jobs[e.id] = e
		s.unsent = append(s.unsent, e)
	}
	l := s.link
	s.mu.Unlock()
	if l != nil {
		poke(l.enqueue)
	}
}

func (s *Site) wait(ctx context.Context, e *entry) Submitted {
	select {
	case <-e.answered:
	case <-ctx.Done():
		return s.answered(e, fmt.Errorf("%w (%w)", ErrPending, context.Cause(ctx)))
	case <-s.over:
		return s.answered(e, ErrStopped)
	}
	return s.answered(e, nil)
}

// answered is the relay's answer, or otherwise when there is none.
func (s *Site) answered(e *entry, otherwise error) Submitted {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !e.told {
		return Submitted{JobID: e.id, Err: otherwise}
	}
	return e.answer
}

// enqueuer publishes what waits, as many jobs at once as a frame may carry.
func (s *Site) enqueuer(l *link) {
	for {
		batch, later := s.nextBatch(l)
		if len(batch) > 0 {
			s.enqueue(l, batch)
			continue
		}
		var again <-chan time.Time
		if later > 0 {
			again = time.After(later)
		}
		select {
		case <-l.ctx.Done():
			return
		case <-l.enqueue:
		case <-again:
		}
	}
}

// nextBatch takes up to 256 jobs; later is when the next one may be tried, when none may now.
func (s *Site) nextBatch(l *link) (batch []*entry, later time.Duration) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := s.unsent[:0]
	for i, e := range s.unsent {
		switch {
		case len(batch) == wire.MaxList:
			rest = append(rest, s.unsent[i])
		case s.jobs[e.id] != e || e.known || e.withdrawn || e.sender == l: // over, or on its way
		case now.Before(e.retryAt):
			rest = append(rest, e)
			if wait := e.retryAt.Sub(now); later == 0 || wait < later {
				later = wait
			}
		default:
			e.sender = l
			batch = append(batch, e)
		}
	}
	clear(s.unsent[len(rest):])
	s.unsent = rest
	return batch, later
}

func (s *Site) enqueue(l *link, batch []*entry) {
	stubs := make([][]byte, len(batch))
	size := 0
	for i, e := range batch {
		stubs[i] = e.stub
		size += len(e.stub) + 1
	}
	var raw []byte
	var err error
	if size > bulkOver {
		raw, err = l.conn.RequestBulk(l.ctx, func(id string) [][]byte {
			return [][]byte{wire.AppendEnqueue(make([]byte, 0, size+128), id, stubs)}
		})
	} else {
		raw, err = l.conn.Request(l.ctx, func(dst []byte, id string) []byte { return wire.AppendEnqueue(dst, id, stubs) })
	}
	var reply wire.EnqueueReply
	if err == nil {
		if reply, err = ask.Read[wire.EnqueueReply](raw); err == nil && len(reply.Jobs) != len(batch) {
			err = errors.New("site: the relay answered for another number of jobs than were sent")
		}
	}
	if ended(err) {
		return // the next session enqueues them again
	}
	for i, e := range batch {
		if err != nil {
			s.refused(l, e, err)
			continue
		}
		s.answer(l, e, reply.Jobs[i])
	}
}

// answer takes the relay's word on one job.
func (s *Site) answer(l *link, e *entry, a wire.EnqueueState) {
	if a.Error != "" || a.State == "" {
		s.refused(l, e, &wire.Error{
			Code: wire.ErrorCode(a.Error), Message: a.Message, ServerTime: a.ServerTime, RetryAfter: a.RetryAfter,
		})
		return
	}
	s.mu.Lock()
	e.known, e.sender = true, nil
	s.touch()
	e.settle(Submitted{JobID: e.id, State: a.State})
	s.mu.Unlock()
	s.event(EventEnqueued, e.id, "", a.State)
}

// settle answers who waits in Submit, once. mu is held.
func (e *entry) settle(a Submitted) {
	if !e.told {
		e.told, e.answer = true, a
		close(e.answered)
	}
}

// refused handles a job that the relay didn't take. A relay in trouble is asked again. Otherwise whoever waits in Submit
// decides; a job that was published before, and again because the relay lost its memory, waits for room or is over.
func (s *Site) refused(l *link, e *entry, err error) {
	code := string(wire.AsError(err).Code)
	s.mu.Lock()
	before := e.told
	e.sender = nil
	s.touch()
	if ask.Passing(err) && (before || wire.AsError(err).Code == wire.CodeServerError) {
		e.retryAt = time.Now().Add(ask.Pause(1, err))
		s.unsent = append(s.unsent, e)
		s.mu.Unlock()
		poke(l.enqueue)
		return
	}
	if s.jobs[e.id] == e {
		delete(s.jobs, e.id)
	}
	e.settle(Submitted{JobID: e.id, Err: err})
	s.mu.Unlock()
	s.event(EventRefused, e.id, "", code)
	if before {
		s.noticed(Notice{JobID: e.id, Why: WhyRefused + ": " + code})
	}
}

// Cancel asks the relay to stop jobs and answers for each whether it knows it; it waits for a session, and for a relay in
// trouble, until ctx ends. A
// cancelled job still ends with a result or a notice. Jobs that were never published are over at once, and true.
func (s *Site) Cancel(ctx context.Context, jobIDs ...string) ([]bool, error) {
	out := make([]bool, 0, len(jobIDs))
	for len(jobIDs) > 0 {
		n := min(len(jobIDs), wire.MaxList)
		got, err := s.cancelSome(ctx, jobIDs[:n])
		if err != nil {
			return out, err
		}
		out = append(out, got...)
		jobIDs = jobIDs[n:]
	}
	return out, nil
}

func (s *Site) cancelSome(ctx context.Context, ids []string) ([]bool, error) {
	var over *link
	for {
		l, err := s.linked(ctx, over)
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		if !s.withdraw(ctx, l, ids) {
			continue // the session, or ctx, ended
		}
		reply, err := ask.Request[wire.CancelReply](ctx, l.conn, maxTries, func(dst []byte, id string) []byte {
			return wire.AppendCancelJobs(dst, id, ids)
		})
		if err == nil && len(reply.Cancelled) != len(ids) {
			return nil, errors.New("site: the relay answered for another number of jobs than were cancelled")
		}
		if err == nil {
			return s.cancelled(ids, reply.Cancelled), nil
		}
		switch {
		case ctx.Err() != nil:
			return nil, err
		case errors.Is(err, session.ErrEnded):
			over = l
		case ask.Passing(err): // the jobs are withheld until the relay says what it knows of them
			_ = ask.Sleep(ctx, ask.Pause(maxTries, err))
		case !ended(err):
			return nil, err
		}
	}
}

// withdraw keeps jobs from being enqueued from now on and waits for the answers of what is on its way: a cancel that
// overtakes its job would be lost. False when the session ended first.
func (s *Site) withdraw(ctx context.Context, l *link, ids []string) bool {
	for {
		s.mu.Lock()
		under := false
		for _, id := range ids {
			if e := s.jobs[id]; e != nil {
				e.withdrawn = true
				under = under || e.sender == l
			}
		}
		changed := s.changed
		s.mu.Unlock()
		if !under {
			return true
		}
		select {
		case <-changed:
		case <-l.ctx.Done():
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// cancelled drops jobs that the relay doesn't know and this Site has not published.
func (s *Site) cancelled(ids []string, known []bool) []bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, id := range ids {
		if e := s.jobs[id]; e != nil && !known[i] && !e.known && e.sender == nil {
			delete(s.jobs, id)
			e.settle(Submitted{JobID: id, Err: ErrWithdrawn})
			known[i] = true
		}
	}
	return known
}

// ErrWithdrawn answers a Submit whose job was cancelled before it was published.
var ErrWithdrawn = errors.New("site: cancelled before it was published")
