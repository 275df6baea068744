package bench

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"pushrelay/wire"
)

// Bounds of the parts of a run that aren't measured.
const (
	connectFor = 60 * time.Second
	fillFor    = 120 * time.Second
	drainFor   = 60 * time.Second
	dialWidth  = 32 // dials at once, below what a relay allows one address before it knows who is there
)

// fleet is the sites and daemons of one round, all connected.
type fleet struct {
	ledger  *ledger
	sites   []*site
	daemons []*daemon
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// connect brings everybody up; daemons first, so that the first jobs find them.
func connect(ctx context.Context, addr string, w *world, s *sealed, l *ledger, slots int) (*fleet, error) {
	ctx, cancel := context.WithCancel(ctx)
	f := &fleet{ledger: l, cancel: cancel}
	transport := loopback()
	for i := range w.daemons {
		d := &daemon{world: w, sealed: s, number: i}
		d.client = newClient(l, d)
		f.daemons = append(f.daemons, d)
	}
	for i := range w.sites {
		f.sites = append(f.sites, newSite(l, w, s, i))
	}
	err := parallel(len(f.daemons), dialWidth, func(i int) error {
		return f.up(ctx, f.daemons[i].client, addr, w.daemons[i], wire.RoleDaemon, transport, slots)
	})
	if err == nil {
		err = parallel(len(f.sites), dialWidth, func(i int) error {
			return f.up(ctx, f.sites[i].client, addr, w.sites[i], wire.RoleSite, transport, 0)
		})
	}
	if err != nil {
		f.close()
	}
	return f, err
}

func (f *fleet) up(
	ctx context.Context, c *client, addr string, p *party, role string, transport http.RoundTripper, slots int,
) error {
	f.running.Go(func() { c.keep(ctx, clientConfig(addr, p, role, transport, slots)) })
	timer := time.NewTimer(connectFor)
	defer timer.Stop()
	select {
	case <-c.ready:
		return nil
	case <-f.ledger.failed:
		return f.ledger.err
	case <-timer.C:
		return fmt.Errorf("%s wasn't welcome within %v", p.id, connectFor)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// fill opens that many jobs, evenly over sites and owners, and returns when all are answered.
func (f *fleet) fill(ctx context.Context, open, owners int) error {
	lists := make([][]int32, len(f.sites))
	for i := range open {
		at := i % len(f.sites)
		lists[at] = append(lists[at], int32((i/len(f.sites)+at*owners/len(f.sites))%owners))
	}
	var all sync.WaitGroup
	for i, s := range f.sites {
		if len(lists[i]) > 0 {
			all.Add(1)
			s.enqueue(lists[i], all.Done)
		}
	}
	answered := make(chan struct{})
	go func() { all.Wait(); close(answered) }()
	ctx, cancel := context.WithTimeout(ctx, fillFor)
	defer cancel()
	select {
	case <-answered:
		return nil
	case <-f.ledger.failed:
		return f.ledger.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// finish lets every open job end, or cancels what still waits, and checks all of them.
func (f *fleet) finish(ctx context.Context, cancelQueued bool) (counts, error) {
	ctx, cancel := context.WithTimeout(ctx, drainFor)
	defer cancel()
	f.ledger.ending.Store(true)
	if cancelQueued {
		f.ledger.cancels.Store(true)
		for _, s := range f.sites {
			s.cancelQueued()
		}
	}
	for _, s := range f.sites {
		if err := s.drain(ctx); err != nil {
			return counts{}, err
		}
	}
	for _, d := range f.daemons {
		d.settled() // its last result may be collected before it is answered
	}
	made := make([]int, len(f.sites))
	for i, s := range f.sites {
		s.mu.Lock()
		made[i] = len(s.owners)
		s.mu.Unlock()
	}
	return f.ledger.settle(made)
}

// pause waits, unless something failed.
func (f *fleet) pause(ctx context.Context, span time.Duration) error {
	if err := pause(ctx, span, f.ledger.failed); err != nil {
		return err
	}
	select {
	case <-f.ledger.failed:
		return f.ledger.err
	default:
		return nil
	}
}

func (f *fleet) close() {
	for _, d := range f.daemons {
		d.closing.Store(true)
	}
	for _, s := range f.sites {
		s.closing.Store(true)
	}
	f.cancel()
	f.running.Wait()
}

// loopback is a transport that dials as it is told, without proxies.
func loopback() http.RoundTripper {
	return &http.Transport{DisableKeepAlives: true}
}
