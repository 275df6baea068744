package endtoend

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
)

// dialer is a network that a test can cut for one client.
type dialer struct {
	// Set before it is used.
	via  string                    // dialled in place of the relay, when set: a proxy before it
	wrap func(c net.Conn) net.Conn // put around each connection, when set

	mu    sync.Mutex
	dead  bool
	conns []net.Conn
}

func newDialer() *dialer { return &dialer{} }

func (d *dialer) transport() http.RoundTripper {
	return &http.Transport{DisableKeepAlives: true, DialContext: d.dial}
}

func (d *dialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if d.via != "" {
		addr = d.via
	}
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	if d.wrap != nil {
		c = d.wrap(c)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead {
		return nil, errors.Join(errors.New("the network is down"), c.Close())
	}
	d.conns = append(d.conns, c)
	return c, nil
}

// cut breaks every connection; with dead set no new one comes about before heal.
func (d *dialer) cut(dead bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dead = dead
	for _, c := range d.conns {
		_ = c.Close() // it may be closed already
	}
	d.conns = nil
}

func (d *dialer) heal() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dead = false
}
