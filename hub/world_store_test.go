package hub

import (
	"context"
	"sync/atomic"
	"time"

	"pushrelay/store"
	"pushrelay/wire"
)

// switchStore is a store whose events can be swallowed and whose calls can fail.
type switchStore struct {
	store.RoutingStore
	swallow atomic.Bool
	fail    atomic.Bool
	claims  atomic.Int64
	// onClaim runs between a claim and its answer, onHeld before a runner's grants are read.
	onClaim func()
	onHeld  func(runner string)
	// onAttach runs before a session is attached.
	onAttach func(p store.Party)
}

func (s *switchStore) Held(ctx context.Context, runner string) ([]store.Job, error) {
	if s.onHeld != nil {
		s.onHeld(runner)
	}
	return s.RoutingStore.Held(ctx, runner)
}

func (s *switchStore) Watch(in store.Interest) store.Watcher {
	return &switchWatcher{Watcher: s.RoutingStore.Watch(in), s: s}
}

type switchWatcher struct {
	store.Watcher
	s *switchStore
}

func (w *switchWatcher) Wait(ctx context.Context) ([]store.Event, error) {
	for {
		events, err := w.Watcher.Wait(ctx)
		if err != nil || !w.s.swallow.Load() {
			return events, err
		}
	}
}

func (s *switchStore) Claim(ctx context.Context, c store.Claim) ([]store.Claimed, error) {
	s.claims.Add(1)
	if s.fail.Load() {
		return nil, store.ErrUnavailable
	}
	out, err := s.RoutingStore.Claim(ctx, c)
	if s.onClaim != nil && len(out) > 0 {
		s.onClaim()
	}
	return out, err
}

func (s *switchStore) Renew(ctx context.Context, runner string, g []wire.Grant, d time.Duration) ([]wire.Grant, error) {
	if s.fail.Load() {
		return nil, store.ErrUnavailable
	}
	return s.RoutingStore.Renew(ctx, runner, g, d)
}

func (s *switchStore) Attach(ctx context.Context, p store.Party, id string, d time.Duration) (uint64, error) {
	if s.fail.Load() {
		return 0, store.ErrUnavailable
	}
	if s.onAttach != nil {
		s.onAttach(p)
	}
	return s.RoutingStore.Attach(ctx, p, id, d)
}

func (s *switchStore) Backlog(ctx context.Context, site string) ([]store.Backlog, error) {
	if s.fail.Load() {
		return nil, store.ErrUnavailable
	}
	return s.RoutingStore.Backlog(ctx, site)
}
