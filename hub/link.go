package hub

import (
	"context"
	"crypto/ed25519"
	"time"

	"pushrelay/session"
	"pushrelay/wire"
)

// Link is the sending side of one admitted session. Its methods don't block, except PushBulk while it loads.
type Link interface {
	ID() string
	// Push queues a frame on the control lane and takes ownership of it. A lane that overflows ends its session.
	Push(frame []byte)
	// PushBulk queues a frame that is loaded when its turn to be sent has come.
	PushBulk(load session.Loader)
	// PushBulkThen is PushBulk, and calls over once when the frame was sent or never will be.
	PushBulkThen(load session.Loader, over func())
	// End starts the end of the session; the first end wins.
	End(reason session.Reason, text string)
	// Received answers how many bytes arrived so far, so that a slow upload is told from silence.
	Received() int64
}

// Request is one request of a peer, answered exactly once by one of the last three methods.
type Request interface {
	Type() wire.FrameType
	ID() string
	Frame() []byte
	Reply(frame []byte)
	// ReplyBulk answers with what load answers; an error of load becomes the request's refusal.
	ReplyBulk(load session.Loader)
	Refuse(e *wire.Error)
}

// Arrival is an authenticated peer that asks to be admitted.
type Arrival struct {
	Link    Link
	Role    string // wire.RoleDaemon or wire.RoleSite
	Caller  string // runner or site id
	Dialect wire.Dialect
	Hello   *wire.HelloBody
	Key     ed25519.PublicKey // the one that signed
	Remote  string
}

// Peer handles one admitted session: what session.Peer does, on a Request of any kind.
type Peer interface {
	Handle(ctx context.Context, r Request)
	Closed(end session.End)
}

// Open admits a session; it is session.Opener's.
func (h *Hub) Open(ctx context.Context, s *session.Session) (session.Peer, wire.Welcome, error) {
	p, welcome, err := h.Admit(ctx, Arrival{
		Link: sessionLink{s}, Role: s.Role(), Caller: s.Caller(), Dialect: s.Dialect(), Hello: s.Hello(), Key: s.Key(), Remote: s.Remote(),
	})
	if err != nil {
		return nil, wire.Welcome{}, err
	}
	return sessionPeer{p}, welcome, nil
}

type sessionLink struct{ *session.Session }

func (l sessionLink) Received() int64 { return l.Stats().BytesIn }

type sessionPeer struct{ peer Peer }

func (p sessionPeer) Handle(ctx context.Context, r *session.Request) { p.peer.Handle(ctx, r) }
func (p sessionPeer) Closed(end session.End)                         { p.peer.Closed(end) }

var (
	_ Peer              = (*daemon)(nil)
	_ Peer              = (*siteSession)(nil)
	_ session.Opener    = (*Hub)(nil)
	_ session.Directory = (*Hub)(nil)
	_ Request           = (*session.Request)(nil)
)

// since is how long ago t was on the hub's own monotonic clock, which judges silence only.
func since(t time.Time) time.Duration { return time.Since(t) }
