package disk

import (
	"cmp"
	"slices"
	"time"

	"pushrelay/store"
)

// Bounds of a group. Bytes are of the envelopes that it brings; one operation always fits.
const (
	groupOps   = 512
	groupBytes = 32 << 20
)

// work is the committer. It holds mu but while it waits and while it writes.
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
		s.mu.Lock()
		pending = s.reads(pending)
		more := len(pending) > 0
		if more {
			pending = s.group(pending)
		}
		s.mu.Unlock()
		if !more {
			<-s.queue.wake
		}
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
		o.done <- s.see(o)
	}
	clear(pending[len(rest):])
	return rest
}

// group runs the first operations that wait, commits what they changed and answers them. It answers the others.
func (s *Store) group(pending []*op) []*op {
	if err := s.Err(); s.dead.Load() && s.out.err == nil {
		s.failed(err, false)
	}
	if s.out.err != nil {
		return s.ration(pending)
	}
	n := 0
	for bytes := 0; n < min(len(pending), groupOps); n++ {
		if bytes += max(pending[n].bytes, pending[n].stubs); n > 0 && bytes > groupBytes {
			break
		}
	}
	s.attempt(pending[:n])
	rest := append(pending[:0], pending[n:]...)
	clear(pending[len(rest):])
	return rest
}

// ration is group while commits fail. What is small goes first and by itself: on a full disk it mostly finds room within
// the file, so that leases are renewed while large envelopes have to wait. Those are tried one at a time, now and then.
func (s *Store) ration(pending []*op) []*op {
	due := s.retry()
	slices.SortStableFunc(pending, func(a, b *op) int { return cmp.Compare(a.rank(), b.rank()) })
	small := slices.IndexFunc(pending, (*op).large)
	if small < 0 {
		small = len(pending)
	}
	n := min(small, groupOps)
	switch {
	case n == 0:
	case due || s.out.tight:
		s.attempt(pending[:n])
	default:
		s.refuse(pending[:n])
	}
	large := pending[small:]
	if len(large) > 0 && s.out.err != nil {
		if due && (n == 0 || s.out.tight) {
			s.attempt(large[:1])
			large = large[1:]
		}
		if s.out.err != nil {
			s.out.last = s.clock() // those that aren't tried would fail, too
			s.refuse(large)
			large = nil
		}
	}
	rest := append(append(pending[:0], pending[n:small]...), large...)
	clear(pending[len(rest):])
	return rest
}

// refuse answers operations that aren't tried.
func (s *Store) refuse(ops []*op) {
	for _, o := range ops {
		s.answer(o, store.ErrUnavailable)
	}
}

// large reports whether an operation needs room that a full disk may not have.
func (o *op) large() bool { return o.bytes > pageSize }

func (o *op) rank() int {
	if o.large() {
		return 1
	}
	return 0
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
	if s.m.Changed() || s.idle() || s.out.err != nil && (!s.out.tight || s.quiet()) {
		err = s.keepGroup(slices.ContainsFunc(group, (*op).large))
	}
	if err != nil {
		s.m.UndoGroup()
		s.failed(err, slices.ContainsFunc(group, (*op).large))
		for _, o := range group {
			s.answer(o, store.ErrUnavailable)
		}
		return
	}
	s.m.EndGroup()
	if s.out.err != nil {
		s.succeeded(slices.ContainsFunc(group, (*op).large))
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
	last      time.Time // failure, of the machine's clock
	next      time.Time // when the next try is due, by the real clock
	large     bool      // what failed last was large
	tight     bool      // and what is small may still find room
	uncertain bool      // the file may hold what was undone
}

// How long changes are refused after a failed commit before one is tried again. Reading a file again takes longer. After a
// failed write bbolt looks for free pages in all of the file, which may take seconds when that is large; callers wait
// meanwhile, and have so many times as long before it may happen again.
const (
	retryAfter  = 250 * time.Millisecond
	reopenAfter = time.Second
	respite     = 4
)

// retry reports whether a commit may be tried again. A file that is uncertain is read again first.
func (s *Store) retry() bool {
	if s.dead.Load() || time.Now().Before(s.out.next) {
		return false
	}
	if s.out.uncertain {
		if err := s.reopen(); err != nil {
			s.failed(err, false)
			return false
		}
	}
	return true
}

// failed notes a failed commit of a group that had something large, or of one that hadn't.
func (s *Store) failed(err error, large bool) {
	first := s.out.err == nil
	s.out.last, s.failure = s.clock(), time.Now()
	if first {
		s.out.since = s.out.last
	}
	s.out.err, s.out.large = err, large
	s.out.tight = large && !s.out.uncertain && !s.dead.Load()
	after := retryAfter
	if s.out.uncertain {
		after = reopenAfter
	}
	s.out.next = time.Now().Add(max(after, respite*s.spent))
	s.err.Store(outcome{err})
	if first {
		s.observer.Failed(err)
	}
}

// succeeded judges a commit after failed ones. When large ones failed, a small one says little.
func (s *Store) succeeded(large bool) {
	if large || !s.out.large || s.quiet() {
		s.recovered()
	}
}

// quiet reports that nothing has failed for a while: nobody has anything large to keep.
func (s *Store) quiet() bool { return s.clock().Sub(s.out.last) > store.SweeperAway }

// recovered notes that commits succeed again.
func (s *Store) recovered() {
	after := s.clock().Sub(s.out.since)
	s.out = outage{}
	s.err.Store(outcome{})
	s.observer.Recovered(after)
}
