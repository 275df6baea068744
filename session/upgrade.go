package session

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/coder/websocket"

	"pushrelay/wire"
)

// What Observer.Refused counts.
const (
	RefusedDraining    = "draining"
	RefusedSessions    = "sessions"             // as many as allowed
	RefusedStrangers   = "unauthenticated"      // as many as allowed
	RefusedAddr        = "unauthenticated-addr" // of one address
	RefusedRate        = "rate"
	RefusedQuery       = "query"
	RefusedOrigin      = "origin"
	RefusedSubprotocol = "subprotocol"
	RefusedUpgrade     = "upgrade" // not a WebSocket handshake
	RefusedType        = "unknown-type"
)

// Handler upgrades requests to sessions of one role; mount it at wire.DaemonPath or wire.SitePath. It needs HTTP/1.1
// and a ResponseWriter that can be hijacked, also through Unwrap. It returns once the connection is upgraded.
func (srv *Server) Handler(role string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { srv.upgrade(role, w, r) })
}

func (srv *Server) upgrade(role string, w http.ResponseWriter, r *http.Request) {
	addr := srv.cfg.Limits.clientAddr(r)
	key := addrKey(addr)
	if what := srv.admission.enter(key); what != "" {
		srv.busy(w, what)
		return
	}
	entered := key
	s, ok := srv.accept(role, w, r)
	if !ok {
		srv.admission.leave(&entered)
		return
	}
	s.taken, s.remote = key, addr.String()
	srv.begin(s)
}

func (srv *Server) busy(w http.ResponseWriter, what string) {
	srv.observer.Refused(what)
	w.Header().Set("Retry-After", strconv.Itoa(srv.admission.retryAfter(srv.cfg.Now())))
	http.Error(w, "the relay is busy; try again after the time in Retry-After", http.StatusServiceUnavailable)
}

func (srv *Server) turnAway(w http.ResponseWriter, what, text string, status int) {
	srv.observer.Refused(what)
	http.Error(w, text, status)
}

// accept judges the request and upgrades it.
func (srv *Server) accept(role string, w http.ResponseWriter, r *http.Request) (*Session, bool) {
	switch {
	case r.URL.RawQuery != "" || r.URL.ForceQuery:
		srv.turnAway(w, RefusedQuery, "no query is allowed here: credentials never go into a URL", http.StatusBadRequest)
		return nil, false
	case !srv.originAllowed(r):
		srv.turnAway(w, RefusedOrigin, "requests with this Origin are not allowed", http.StatusForbidden)
		return nil, false
	case isUpgrade(r) && !offers(r, wire.Subprotocol):
		srv.turnAway(w, RefusedSubprotocol, "the subprotocol "+wire.Subprotocol+" is required", http.StatusBadRequest)
		return nil, false
	}
	s := newSession(srv, role)
	h := &hijacker{ResponseWriter: w}
	ws, err := websocket.Accept(h, r, &websocket.AcceptOptions{
		Subprotocols:       []string{wire.Subprotocol},
		InsecureSkipVerify: true, // the library would let an Origin pass that equals the Host; see originAllowed
		CompressionMode:    websocket.CompressionDisabled,
		OnPingReceived:     s.pinged,
	})
	if err != nil {
		srv.observer.Refused(RefusedUpgrade) // the library has answered
		if h.sock != nil {
			h.sock.cut()
		}
		return nil, false
	}
	s.link = newLink(srv.engine, h.sock, ws, s)
	s.link.holding = true
	s.link.limit.Store(wire.MaxHelloBytes)
	return s, true
}

// pinged has the writer answer a ping; the library would write by itself, and give up after 5 s.
func (s *Session) pinged(_ context.Context, payload []byte) bool {
	s.link.pinged(payload)
	return false
}

// originAllowed refuses every Origin that isn't listed, the relay's own host included: browsers are no clients here, and
// by DNS rebinding any page can have our name.
func (srv *Server) originAllowed(r *http.Request) bool {
	for _, o := range r.Header.Values("Origin") {
		if !slices.Contains(srv.origins, normalOrigin(o)) {
			return false
		}
	}
	return true
}

// normalOrigin lowers scheme and host and drops a path; what isn't an origin becomes empty, which is never listed.
func normalOrigin(o string) string {
	u, err := url.Parse(o)
	if err != nil || u.Scheme == "" || u.Host == "" {
		return ""
	}
	return strings.ToLower(u.Scheme + "://" + u.Host)
}

func isUpgrade(r *http.Request) bool {
	return strings.EqualFold(strings.TrimSpace(r.Header.Get("Upgrade")), "websocket")
}

func offers(r *http.Request, subprotocol string) bool {
	for _, line := range r.Header.Values("Sec-WebSocket-Protocol") {
		for p := range strings.SplitSeq(line, ",") {
			if strings.TrimSpace(p) == subprotocol {
				return true
			}
		}
	}
	return false
}

// hijacker hands the library a connection that the link owns, with buffers as small as they can be: sessions are idle
// for most of their life.
type hijacker struct {
	http.ResponseWriter
	sock *socket
}

// readAhead is the library's read buffer: room for a control frame or a small request. Longer data is read in place.
const readAhead = 512

// Hijack implements http.Hijacker.
func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	h.sock = newSocket(conn, conn)
	if n := rw.Reader.Buffered(); n > 0 {
		ahead, _ := rw.Reader.Peek(n)
		h.sock.early = append([]byte(nil), ahead...)
	}
	c := &hijacked{Conn: conn, sock: h.sock}
	return c, bufio.NewReadWriter(bufio.NewReaderSize(c, readAhead), bufio.NewWriterSize(c, 1)), nil
}

// Unwrap lets http.ResponseController find what is below.
func (h *hijacker) Unwrap() http.ResponseWriter { return h.ResponseWriter }

// hijacked is the library's view of the connection.
type hijacked struct {
	net.Conn
	sock *socket
}

func (c *hijacked) Read(p []byte) (int, error)  { return c.sock.Read(p) }
func (c *hijacked) Write(p []byte) (int, error) { return c.sock.Write(p) }
func (c *hijacked) Close() error                { return c.sock.Close() }
