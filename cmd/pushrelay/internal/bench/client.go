package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/rs/zerolog"

	"pushrelay/session"
	"pushrelay/wire"
)

// maxUnanswered is how many requests a client has unanswered at most, a little below what ends a session.
const maxUnanswered = wire.MaxRequests - 4

// member is what a site and a daemon of a bench do beside keeping a session.
type member interface {
	// push acts on one push; it must not block.
	push(head wire.Head, frame []byte) error
}

// client keeps one session of a bench and sends its requests.
type client struct {
	ledger *ledger
	does   member
	ready  chan struct{} // closed with the first welcome

	closing atomic.Bool

	mu         sync.Mutex
	conn       *session.Conn
	unanswered int
	waiting    []func() // requests beyond maxUnanswered, in their order
}

func newClient(l *ledger, does member) *client {
	return &client{ledger: l, does: does, ready: make(chan struct{})}
}

// keep runs the session until ctx ends.
func (c *client) keep(ctx context.Context, cfg session.ClientConfig) {
	cfg.Handler = c
	cfg.Log = zerolog.Nop()
	s, err := session.NewClient(cfg)
	if err == nil {
		err = s.Run(ctx)
	}
	if err != nil && ctx.Err() == nil {
		c.ledger.fail(fmt.Errorf("%s: %w", cfg.Caller, err))
	}
}

// Welcome implements session.ClientHandler.
func (c *client) Welcome(_ context.Context, conn *session.Conn, _ wire.Welcome) {
	c.mu.Lock()
	again := c.conn != nil
	c.conn = conn
	c.mu.Unlock()
	if !again {
		close(c.ready)
	}
}

// Push implements session.ClientHandler.
func (c *client) Push(_ context.Context, _ *session.Conn, head wire.Head, frame []byte) {
	c.ledger.frames.Add(1)
	c.ledger.fail(c.does.push(head, frame))
}

// Ended implements session.ClientHandler. Every session must last as long as its bench.
func (c *client) Ended(_ *session.Conn, end session.End) {
	if !c.closing.Load() {
		c.ledger.failf("a session ended in the middle of a bench: %s, code %d, %q", end.Reason, end.Code, end.Text)
	}
}

// request sends a request once it may, and hands its reply to answered on another goroutine. Errors fail the bench.
func (c *client) request(build func(dst []byte, id string) []byte, answered func(reply []byte) error) {
	send := func() { go c.await(build, answered) }
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unanswered >= maxUnanswered {
		c.waiting = append(c.waiting, send)
		return
	}
	c.unanswered++
	send()
}

func (c *client) await(build func(dst []byte, id string) []byte, answered func(reply []byte) error) {
	reply, err := c.conn.Request(context.Background(), build)
	c.ledger.frames.Add(2)
	c.mu.Lock()
	if len(c.waiting) > 0 {
		next := c.waiting[0]
		c.waiting = c.waiting[1:]
		next()
	} else {
		c.unanswered--
	}
	c.mu.Unlock()
	if err == nil {
		err = answered(reply)
	}
	if !errors.Is(err, session.ErrEnded) && !c.ledger.forgives(err) { // keep tells of an end that the bench didn't want
		c.ledger.fail(err)
	}
}

// clientConfig is what the sessions of a bench share.
func clientConfig(addr string, p *party, role string, transport http.RoundTripper, slots int) session.ClientConfig {
	return session.ClientConfig{
		URL: "ws://" + addr, Caller: p.id, Role: role, Sign: p.keys.SignRequest, Transport: transport,
		Body: func(b *wire.HelloBody) {
			b.ProtocolVersion = string(wire.Dialect0)
			b.Client = wire.ClientInfo{Name: "pushrelay-bench", Version: "1"}
			if role == wire.RoleDaemon {
				b.Capabilities, b.Slots = capabilities(), slots
			}
		},
	}
}
