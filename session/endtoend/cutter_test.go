package endtoend

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pushrelay/wire"
)

// cutter is a proxy that reads what the relay sends frame by frame, and cuts the connection once: right before or right
// after a frame of one kind was handed to the client. The relay has written it in both cases and can't tell them apart.
type cutter struct {
	listener net.Listener
	target   string
	kind     string
	before   bool
	struck   chan struct{} // closed when it has cut
	wg       sync.WaitGroup

	mu     sync.Mutex
	done   bool
	closed bool
	conns  map[net.Conn]struct{}
}

func newCutter(t *testing.T, target, kind string, before bool) *cutter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := &cutter{
		listener: l, target: target, kind: kind, before: before, struck: make(chan struct{}), conns: map[net.Conn]struct{}{},
	}
	c.wg.Go(c.accept)
	t.Cleanup(c.close)
	return c
}

// dialer dials through the cutter.
func (c *cutter) dialer() *dialer {
	d := newDialer()
	d.via = c.listener.Addr().String()
	return d
}

func (c *cutter) close() {
	_ = c.listener.Close()
	c.mu.Lock()
	c.closed = true
	for conn := range c.conns {
		_ = conn.Close()
	}
	c.mu.Unlock()
	c.wg.Wait()
}

func (c *cutter) accept() {
	for {
		down, err := c.listener.Accept()
		if err != nil {
			return
		}
		up, err := net.DialTimeout("tcp", c.target, 5*time.Second)
		if err != nil {
			_ = down.Close()
			continue
		}
		c.mu.Lock()
		c.conns[down], c.conns[up] = struct{}{}, struct{}{}
		closed := c.closed
		c.mu.Unlock()
		if closed {
			_, _ = down.Close(), up.Close()
			return
		}
		types := &asked{types: map[string]wire.FrameType{}}
		c.wg.Go(func() { c.toRelay(up, down, types) })
		c.wg.Go(func() { c.toClient(down, up, types) })
	}
}

// asked remembers the types of a connection's requests, by id.
type asked struct {
	mu    sync.Mutex
	types map[string]wire.FrameType
}

// kind names a frame of the relay: a push by its type, an answer by what it answers, "part" for bulk.
func (a *asked) kind(f wsFrame) string {
	if f.op == opBinary {
		return "part"
	}
	what := saying(f)
	if what.Re == "" {
		return string(what.Type)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return string(what.Type) + " to " + string(a.types[what.Re])
}

func (c *cutter) toRelay(up, down net.Conn, types *asked) {
	defer c.drop(up, down)
	var frames wsReader
	pump(down, func(p []byte) bool {
		_, got := frames.feed(p)
		for _, f := range got {
			what := saying(f)
			types.mu.Lock()
			types.types[what.ID] = what.Type
			types.mu.Unlock()
		}
		_, err := up.Write(p)
		return err == nil
	})
}

func (c *cutter) toClient(down, up net.Conn, types *asked) {
	defer c.drop(up, down)
	var frames wsReader
	pump(up, func(p []byte) bool {
		head, got := frames.feed(p)
		if _, err := down.Write(head); err != nil {
			return false
		}
		for _, f := range got {
			cut := c.strikes(types.kind(f))
			if cut && c.before {
				return false
			}
			if _, err := down.Write(f.raw); err != nil || cut {
				return false
			}
		}
		return true
	})
}

// strikes reports, once, that it is time to cut.
func (c *cutter) strikes(kind string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done || kind != c.kind {
		return false
	}
	c.done = true
	close(c.struck)
	return true
}

func (c *cutter) drop(conns ...net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range conns {
		_ = conn.Close()
		delete(c.conns, conn)
	}
}

// pump reads until the connection or use ends.
func pump(from net.Conn, use func(p []byte) bool) {
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && !use(buf[:n]) || err != nil {
			return
		}
	}
}
