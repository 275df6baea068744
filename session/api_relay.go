package session

import (
	"context"
	"crypto/ed25519"
	"net/http"
	"net/netip"
	"time"

	"github.com/rs/zerolog"

	"pushrelay/wire"
)

// Session is one peer's session on the relay, from its hello on. All methods may be called from any goroutine and
// none of them blocks, except PushBulk (see there).
type Session struct{}

// ID is unique among all sessions of all replicas; the client is told it in its welcome.
func (s *Session) ID() string { return "" }

// Role is wire.RoleDaemon or wire.RoleSite.
func (s *Session) Role() string { return "" }

// Caller is the runner's or the site's id, as authenticated.
func (s *Session) Caller() string { return "" }

// Dialect is the protocolVersion of the hello.
func (s *Session) Dialect() wire.Dialect { return "" }

// Hello is the body that the peer signed; it must not be changed.
func (s *Session) Hello() *wire.HelloBody { return nil }

// Key is the one of the caller's keys that signed the hello.
func (s *Session) Key() ed25519.PublicKey { return nil }

// Remote is the peer's address without port, read through trusted proxies.
func (s *Session) Remote() string { return "" }

// Push queues one frame on the control lane and takes ownership of it. It never blocks; a lane over 256 KiB ends the
// session with ReasonTooSlow.
func (s *Session) Push(frame []byte) {}

// PushBulk queues a frame on the bulk lane. When the lane is idle load may run on the caller, else on a worker.
func (s *Session) PushBulk(load Loader) {}

// End starts the end of the session and returns at once. The first end wins; text is cut to 123 bytes.
func (s *Session) End(r Reason, text string) {}

// Stats is a snapshot for operators.
func (s *Session) Stats() Stats { return Stats{} }

// Stats counts what a session did. Bytes are the connection's, below WebSocket framing and above TLS.
type Stats struct {
	Opened              time.Time
	LastReceived        time.Time
	BytesIn, BytesOut   int64
	FramesIn, FramesOut int64
	Queued              int64 // bytes in both lanes, loaded ones of bulk only
	Unanswered          int   // requests
}

// Request is one request of a peer. It is answered exactly once; later answers are ignored.
type Request struct{}

// Type is the frame's type, one of the role's requests.
func (r *Request) Type() wire.FrameType { return "" }

// ID is what the answer names as re.
func (r *Request) ID() string { return "" }

// Frame is the whole frame. It is never reused: slices of it may be kept for ever.
func (r *Request) Frame() []byte { return nil }

// Reply answers with a whole reply frame, on the control lane.
func (r *Request) Reply(frame []byte) {}

// ReplyBulk answers with a reply frame on the bulk lane. An error of load is sent as the request's error frame.
func (r *Request) ReplyBulk(load Loader) {}

// Refuse answers with an error frame.
func (r *Request) Refuse(e *wire.Error) {}

// Observer counts. All its arguments but the numbers are words of closed sets, fit for metric labels.
type Observer interface {
	Opened(role string)
	Ended(role string, reason Reason, s Summary)
	// Refused counts what never became a session, or a frame that was refused: one of the Refused constants.
	Refused(what string)
}

// Summary is what the one log line of an end says, for metrics.
type Summary struct {
	Admitted          bool // it had been welcome
	Duration          time.Duration
	BytesIn, BytesOut int64
	Queued            int64 // bytes that were never sent
}

// Limits bound what strangers and peers can take. Zero values mean the defaults.
type Limits struct {
	MaxSessions               int            // 50,000
	MaxUnauthenticated        int            // 1,000
	MaxUnauthenticatedPerAddr int            // 64; an IPv6 address counts by its /64
	AcceptPerSecond           float64        // 500
	TrustedProxies            []netip.Prefix // whose X-Forwarded-For is believed
}

// ServerConfig sets up a Server. Opener, Directory and PublicURLs are required; zero values mean the defaults.
type ServerConfig struct {
	Opener     Opener
	Directory  Directory
	PublicURLs []string // what clients dial; a hello must name one of them
	Origins    []string // allowed Origin headers, scheme://host[:port]; a request without one is always allowed
	Version    string   // of the relay, told in welcome
	Log        zerolog.Logger
	Observer   Observer // nil counts nothing
	Budget     *Budget  // nil means one of 256 MiB
	Limits     Limits

	PingMin, PingMax time.Duration    // 20 to 25 s
	IdleAfter        time.Duration    // 60 s
	HandshakeFor     time.Duration    // 10 s
	Now              func() time.Time // wall clock of serverTime; nil means time.Now
}

// Server accepts and keeps the relay's sessions.
type Server struct{}

// NewServer checks cfg and starts what all sessions share; Close stops it.
func NewServer(cfg ServerConfig) (*Server, error) { return &Server{}, nil }

// Handler upgrades requests to sessions of one role; mount it at wire.DaemonPath or wire.SitePath.
func (srv *Server) Handler(role string) http.Handler { return http.NotFoundHandler() }

// Refuse makes new sessions be answered 503 from now on; those that are open stay (drain, step 1).
func (srv *Server) Refuse() {}

// Drain tells all sessions goaway and closes them spread over the time given (drain, step 2). It returns when all are
// gone or ctx ends.
func (srv *Server) Drain(ctx context.Context, spread time.Duration, reason string) error { return nil }

// Close ends all sessions and returns when every goroutine is gone, or ctx ends.
func (srv *Server) Close(ctx context.Context) error { return nil }

// Sessions is a snapshot of the admitted sessions, in no order.
func (srv *Server) Sessions() []*Session { return nil }

// Budget bounds the bytes of bulk frames that a process holds. Its methods never block.
type Budget struct{}

// NewBudget makes a budget of so many bytes, at least one frame's.
func NewBudget(bytes int64) *Budget { return &Budget{} }
