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
	waiting    []request // beyond maxUnanswered, in their order
	quiet      sync.Cond // of mu: unanswered is 0
}

func newClient(l *ledger, does member) *client {
	c := &client{ledger: l, does: does, ready: make(chan struct{})}
	c.quiet.L = &c.mu
	return c
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

// request is one that a client has to send. answered is called with its reply, on the goroutine that reads.
type request struct {
	build    func(dst []byte, id string) []byte
	answered func(id string, reply []byte) error
}

// request sends a request once it may. Errors fail the bench.
func (c *client) request(
	build func(dst []byte, id string) []byte, answered func(id string, reply []byte) error,
) {
	r := request{build, answered}
	c.mu.Lock()
	full := c.unanswered >= maxUnanswered
	if full {
		c.waiting = append(c.waiting, r)
	} else {
		c.unanswered++
	}
	c.mu.Unlock()
	if !full {
		c.send(r)
	}
}

func (c *client) send(r request) {
	var id string
	err := c.conn.Send(func(dst []byte, given string) []byte {
		id = given
		return r.build(dst, given)
	}, func(reply []byte, err error) {
		if err == nil {
			c.ledger.frames.Add(2)
			err = r.answered(id, reply)
		}
		c.judge(err)
		c.next()
	})
	if err != nil {
		c.judge(err)
		c.next()
	}
}

// next sends what waited for an answer, or notes that less is under way.
func (c *client) next() {
	c.mu.Lock()
	if len(c.waiting) == 0 {
		c.unanswered--
		if c.unanswered == 0 {
			c.quiet.Broadcast()
		}
		c.mu.Unlock()
		return
	}
	r := c.waiting[0]
	c.waiting[0] = request{}
	c.waiting = c.waiting[1:]
	c.mu.Unlock()
	c.send(r)
}

// judge fails the bench, but for what an end that it wanted brings with it; Ended tells of other ends.
func (c *client) judge(err error) {
	if !errors.Is(err, session.ErrEnded) && !c.ledger.forgives(err) {
		c.ledger.fail(err)
	}
}

// settled waits until every request is answered.
func (c *client) settled() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.unanswered > 0 {
		c.quiet.Wait()
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
