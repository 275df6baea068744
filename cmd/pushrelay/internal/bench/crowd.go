package bench

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"pushrelay/session"
	"pushrelay/wire"
)

// crowd is daemons that are connected and do nothing, each through the client that real daemons use: one that was cut
// comes back by that client's rules.
type crowd struct {
	cancel  context.CancelFunc
	running sync.WaitGroup
	absent  atomic.Int64
	dials   atomic.Int64
	cutAt   atomic.Int64  // ns since begin
	slowest atomic.Int64  // ns, the longest wait since the cut
	begin   time.Time     // monotonic
	failed  chan error    // a client gave up; room for one
	back    chan struct{} // an entry when nobody is absent any more

	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

// gather connects all daemons of a world and returns when all are welcome.
func gather(ctx context.Context, addr string, w *world) (*crowd, error) {
	ctx, cancel := context.WithCancel(ctx)
	c := &crowd{
		cancel: cancel, begin: time.Now(), failed: make(chan error, 1), back: make(chan struct{}, 1),
		conns: map[net.Conn]struct{}{},
	}
	c.absent.Store(int64(len(w.daemons)))
	transport := &http.Transport{DisableKeepAlives: true, DialContext: c.dial}
	err := parallel(len(w.daemons), dialWidth, func(i int) error { return c.join(ctx, addr, w.daemons[i], transport) })
	if err == nil {
		err = c.wait(ctx)
	}
	if err != nil {
		c.close()
	}
	return c, err
}

// join starts one client and waits for its first welcome, so that a crowd arrives in good order.
func (c *crowd) join(ctx context.Context, addr string, p *party, transport http.RoundTripper) error {
	one := &idler{crowd: c, first: make(chan struct{})}
	cfg := clientConfig(addr, p, wire.RoleDaemon, transport, 1)
	cfg.Handler, cfg.Log = one, zerolog.Nop()
	s, err := session.NewClient(cfg)
	if err != nil {
		return err
	}
	c.running.Go(func() {
		if err := s.Run(ctx); err != nil && ctx.Err() == nil {
			c.fail(fmt.Errorf("%s: %w", p.id, err))
		}
	})
	timer := time.NewTimer(connectFor)
	defer timer.Stop()
	select {
	case <-one.first:
		return nil
	case err := <-c.failed:
		c.fail(err)
		return err
	case <-timer.C:
		return fmt.Errorf("%s wasn't welcome within %v", p.id, connectFor)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *crowd) fail(err error) {
	select {
	case c.failed <- err:
	default:
	}
}

func (c *crowd) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c.dials.Add(1)
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, addr)
	if err == nil {
		c.mu.Lock()
		c.conns[conn] = struct{}{}
		c.mu.Unlock()
	}
	return conn, err
}

// cut resets all connections at once. All members are absent from then on.
func (c *crowd) cut() {
	c.mu.Lock()
	conns := c.conns
	c.conns = make(map[net.Conn]struct{}, len(conns))
	c.mu.Unlock()
	c.slowest.Store(0)
	c.cutAt.Store(int64(time.Since(c.begin)))
	for conn := range conns {
		if t, ok := conn.(*net.TCPConn); ok {
			_ = t.SetLinger(0)
		}
		_ = conn.Close()
	}
}

// wait blocks until nobody is absent.
func (c *crowd) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, gatherFor)
	defer cancel()
	select {
	case <-c.back:
		return nil
	case err := <-c.failed:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%d sessions are still absent: %w", c.absent.Load(), context.Cause(ctx))
	}
}

func (c *crowd) close() {
	c.cancel()
	c.running.Wait()
}

// idler is one member of a crowd.
type idler struct {
	crowd *crowd
	first chan struct{}
	once  sync.Once
}

// Welcome implements session.ClientHandler.
func (i *idler) Welcome(context.Context, *session.Conn, wire.Welcome) {
	c := i.crowd
	i.once.Do(func() { close(i.first) })
	wait := int64(time.Since(c.begin)) - c.cutAt.Load()
	for old := c.slowest.Load(); wait > old && !c.slowest.CompareAndSwap(old, wait); {
		old = c.slowest.Load()
	}
	if c.absent.Add(-1) == 0 {
		c.back <- struct{}{}
	}
}

// Push implements session.ClientHandler.
func (*idler) Push(context.Context, *session.Conn, wire.Head, []byte) {}

// Ended implements session.ClientHandler.
func (i *idler) Ended(*session.Conn, session.End) { i.crowd.absent.Add(1) }
