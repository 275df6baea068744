// Package throttle is a TCP proxy for tests: a slow link, a stuck peer, a cut.
package throttle

import (
	"context"
	"net"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Proxy forwards connections to one address, both ways at a bounded rate.
type Proxy struct {
	listener net.Listener
	target   string
	perSec   int
	ctx      context.Context
	cancel   context.CancelFunc
	wg       sync.WaitGroup

	mu     sync.Mutex
	open   sync.Cond // of mu: not stuck any more
	stuck  bool
	closed bool
	conns  map[net.Conn]struct{}
}

const (
	chunk = 4 << 10
	// socketBuffer keeps a bounded link from looking fast: what the system would buffer before it, megabytes on a loopback,
	// arrives at once and hides every queue behind it.
	socketBuffer = 32 << 10
)

// New starts a proxy on a free loopback port; bytesPerSecond bounds each direction of each connection, 0 is unbounded.
func New(target string, bytesPerSecond int) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &Proxy{listener: l, target: target, perSec: bytesPerSecond, ctx: ctx, cancel: cancel, conns: map[net.Conn]struct{}{}}
	p.open.L = &p.mu
	p.wg.Go(p.accept)
	return p, nil
}

// Addr is where the proxy listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Stick stops all forwarding, as a network that is gone does: nothing is closed. Unstick goes on.
func (p *Proxy) Stick() { p.set(true) }

// Unstick ends what Stick began.
func (p *Proxy) Unstick() { p.set(false) }

func (p *Proxy) set(stuck bool) {
	p.mu.Lock()
	p.stuck = stuck
	p.mu.Unlock()
	p.open.Broadcast()
}

// Cut closes all connections; new ones are accepted.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

// Close ends everything and returns when all goroutines are gone.
func (p *Proxy) Close() {
	p.cancel()
	_ = p.listener.Close()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.open.Broadcast()
	p.Cut()
	p.wg.Wait()
}

func (p *Proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		up, err := net.DialTimeout("tcp", p.target, 5*time.Second)
		if err != nil {
			_ = c.Close()
			continue
		}
		if p.perSec > 0 {
			narrow(c)
			narrow(up)
		}
		if !p.keep(c, up) {
			return
		}
		p.wg.Go(func() { p.pipe(up, c) })
		p.wg.Go(func() { p.pipe(c, up) })
	}
}

// narrow bounds what the system buffers for a connection.
func narrow(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(socketBuffer)
		_ = tcp.SetWriteBuffer(socketBuffer)
	}
}

func (p *Proxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		if p.closed {
			_ = c.Close()
			continue
		}
		p.conns[c] = struct{}{}
	}
	return !p.closed
}

func (p *Proxy) pipe(dst, src net.Conn) {
	defer p.forget(dst, src)
	limit := rate.NewLimiter(rate.Inf, chunk)
	if p.perSec > 0 {
		limit = rate.NewLimiter(rate.Limit(p.perSec), chunk)
	}
	buf := make([]byte, chunk)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			if !p.pass() || limit.WaitN(p.ctx, n) != nil {
				return
			}
			if _, err := dst.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// pass waits while the proxy is stuck.
func (p *Proxy) pass() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.stuck && !p.closed {
		p.open.Wait()
	}
	return !p.closed
}

func (p *Proxy) forget(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
		delete(p.conns, c)
	}
}
