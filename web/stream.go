package web

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/time/rate"

	"pushrelay/wire"
)

const (
	// maxLookBytes bounds a viewer's message, and looksPerSecond how many of them are read.
	maxLookBytes   = 4 << 10
	looksPerSecond = 30
	// sendWithin is how long a message may be on its way; then its viewer is gone.
	sendWithin = 10 * time.Second
	// closeFor is how long the end of a stream waits for the browser's answer.
	closeFor = time.Second
)

// Codes of streams' ends, beside those of RFC 6455.
const (
	endLogin = websocket.StatusCode(4401) // log in again
)

var (
	errLoginOver  = errors.New("the login is over")
	errGoingAway  = errors.New("this relay is going away")
	errTooMuch    = errors.New("too many messages")
	errViewerGone = errors.New("the viewer is gone")
)

// serveStream upgrades a request to the stream of a site, or of the list of sites without one.
func (p *Page) serveStream(w http.ResponseWriter, r *http.Request) {
	site := r.URL.Query().Get("site")
	if len(site) > wire.MaxIDBytes || !isUpgrade(r) {
		answer(w, http.StatusBadRequest, "bad-request", "this is a WebSocket; site names a site")
		return
	}
	f, running, leave, ok := p.desk.enter(site)
	if !ok {
		w.Header().Set("Retry-After", "5")
		answer(w, http.StatusServiceUnavailable, "server-error", "too many pages are open, or the relay is going away; try again")
		return
	}
	defer leave()
	c, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		InsecureSkipVerify: true, // refuse has compared the Origin, with more than the library asks for
		CompressionMode:    websocket.CompressionDisabled,
	})
	if err != nil {
		return // the library has answered
	}
	defer func() { _ = c.CloseNow() }()
	ctx, cancel := context.WithDeadlineCause(running, p.auth.until(r), errLoginOver)
	defer cancel()
	p.stream(ctx, c, f, site)
}

// stream serves one viewer until anything ends it, and tells the browser why.
func (p *Page) stream(ctx context.Context, c *websocket.Conn, f feed, site string) {
	ctx, cancel := context.WithCancelCause(ctx)
	v := newViewer()
	c.SetReadLimit(maxLookBytes)
	read := make(chan struct{})
	go func() {
		defer close(read)
		cancel(hear(c, v))
	}()
	send := func(message any) error { return write(c, message, p.sendWithin) }
	err := send(hello{Type: "hello", Now: p.src.Now().UnixMilli(), Version: p.cfg.Version, Site: site})
	if err == nil {
		err = v.show(ctx, f, p.src.Now, func(u update) error { return send(u) })
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errLoginOver), errors.Is(cause, errTooMuch), errors.Is(cause, errViewerGone):
		err = cause
	case cause != nil:
		err = errGoingAway
	}
	end(c, err)
	cancel(err)
	_ = c.CloseNow() // ends the reader
	<-read
}

// hear reads what the viewer looks at. The socket has no context of its own: a context that ends during a read would cut it
// without a word.
func hear(c *websocket.Conn, v *viewer) error {
	limit := rate.NewLimiter(looksPerSecond, 2*looksPerSecond)
	for {
		_, raw, err := c.Read(context.Background())
		if err != nil {
			return errViewerGone
		}
		if !limit.Allow() {
			return errTooMuch
		}
		l, err := parseLook(raw)
		if err != nil {
			return errTooMuch
		}
		v.ask(l)
	}
}

func write(c *websocket.Conn, message any, within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	return c.Write(ctx, websocket.MessageText, encode(message))
}

// end tells the browser why, and doesn't wait long for its answer.
func end(c *websocket.Conn, err error) {
	code, text := websocket.StatusGoingAway, "this relay is going away"
	switch {
	case errors.Is(err, errLoginOver):
		code, text = endLogin, "log in again"
	case errors.Is(err, errTooMuch):
		code, text = websocket.StatusPolicyViolation, "too many messages, or one that can't be read"
	case errors.Is(err, errGoingAway):
	default:
		return // nobody is there, or it takes nothing
	}
	cut := time.AfterFunc(closeFor, func() { _ = c.CloseNow() })
	defer cut.Stop()
	_ = c.Close(code, text)
}
