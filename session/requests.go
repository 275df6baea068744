package session

import (
	"runtime/debug"
	"sync/atomic"

	"pushrelay/wire"
)

// Request is one request of a peer. It is answered exactly once; later answers are ignored.
type Request struct {
	// Immutable.
	s     *Session
	head  head
	frame []byte
	order order

	held     atomic.Int64 // of the budget
	answered atomic.Bool
}

// order is how a request stands to others of its session (design, section 5).
type order uint8

const (
	overlaps order = iota // beside everything: a heartbeat
	byJob                 // after what came before and concerns the same job, or all
	byAll                 // after all that came before, before all that comes after
)

// orderOf answers how a role's request is ordered; known false: there is no such request.
func orderOf(role string, h head) (o order, known bool) {
	if role == wire.RoleSite {
		switch h.Type {
		case wire.TypeEnqueue:
			return byAll, true
		case wire.TypeSeal, wire.TypeSealing, wire.TypeDecline, wire.TypeCollected, wire.TypeCancel:
		default:
			return 0, false
		}
	} else {
		switch h.Type {
		case wire.TypeHeartbeat:
			return overlaps, true
		case wire.TypeReady, wire.TypeAccept, wire.TypeRelease:
			return byAll, true
		case wire.TypeFetch, wire.TypeResult:
		default:
			return 0, false
		}
	}
	if h.Job == "" {
		return byAll, true // a list, or something that its handler will refuse
	}
	return byJob, true
}

// mostRunning is how many requests of one session are handled at once, so that one peer can't take all workers; some
// more are kept for heartbeats, which must not starve behind work.
const (
	mostRunning     = 16
	keptForOverlaps = 4
)

// requestQueue orders the requests of one session. All fields are guarded by the session's mu.
type requestQueue struct {
	waiting    []*Request // in the order of their arrival
	running    int        // handlers at work, heartbeats too
	ordered    []*Request // those among them that others wait for
	unanswered int
	bytes      int64 // of the unanswered ones
}

// next takes the first request that may begin now, or nil.
func (q *requestQueue) next() *Request {
	for i, r := range q.waiting {
		most := mostRunning
		if r.order == overlaps {
			most += keptForOverlaps
		}
		if q.running < most && q.mayBegin(i, r) {
			q.waiting = append(q.waiting[:i], q.waiting[i+1:]...)
			if len(q.waiting) == 0 {
				q.waiting = nil
			}
			q.running++
			if r.order != overlaps {
				q.ordered = append(q.ordered, r)
			}
			return r
		}
	}
	return nil
}

func (q *requestQueue) mayBegin(i int, r *Request) bool {
	switch r.order {
	case overlaps:
		return true
	case byAll:
		for _, o := range q.waiting[:i] {
			if o.order != overlaps {
				return false
			}
		}
		return len(q.ordered) == 0
	}
	return !r.blockedBy(q.ordered) && !r.blockedBy(q.waiting[:i])
}

func (r *Request) blockedBy(others []*Request) bool {
	for _, o := range others {
		if o.order == byAll || o.order == byJob && o.head.Job == r.head.Job {
			return true
		}
	}
	return false
}

// done takes r out of those that run.
func (q *requestQueue) done(r *Request) {
	q.running--
	for i, o := range q.ordered {
		if o == r {
			q.ordered = append(q.ordered[:i], q.ordered[i+1:]...)
			break
		}
	}
	if len(q.ordered) == 0 {
		q.ordered = nil
	}
}

// drop takes out what hasn't begun: the connection is gone, and its peer will ask again.
func (q *requestQueue) drop() []*Request {
	dropped := q.waiting
	q.waiting = nil
	return dropped
}

// request takes a frame of an established session, on the reader.
func (s *Session) request(h head, frame []byte, held int64) {
	o, known := orderOf(s.role, h)
	switch {
	case !known:
		s.link.budget.Release(held)
		s.srv.observer.Refused(RefusedType)
		s.answerError(h.ID, wire.BadRequest("this relay does not know such a frame"))
		return
	case h.ID == "" || len(h.ID) > wire.MaxRequestID:
		s.link.budget.Release(held)
		s.answerError("", wire.BadRequest("a request must carry an id of 1 to %d bytes", wire.MaxRequestID))
		return
	}
	r := &Request{s: s, head: h, frame: frame, order: o}
	r.held.Store(held)
	s.mu.Lock()
	q := &s.requests
	q.unanswered++
	q.bytes += int64(len(frame))
	flood := q.unanswered > wire.MaxRequests || q.bytes > wire.MaxRequestBytes
	if !flood {
		q.waiting = append(q.waiting, r)
	}
	s.mu.Unlock()
	if flood {
		r.answered.Store(true)
		r.release()
		s.link.fail(ReasonFlooding, wire.RateLimited(1, "more than 64 requests or 16 MiB are unanswered"))
		return
	}
	s.dispatch()
}

func (s *Session) answerError(re string, e *wire.Error) {
	if len(re) > wire.MaxRequestID {
		re = ""
	}
	s.Push(wire.AppendErrorFrame(nil, re, e))
}

// dispatch hands to workers what may begin.
func (s *Session) dispatch() {
	for r := s.begin(nil); r != nil; r = s.begin(nil) {
		s.srv.engine.workers.run(r.handle)
	}
}

// begin answers a request that may begin now, after done is over.
func (s *Session) begin(done *Request) *Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	if done != nil {
		s.requests.done(done)
		if s.requests.running == 0 {
			s.quiet.Broadcast()
		}
	}
	return s.requests.next()
}

// handle runs on a worker, which goes on with what waited for r; others are woken for the rest.
func (r *Request) handle() {
	s := r.s
	for r != nil {
		r.call()
		r = s.begin(r)
		if r != nil {
			s.dispatch()
		}
	}
}

func (r *Request) call() {
	defer func() {
		if p := recover(); p != nil { // one session's trouble, not the process's
			r.s.srv.log.Error().Interface("panic", p).Bytes("stack", debug.Stack()).
				Str("session", r.s.id).Str("type", string(r.head.Type)).Msg("a handler failed")
			r.s.End(ReasonInternal, "")
		}
		if !r.answered.Load() {
			r.Refuse(wire.AsError(errUnanswered))
		}
	}()
	r.s.peer.Handle(r.s.link.ctx, r)
}

// Type is the frame's type, one of the role's requests.
func (r *Request) Type() wire.FrameType { return r.head.Type }

// ID is what the answer names as re.
func (r *Request) ID() string { return r.head.ID }

// Frame is the whole frame. It is never reused: slices of it may be kept for ever.
func (r *Request) Frame() []byte { return r.frame }

// Reply answers with a whole reply frame, on the control lane, and takes ownership of it.
func (r *Request) Reply(frame []byte) {
	if r.answered.Swap(true) {
		return
	}
	r.release()
	r.s.Push(frame)
}

// Refuse answers with an error frame.
func (r *Request) Refuse(e *wire.Error) { r.Reply(wire.AppendErrorFrame(nil, r.head.ID, e)) }

// ReplyBulk answers with a reply frame on the bulk lane. An error of load is sent as the request's error frame, and so
// is a nil frame, as not-found. The request counts as unanswered until the frame was sent.
func (r *Request) ReplyBulk(load Loader) {
	if r.answered.Swap(true) {
		return
	}
	r.s.link.budget.Release(r.held.Swap(0))
	r.s.link.pushBulk(&outItem{load: load, done: r.sentBulk})
}

func (r *Request) sentBulk(err error) {
	r.release()
	switch {
	case err == nil, isEnded(err):
		return
	case err == errUnwanted:
		err = wire.Errorf(wire.CodeNotFound, "there is nothing to send any more")
	case isRefusal(err):
	default:
		r.s.srv.log.Warn().Err(err).Str("session", r.s.id).Str("type", string(r.head.Type)).Msg("a reply could not be loaded")
	}
	r.s.Push(wire.AppendErrorFrame(nil, r.head.ID, wire.AsError(err)))
}

// release stops counting r as unanswered.
func (r *Request) release() {
	r.s.link.budget.Release(r.held.Swap(0))
	r.s.mu.Lock()
	r.s.requests.unanswered--
	r.s.requests.bytes -= int64(len(r.frame))
	r.s.mu.Unlock()
}
