package session

import (
	"crypto/rand"
	"errors"
	"time"

	"pushrelay/wire"
)

// The handshake (design, section 5): challenge, hello, welcome. Who isn't welcome is told why in an error frame, and
// again by the code of the close.

const (
	nonceBytes     = 32
	openFor        = 15 * time.Second // the opener may take, before the client is sent away as from a busy relay
	retryHandshake = 5                // seconds
)

// greet sends the challenge.
func (s *Session) greet() {
	frame, err := wire.Encode(wire.Challenge{
		Type: wire.TypeChallenge, Nonce: s.nonce, ServerTime: s.srv.nowMs(), Versions: wire.Supported(),
	})
	if err != nil {
		s.End(ReasonInternal, "")
		return
	}
	s.link.pushUrgent(frame)
}

func newNonce() string {
	var b [nonceBytes]byte
	_, _ = rand.Read(b[:]) // never fails
	return wire.EncodeBase64(b[:])
}

// refuse ends a handshake.
func (s *Session) refuse(r Reason, e *wire.Error, text string) {
	s.link.end(End{Reason: r, Text: closeText(r, text)}, wire.AppendErrorFrame(nil, "", e))
}

// authenticate judges a hello, on the reader: version first, then who calls, whether the signature is theirs and meant
// for this connection, and only then whether they may.
func (s *Session) authenticate(h head, frame []byte) {
	if h.Type != wire.TypeHello {
		s.malformed(wire.BadRequest("the first frame must be a hello"))
		return
	}
	hello, err := wire.Decode[wire.Hello](frame)
	if err != nil {
		s.malformed(wire.AsError(err))
		return
	}
	s.claimed = hello.Caller
	body, err := wire.ParseHelloBody([]byte(hello.Body))
	if err != nil {
		s.refuseHello(wire.AsError(err))
		return
	}
	if !s.identify(&hello, &body) {
		return
	}
	s.caller, s.hello, s.issuedAt = hello.Caller, &body, hello.IssuedAt
	s.setPhase(opening, openFor)
	s.srv.admission.known(s)
	s.link.limit.Store(wire.MaxTextBytes)
	s.srv.engine.workers.run(s.open)
}

func (s *Session) refuseHello(e *wire.Error) {
	if e.Code == wire.CodeUnsupportedVersion {
		s.refuse(ReasonVersion, e, "this relay speaks "+joined(e.Supported))
		return
	}
	s.malformed(e)
}

// identify finds the key that signed. A caller that isn't known and a signature that doesn't fit end differently: the
// first may only be new, the second stops a client for good.
func (s *Session) identify(hello *wire.Hello, body *wire.HelloBody) bool {
	who, found := s.srv.cfg.Directory.Caller(s.role, hello.Caller)
	if !found || len(who.Keys) == 0 {
		s.refuse(ReasonUnknown, wire.Errorf(wire.CodeUnauthorized,
			"this relay does not know this caller; is it approved, and is this the right relay?"), "this caller is not known here")
		return false
	}
	endpoint := wire.EndpointDaemon
	if s.role == wire.RoleSite {
		endpoint = wire.EndpointSite
	}
	for _, key := range who.Keys {
		if wire.VerifySignature(key, endpoint, hello.Caller, hello.IssuedAt, []byte(hello.Body), hello.Signature) == nil {
			s.key = key
			break
		}
	}
	switch {
	case s.key == nil:
		s.refuseSignature("the signature is not by this caller's key")
	case body.Nonce != s.nonce:
		s.refuseSignature("the nonce is not this connection's")
	case !wire.SameRelay(body.Relay, s.srv.cfg.PublicURLs):
		s.refuseSignature("the hello was signed for another relay's URL")
	case body.Role != s.role:
		s.refuseSignature("the role is not this endpoint's")
	case who.Revoked:
		s.refuse(ReasonRevoked, wire.Errorf(wire.CodeRevoked, "this caller is revoked; pair again to come back"), "pair again")
	default:
		return true
	}
	return false
}

func (s *Session) refuseSignature(why string) {
	s.refuse(ReasonSignature, wire.Errorf(wire.CodeUnauthorized, "%s", why), why)
}

// open runs on a worker: the opener may wait for the store.
func (s *Session) open() {
	peer, welcome, err := s.srv.cfg.Opener.Open(s.link.ctx, s)
	if err != nil {
		s.refuseOpen(err)
		s.setPhase(established, 0)
		return
	}
	s.peer = peer
	frame, err := wire.Encode(s.fill(welcome))
	if err != nil {
		s.srv.log.Error().Err(err).Str("session", s.id).Msg("a welcome could not be written")
		s.End(ReasonInternal, "")
		s.setPhase(established, 0)
		return
	}
	s.admitted.Store(true)
	s.srv.observer.Opened(s.role)
	s.setPhase(established, 0)
	s.link.welcome(frame)
}

// fill sets what the opener needn't know of.
func (s *Session) fill(w wire.Welcome) wire.Welcome {
	w.Type, w.SessionID = wire.TypeWelcome, s.id
	if w.ServerTime == 0 {
		w.ServerTime = s.srv.nowMs()
	}
	w.SkewMs = w.ServerTime - s.issuedAt
	w.PingMs = s.srv.cfg.PingMax.Milliseconds()
	w.MaxFrameBytes = wire.MaxFrameBytes
	w.RelayVersion = s.srv.cfg.Version
	return w
}

func (s *Session) refuseOpen(err error) {
	var e *EndError
	if !errors.As(err, &e) {
		s.srv.log.Warn().Err(err).Str("session", s.id).Msg("a session could not be opened")
		s.refuse(ReasonBusy, wire.Unavailable(retryHandshake, "the relay can't open a session now; try again"), "try again")
		return
	}
	s.refuse(e.Reason, refusalOf(e), e.Text)
}

// refusalOf is the error frame that goes with a reason.
func refusalOf(e *EndError) *wire.Error {
	text := e.Text
	if text == "" {
		text = string(e.Reason)
	}
	switch e.Reason {
	case ReasonUnknown, ReasonSignature:
		return wire.Errorf(wire.CodeUnauthorized, "%s", text)
	case ReasonRevoked:
		return wire.Errorf(wire.CodeRevoked, "%s", text)
	case ReasonVersion:
		return wire.UnsupportedVersion("")
	case ReasonBadFrame, ReasonTooLarge:
		return wire.BadRequest("%s", text)
	case ReasonSuperseded:
		return wire.Errorf(wire.CodeForbidden, "%s", text)
	}
	return wire.Unavailable(retryHandshake, text)
}
