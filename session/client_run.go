package session

import (
	"context"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"pushrelay/wire"
)

// Client keeps one session with a relay up. Run is called once at a time.
type Client struct {
	// Immutable.
	cfg       ClientConfig
	url       string
	transport http.RoundTripper
	engine    *engine
	log       zerolog.Logger
	random    func() float64
	wall      func() time.Time // without a monotonic reading: it goes on while the machine sleeps

	serving sync.WaitGroup

	mu    sync.Mutex
	conns map[*Conn]struct{}
}

const (
	clientBudget = 64 << 20
	idleFor      = 60 * time.Second
	sleptFor     = 10 * time.Second // the wall clock ran ahead of the monotonic one by so much: the machine slept
)

// NewClient checks cfg.
func NewClient(cfg ClientConfig) (*Client, error) {
	if cfg.Caller == "" || cfg.Sign == nil || cfg.Body == nil || cfg.Handler == nil {
		return nil, errors.New("session: a client needs a caller, Sign, Body and a handler")
	}
	if cfg.Role != wire.RoleDaemon && cfg.Role != wire.RoleSite {
		return nil, errors.New("session: a client is a daemon or a site")
	}
	url, err := endpointURL(cfg.URL, cfg.Role)
	if err != nil {
		return nil, err
	}
	c := &Client{cfg: cfg, url: url, transport: cfg.Transport, log: cfg.Log, random: mathrand.Float64, conns: map[*Conn]struct{}{}}
	c.wall = func() time.Time { return time.Now().Round(0) }
	if c.transport == nil {
		if c.transport, err = newTransport(cfg.CAFile); err != nil {
			return nil, err
		}
	}
	budget := cfg.Budget
	if budget == nil {
		budget = NewBudget(clientBudget)
	}
	c.engine = newEngine(budget, nil)
	c.engine.controlLane = 2 * wire.MaxRequestBytes
	c.engine.client, c.engine.idleAfter, c.engine.random = true, idleFor, mathrand.Float64
	return c, nil
}

// Run dials, keeps the session and dials again after each end as its code asks, until ctx ends or Conn.Close was called
// (nil), or an end is terminal (*TerminalError). When it returns all goroutines are gone.
func (c *Client) Run(ctx context.Context) error {
	ticking, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { c.tick(ticking) })
	defer wg.Wait()
	defer stop()
	defer c.serving.Wait() // also of sessions that were replaced
	s := &schedule{random: c.random}
	for ctx.Err() == nil {
		conn, err := c.connect(ctx)
		for conn != nil {
			conn, err = c.live(ctx, conn, s)
		}
		if err == nil || ctx.Err() != nil {
			return nil
		}
		wait, err := c.next(s, err)
		if err != nil {
			return err
		}
		_ = sleep(ctx, wait)
	}
	return nil
}

// ended is the error of a session that is over; retry is what section 5 asks for.
type ended struct {
	end     End
	retry   Retry
	refusal *wire.Error
}

func (e *ended) Error() string {
	said := fmt.Sprintf("session: ended: %s", e.end.Reason)
	if e.end.Code != 0 { // 0 without a close
		said += fmt.Sprintf(" %d", e.end.Code)
	}
	if e.end.Text != "" {
		said += " " + e.end.Text
	}
	return said
}

// next decides on what err means: how long to wait, or a *TerminalError.
func (c *Client) next(s *schedule, err error) (time.Duration, error) {
	var over *ended
	var refused *refusedUpgrade
	var wait time.Duration
	var do string
	terminal := &TerminalError{}
	switch {
	case errors.As(err, &over):
		wait, do = s.ended(time.Now(), over.end, over.retry)
		terminal.End = over.end
		if do != "" && over.refusal != nil && over.refusal.Message != "" && !strings.Contains(over.end.Text, over.refusal.Message) {
			do += " (" + over.refusal.Message + ")"
		}
	case errors.As(err, &refused):
		wait, do = s.refused(refused.status, refused.retryAfter)
		terminal.Status = refused.status
	default:
		wait = s.backoff()
	}
	if do != "" {
		terminal.Do = do
		c.log.Error().Err(err).Str("do", do).Msg("giving up")
		return 0, terminal
	}
	c.tellWait(err, wait)
	return wait, nil
}

// tellWait logs why a client isn't connected: a move that the relay asked for is nothing to worry about.
func (c *Client) tellWait(err error, wait time.Duration) {
	line := c.log.Warn()
	var over *ended
	var dialled *url.Error
	switch {
	case errors.As(err, &over) && over.retry == RetryNow:
		line = c.log.Info()
	case errors.As(err, &over) && over.retry == RetryLater:
		line = line.Str("do", "check this client's id; when it is right, the relay's operator has to make it known")
	case errors.As(err, &dialled):
		err = dialled // without the libraries' words around it
	}
	line.Err(err).Int64("wait_ms", wait.Milliseconds()).Msg("dialling again")
}

// connect dials and shakes hands once. The session that it answers is being served.
func (c *Client) connect(ctx context.Context) (*Conn, error) {
	dialling, cancel := context.WithTimeout(ctx, connectFor+answerFor)
	defer cancel()
	conn := newConn(c)
	ws, sock, err := c.dial(dialling, func(_ context.Context, payload []byte) bool {
		conn.link.pinged(payload)
		return false
	})
	if err != nil {
		return nil, err
	}
	conn.link = newLink(c.engine, sock, ws, conn)
	c.mu.Lock()
	c.conns[conn] = struct{}{}
	c.mu.Unlock()
	conn.link.start()
	welcome, err := conn.shakeHands(ctx)
	if err != nil {
		conn.link.end(End{Reason: ReasonClosed, Text: "no handshake"})
		<-conn.closed
		c.forget(conn)
		return nil, conn.why(err)
	}
	conn.id = welcome.SessionID
	c.serving.Go(func() { conn.serve(ctx, welcome) })
	return conn, nil
}

func (c *Client) forget(conn *Conn) {
	c.mu.Lock()
	delete(c.conns, conn)
	c.mu.Unlock()
}

// shakeHands answers the challenge and waits for the welcome.
func (c *Conn) shakeHands(ctx context.Context) (wire.Welcome, error) {
	limit := time.NewTimer(handshakeFor)
	defer limit.Stop()
	frame, err := c.expect(ctx, limit.C, wire.TypeChallenge)
	if err != nil {
		return wire.Welcome{}, err
	}
	challenge, err := wire.Decode[wire.Challenge](frame)
	if err != nil {
		return wire.Welcome{}, err
	}
	hello, err := c.client.hello(challenge)
	if err != nil {
		return wire.Welcome{}, err
	}
	c.link.push(hello)
	if frame, err = c.expect(ctx, limit.C, wire.TypeWelcome); err != nil {
		return wire.Welcome{}, err
	}
	return wire.Decode[wire.Welcome](frame)
}

// expect waits for a frame of one type.
func (c *Conn) expect(ctx context.Context, limit <-chan time.Time, t wire.FrameType) ([]byte, error) {
	for {
		a, ok, over := c.take()
		switch {
		case ok && a.head.Type == t:
			c.link.budget.Release(a.held)
			return a.frame, nil
		case ok:
			c.link.budget.Release(a.held)
			continue // a type that we don't know yet
		case over:
			return nil, ErrEnded
		}
		select {
		case <-c.notify:
		case <-limit:
			return nil, errors.New("session: the relay did not finish the handshake")
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// hello signs the answer to a challenge.
func (c *Client) hello(ch wire.Challenge) ([]byte, error) {
	body := wire.HelloBody{Nonce: ch.Nonce, Relay: c.url, Role: c.cfg.Role}
	c.cfg.Body(&body)
	text, err := wire.Encode(body)
	if err != nil {
		return nil, err
	}
	endpoint := wire.EndpointDaemon
	if c.cfg.Role == wire.RoleSite {
		endpoint = wire.EndpointSite
	}
	at := c.wall().UnixMilli()
	frame, err := wire.Encode(wire.Hello{
		Type: wire.TypeHello, Caller: c.cfg.Caller, IssuedAt: at,
		Signature: c.cfg.Sign(endpoint, c.cfg.Caller, at, text), Body: string(text),
	})
	if err == nil && len(frame) > wire.MaxHelloBytes {
		err = fmt.Errorf("session: the hello has %d bytes and may have %d; name fewer leases or capabilities", len(frame), wire.MaxHelloBytes)
	}
	return frame, err
}

// why makes the error of a session of how it ended; before it ended, err is what there is to say.
func (c *Conn) why(err error) error {
	c.mu.Lock()
	e, refusal := c.end, c.refusal
	c.mu.Unlock()
	if !errors.Is(err, ErrEnded) && e.Reason == ReasonClosed {
		return err // we gave up ourselves
	}
	retry := RetryBackoff
	if e.Code != 0 {
		_, retry = receivedEnd(e.Code, e.Text)
	}
	return &ended{end: e, retry: retry, refusal: refusal}
}

// serve calls the handler, in order, until the session is over.
func (c *Conn) serve(ctx context.Context, w wire.Welcome) {
	defer close(c.done)
	defer c.client.forget(c)
	h := c.client.cfg.Handler
	h.Welcome(ctx, c, w)
	for {
		a, ok, over := c.take()
		switch {
		case ok:
			h.Push(ctx, c, wire.Head{Type: a.head.Type, ID: a.head.ID}, a.frame)
			c.link.budget.Release(a.held)
		case over:
			e := c.End()
			c.client.log.Info().Str("session", c.id).Int("code", int(e.Code)).Str("reason", string(e.Reason)).Str("text", e.Text).
				Dur("duration_ms", c.link.age()).Msg("session ended")
			h.Ended(c, e)
			return
		default:
			<-c.notify
		}
	}
}

// live waits for the end of a session, and replaces it when the relay asks for that: then it answers the new one. The
// error is nil when there's nothing more to do.
func (c *Client) live(ctx context.Context, conn *Conn, s *schedule) (*Conn, error) {
	c.log.Info().Str("session", conn.id).Msg("session begins")
	var again *time.Timer
	var due <-chan time.Time
	defer func() {
		if again != nil {
			again.Stop()
		}
	}()
	welcomed := time.Now()
	for {
		select {
		case <-ctx.Done():
			conn.Close("the client stops")
			<-conn.done
			return nil, nil
		case <-conn.done:
			s.lasted(time.Since(welcomed))
			if conn.End().Reason == ReasonClosed {
				return nil, nil
			}
			return nil, conn.why(ErrEnded)
		case g := <-conn.goaway:
			again = time.NewTimer(time.Duration(max(0, g.ReconnectAfterMs)) * time.Millisecond)
			due = again.C
		case <-due:
			next, err := c.connect(ctx)
			if err == nil {
				s.lasted(time.Since(welcomed))
				conn.replaced.Store(true)
				conn.Close("replaced")
				return next, nil
			}
			wait, err := c.next(s, err)
			if err != nil {
				due = nil // the end of this session will say it again
				continue
			}
			again.Reset(wait)
		}
	}
}

// tick drives the times of the sessions, and finds out that the machine slept: its connections are dead then, though
// nothing says so, because the clock of all timers stood still.
func (c *Client) tick(ctx context.Context) {
	t := time.NewTicker(tickEvery)
	defer t.Stop()
	wall, mono := c.wall(), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		nowWall, nowMono := c.wall(), time.Now()
		slept := nowWall.Sub(wall)-nowMono.Sub(mono) >= sleptFor
		wall, mono = nowWall, nowMono
		c.mu.Lock()
		conns := make([]*Conn, 0, len(c.conns))
		for conn := range c.conns {
			conns = append(conns, conn)
		}
		c.mu.Unlock()
		for _, conn := range conns {
			if slept {
				conn.link.end(End{Reason: ReasonCut, Text: "the machine slept"})
			}
			conn.link.tick()
		}
	}
}
