package disk

import (
	"time"

	"pushrelay/store"
)

// Bounds of a group. Bytes are of the envelopes that it brings; one operation always fits.
const (
	groupOps   = 512
	groupBytes = 32 << 20
)

// work is the committer.
func (s *Store) work() {
	defer s.shut()
	var pending []*op
	for {
		var open bool
		if pending, open = s.queue.take(pending); !open {
			for _, o := range pending {
				s.answer(o, store.ErrUnavailable)
			}
			return
		}
		pending = s.reads(pending)
		if len(pending) > 0 {
			pending = s.group(pending)
			continue
		}
		<-s.queue.wake
	}
}

// reads answers what changes nothing that is kept, from the committed state, and keeps the rest.
func (s *Store) reads(pending []*op) []*op {
	rest := pending[:0]
	for _, o := range pending {
		if o.keeps {
			rest = append(rest, o)
			continue
		}
		if !o.state.CompareAndSwap(waiting, taken) {
			continue
		}
		s.m.Begin(s.clock())
		o.run(s.m)
		s.watchers.Publish(s.m.Events())
		s.answer(o, nil)
	}
	clear(pending[len(rest):])
	return rest
}

// group runs the first operations that wait, commits what they changed and answers them. It answers the others.
func (s *Store) group(pending []*op) []*op {
	n := 0
	for bytes := 0; n < min(len(pending), groupOps); n++ {
		if bytes += pending[n].bytes; n > 0 && bytes > groupBytes {
			break
		}
	}
	group := pending[:n]
	if s.out.err != nil && !s.retry() {
		for _, o := range group {
			s.answer(o, store.ErrUnavailable)
		}
	} else {
		s.attempt(group)
	}
	rest := append(pending[:0], pending[n:]...)
	clear(pending[len(rest):])
	return rest
}

// attempt runs a group and commits it. Nothing of it is left when that fails.
func (s *Store) attempt(group []*op) {
	s.events = s.events[:0]
	s.m.BeginGroup()
	for _, o := range group {
		if !o.state.CompareAndSwap(waiting, taken) {
			continue
		}
		s.m.Begin(s.clock())
		o.run(s.m)
		s.events = append(s.events, s.m.Events()...)
	}
	var err error
	if s.m.Changed() || s.out.err != nil {
		err = s.commit(s.fill)
	}
	if err != nil {
		s.m.UndoGroup()
		s.failed(err)
		for _, o := range group {
			s.answer(o, store.ErrUnavailable)
		}
		return
	}
	s.m.EndGroup()
	if s.out.err != nil {
		s.recovered()
	}
	s.watchers.Publish(s.events)
	if cap(s.events) > 4096 {
		s.events = nil
	}
	for _, o := range group {
		s.answer(o, nil)
	}
}

// answer tells a caller how its operation went. Whoever waits for an envelope's text gets a transaction that sees it.
func (s *Store) answer(o *op, err error) {
	if o.state.Load() != taken && !o.state.CompareAndSwap(waiting, taken) {
		return // withdrawn
	}
	if err == nil && o.want != nil {
		err = s.lend(o.want)
	}
	o.done <- err
}

// outage is what is known while commits fail.
type outage struct {
	err       error     // nil while they succeed
	since     time.Time // of the machine's clock
	next      time.Time // when the next try is due, by the real clock
	uncertain bool      // the file may hold what was undone
	dead      bool      // the database panicked: nothing is tried again
}

// How long changes are refused after a failed commit before one is tried again. Reading a file again takes longer.
const (
	retryAfter  = 250 * time.Millisecond
	reopenAfter = time.Second
)

// retry reports whether a commit may be tried again. A file that is uncertain is read again first.
func (s *Store) retry() bool {
	if s.out.dead || time.Now().Before(s.out.next) {
		return false
	}
	if s.out.uncertain {
		if err := s.reopen(); err != nil {
			s.failed(err)
			return false
		}
	}
	return true
}

// failed notes a failed commit.
func (s *Store) failed(err error) {
	first := s.out.err == nil
	if first {
		s.out.since = s.clock()
	}
	s.out.err = err
	s.out.next = time.Now().Add(retryAfter)
	if s.out.uncertain {
		s.out.next = time.Now().Add(reopenAfter)
	}
	s.err.Store(outcome{err})
	if first {
		s.observer.Failed(err)
	}
}

// recovered notes that commits succeed again.
func (s *Store) recovered() {
	after := s.clock().Sub(s.out.since)
	s.out = outage{}
	s.err.Store(outcome{})
	s.observer.Recovered(after)
}
