package session

import (
	"context"
	"net/http"

	"github.com/rs/zerolog"

	"pushrelay/wire"
)

// ClientConfig says whom a client is and where it dials. URL, Caller, Role, Sign, Body and Handler are required.
type ClientConfig struct {
	URL    string // ws, wss, http or https; host and port of the relay, the path is the role's own
	Caller string // runnerId or siteId
	Role   string // wire.RoleDaemon or wire.RoleSite
	// Sign signs a request (wire/seal's Keys.SignRequest); keys never enter this package.
	Sign func(endpoint, caller string, issuedAt int64, body []byte) string
	// Body fills what the role adds to each hello: dialect, client info, capabilities, slots, active leases.
	Body    func(b *wire.HelloBody)
	Handler ClientHandler
	Log     zerolog.Logger
	// Transport dials; nil means one with HTTPS_PROXY, a fresh look-up of the name each time and CAFile trusted.
	Transport http.RoundTripper
	CAFile    string
	// Budget bounds the bytes of bulk frames being received; nil means one of 64 MiB.
	Budget *Budget
}

// ClientHandler hears of a client's sessions. All calls of one session come from one goroutine, in order; Push must
// not block for long (hand work on). Requests may be made from any goroutine, and from Welcome through a goroutine.
type ClientHandler interface {
	Welcome(ctx context.Context, c *Conn, w wire.Welcome)
	Push(ctx context.Context, c *Conn, head wire.Head, frame []byte)
	Ended(c *Conn, end End)
}
