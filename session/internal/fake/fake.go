// Package fake has a relay's end of a session for the tests of both client ends: in memory, without a socket.
package fake

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"pushrelay/session"
	"pushrelay/wire"
)

// Script answers a request.
type Script func(ctx context.Context, frame []byte) ([]byte, error)

// Conn records requests and answers them as a quiet relay would, unless a script for the type says otherwise.
type Conn struct {
	id    string
	quiet func(h wire.Head, frame []byte) ([]byte, error)
	over  chan struct{}

	mu      sync.Mutex
	frames  [][]byte
	scripts map[wire.FrameType]Script
}

// New makes a session whose requests quiet answers.
func New(id string, quiet func(h wire.Head, frame []byte) ([]byte, error)) *Conn {
	return &Conn{id: id, quiet: quiet, over: make(chan struct{}), scripts: map[wire.FrameType]Script{}}
}

// SessionID answers the session's id.
func (c *Conn) SessionID() string { return c.id }

// End ends the session: no request is answered any more.
func (c *Conn) End() { close(c.over) }

// On has a script answer the requests of a type; nil has none.
func (c *Conn) On(t wire.FrameType, s Script) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.scripts[t] = s
}

// Refuse answers every request of a type with an error.
func (c *Conn) Refuse(t wire.FrameType, e error) {
	c.On(t, func(context.Context, []byte) ([]byte, error) { return nil, e })
}

// Hang never answers requests of a type; they end with the session.
func (c *Conn) Hang(t wire.FrameType) {
	c.On(t, func(ctx context.Context, _ []byte) ([]byte, error) {
		select {
		case <-c.over:
			return nil, session.ErrEnded
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
}

// Request is a client end's small request.
func (c *Conn) Request(ctx context.Context, build func(dst []byte, id string) []byte) ([]byte, error) {
	return c.do(ctx, func(id string) []byte { return build(nil, id) })
}

// RequestBulk is a client end's large request.
func (c *Conn) RequestBulk(ctx context.Context, build func(id string) [][]byte) ([]byte, error) {
	return c.do(ctx, func(id string) []byte {
		var frame []byte
		for _, p := range build(id) {
			frame = append(frame, p...)
		}
		return frame
	})
}

func (c *Conn) do(ctx context.Context, build func(id string) []byte) ([]byte, error) {
	c.mu.Lock()
	select {
	case <-c.over:
		c.mu.Unlock()
		return nil, session.ErrEnded
	default:
	}
	frame := build(fmt.Sprintf("r%d", len(c.frames)+1))
	c.frames = append(c.frames, frame)
	head, err := wire.DecodeHead(frame)
	if err != nil {
		panic(err)
	}
	s := c.scripts[head.Type]
	c.mu.Unlock()
	if s != nil {
		return s(ctx, frame)
	}
	return c.quiet(head, frame)
}

// Types lists the types of all requests, in order.
func (c *Conn) Types() []wire.FrameType {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []wire.FrameType
	for _, f := range c.frames {
		h, _ := wire.DecodeHead(f)
		out = append(out, h.Type)
	}
	return out
}

// Sent lists the requests of a type, in order.
func Sent[T any](t testing.TB, c *Conn, typ wire.FrameType) []T {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []T
	for _, f := range c.frames {
		h, err := wire.DecodeHead(f)
		require.NoError(t, err)
		if h.Type == typ {
			v, err := wire.Decode[T](f)
			require.NoError(t, err)
			out = append(out, v)
		}
	}
	return out
}
