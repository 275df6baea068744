// Package pipe has connections in memory, so that tests of servers may run in fake time.
package pipe

import (
	"context"
	"net"
	"sync"
)

// Listener is one whose connections are handed to it. New makes one.
type Listener struct {
	Wrap func(net.Conn) net.Conn // the server's ends of Dial, when set

	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

// New makes a listener.
func New() *Listener { return &Listener{conns: make(chan net.Conn), done: make(chan struct{})} }

// Accept waits for a connection; net.ErrClosed after Close.
func (p *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

// Close ends it; connections stay.
func (p *Listener) Close() error { p.once.Do(func() { close(p.done) }); return nil }

// Addr is a made-up one.
func (p *Listener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// Dial is a dialer's: it blocks until the connection is accepted. Its client is 192.0.2.1.
func (p *Listener) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	if p.Wrap != nil {
		server = p.Wrap(server)
	}
	if err := p.Hand(ctx, server, 1); err != nil {
		return nil, err
	}
	return client, nil
}

// Hand gives it a server's end of a client at 192.0.2.ip, and blocks until that is accepted.
func (p *Listener) Hand(ctx context.Context, server net.Conn, ip byte) error {
	select {
	case p.conns <- named{server, ip}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-p.done:
		return net.ErrClosed
	}
}

// named gives a pipe an address.
type named struct {
	net.Conn
	ip byte
}

func (n named) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, n.ip), Port: 1} }
