package session

import (
	"crypto/ed25519"
	"sync"
	"sync/atomic"
	"time"

	"pushrelay/wire"
)

// Session is one peer's session on the relay, from its hello on. All methods may be called from any goroutine and
// none of them blocks, except PushBulk (see there).
//
// Locks: mu before the link's; neither is held while Opener, Peer, Directory or Observer are called.
type Session struct {
	// Immutable.
	srv    *Server
	link   *link
	id     string
	role   string
	remote string
	nonce  string
	taken  string // the slot of strangers that it holds, see admission

	// Written by the reader before the opener is called, read by others afterwards.
	claimed  string // who the peer says it is, for the log
	caller   string
	hello    *wire.HelloBody
	key      ed25519.PublicKey
	issuedAt int64

	phase    atomic.Uint32 // phase of the handshake
	admitted atomic.Bool
	peer     Peer // set once, before admitted

	mu       sync.Mutex
	quiet    sync.Cond // of mu: no handler runs any more
	requests requestQueue
	deadline time.Duration // of the present phase, as the link's age; 0: none
	leaveBy  time.Duration // when a drain ends it, also with requests unanswered; 0: no drain
}

// Phases of the handshake.
const (
	awaitHello uint32 = iota
	opening
	established
)

// ID is unique among all sessions of all replicas; the client is told it in its welcome.
func (s *Session) ID() string { return s.id }

// Role is wire.RoleDaemon or wire.RoleSite.
func (s *Session) Role() string { return s.role }

// Caller is the runner's or the site's id, as authenticated.
func (s *Session) Caller() string { return s.caller }

// Dialect is the protocolVersion of the hello.
func (s *Session) Dialect() wire.Dialect { return wire.Dialect(s.hello.ProtocolVersion) }

// Hello is the body that the peer signed; it must not be changed.
func (s *Session) Hello() *wire.HelloBody { return s.hello }

// Key is the one of the caller's keys that signed the hello.
func (s *Session) Key() ed25519.PublicKey { return s.key }

// Remote is the peer's address without port, read through trusted proxies.
func (s *Session) Remote() string { return s.remote }

// Push queues one frame on the control lane and takes ownership of it. It never blocks; a lane over 256 KiB ends the
// session with ReasonTooSlow. A frame over 32 KiB travels in parts and may be overtaken.
func (s *Session) Push(frame []byte) { s.link.push(frame) }

// PushBulk queues a frame on the bulk lane. When the lane is idle load may run on the caller, else on a worker.
func (s *Session) PushBulk(load Loader) {
	s.link.pushBulk(&outItem{load: load, done: s.loadFailed})
}

// PushBulkThen is PushBulk, and calls over once, without locks, when the frame was sent or never will be.
func (s *Session) PushBulkThen(load Loader, over func()) {
	s.link.pushBulk(&outItem{load: load, done: func(err error) {
		over()
		s.loadFailed(err)
	}})
}

// loadFailed ends the session when a push can't be sent: the peer asks again for all that it misses when it comes back.
func (s *Session) loadFailed(err error) {
	switch {
	case err == nil, isEnded(err), err == errUnwanted:
	case isRefusal(err):
		s.End(ReasonTooSlow, "the peer refused a stream")
	case err == errTooLong:
		s.End(ReasonInternal, "a frame was too long")
	default:
		s.srv.log.Warn().Err(err).Str("session", s.id).Msg("a push could not be loaded")
		s.End(ReasonBusy, "the store failed")
	}
}

// End starts the end of the session and returns at once. The first end wins; text is cut to 123 bytes.
func (s *Session) End(r Reason, text string) {
	s.link.end(End{Reason: r, Text: closeText(r, text)})
}

// Arriving reports whether bulk came in within so long: the peer is at work on something large.
func (s *Session) Arriving(within time.Duration) bool {
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	return s.link.in.arriving(s.link.sock.now(), within)
}

// Stats counts what a session did. Bytes are the connection's, above TLS and with WebSocket's framing.
type Stats struct {
	Opened              time.Time
	LastReceived        time.Time
	BytesIn, BytesOut   int64
	FramesIn, FramesOut int64
	Queued              int64 // bytes in both lanes, loaded ones of bulk only
	Unanswered          int   // requests
}

// Stats is a snapshot for operators.
func (s *Session) Stats() Stats {
	l := s.link
	st := Stats{
		Opened:       l.sock.start,
		LastReceived: l.sock.start.Add(time.Duration(l.sock.heard.Load())),
		BytesIn:      l.sock.in.Load(),
		BytesOut:     l.sock.out.Load(),
		FramesIn:     l.framesIn.Load(),
		FramesOut:    l.framesOut.Load(),
	}
	l.mu.Lock()
	st.Queued = l.queued()
	l.mu.Unlock()
	s.mu.Lock()
	st.Unanswered = s.requests.unanswered
	s.mu.Unlock()
	return st
}

// received takes a frame from the reader.
func (s *Session) received(h head, frame []byte, held int64) {
	switch s.phase.Load() {
	case awaitHello:
		s.link.budget.Release(held)
		s.authenticate(h, frame)
	case opening:
		s.link.budget.Release(held)
		s.malformed(wire.BadRequest("wait for welcome before you send anything else"))
	default:
		if s.peer == nil { // the opener has just refused it, and nobody hears what comes now
			s.link.budget.Release(held)
			return
		}
		s.request(h, frame, held)
	}
}

// malformed ends the session: what comes next can't be trusted to begin where it should.
func (s *Session) malformed(e *wire.Error) { s.link.fail(ReasonBadFrame, e) }

// gone runs on the writer's goroutine, when the connection is closed.
func (s *Session) gone(e End) {
	s.mu.Lock()
	dropped := s.requests.drop()
	s.mu.Unlock()
	for _, r := range dropped {
		r.answered.Store(true)
		r.release()
	}
	s.mu.Lock()
	for s.requests.running > 0 || s.phase.Load() == opening {
		s.quiet.Wait()
	}
	s.mu.Unlock()
	s.srv.over(s, e)
}

// tick is called about twice a second.
func (s *Session) tick() {
	s.mu.Lock()
	late := s.deadline > 0 && s.link.age() >= s.deadline
	leaves := s.leaveBy > 0 && (s.requests.unanswered == 0 || s.link.age() >= s.leaveBy)
	s.mu.Unlock()
	switch {
	case leaves:
		s.End(ReasonGoingAway, "the relay is going away")
	case !late:
	case s.phase.Load() == awaitHello:
		s.link.end(End{Reason: ReasonHandshakeTimeout, Text: closeText(ReasonHandshakeTimeout, "no hello came")},
			wire.AppendErrorFrame(nil, "", wire.Errorf(wire.CodeUnauthorized, "no hello came in time")))
	default:
		s.link.end(End{Reason: ReasonBusy, Text: closeText(ReasonBusy, "the store is slow")},
			wire.AppendErrorFrame(nil, "", wire.Unavailable(retryHandshake, "the relay is busy; try again")))
	}
	s.link.tick()
}

func (s *Session) setPhase(p uint32, within time.Duration) {
	s.mu.Lock()
	s.deadline = within
	if within > 0 {
		s.deadline += s.link.age()
	}
	s.phase.Store(p)
	s.mu.Unlock()
	s.quiet.Broadcast()
}
