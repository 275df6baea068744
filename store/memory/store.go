// Package memory is the store that forgets: everything in one process, for one replica and for tests.
//
// Machine holds the state, the rules and the indexes; Store adds the lock, the clock and the watchers. An operation
// runs whole under the one mutex, and its events are published before the mutex is released, in the order of the
// changes. Nothing runs in the background: due times act when Claim or Sweep fires them.
//
// Locks: Store.mu, then Watchers.mu, then a watcher's mu.
package memory

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"

	"pushrelay/store"
)

// Options configure a store. Zero settings mean the defaults; a nil Clock is time.Now.
type Options struct {
	Settings store.Settings
	Clock    func() time.Time
}

// Store is a RoutingStore in memory. Envelopes are kept as the slices given, which belong to the store from then on.
type Store struct {
	clock func() time.Time
	epoch string

	watchers Watchers

	mu     sync.Mutex
	m      *Machine // guarded by mu
	closed bool     // guarded by mu
}

var _ store.RoutingStore = (*Store)(nil)

// New makes an empty store with an epoch of its own.
func New(o Options) *Store {
	clock := o.Clock
	if clock == nil {
		clock = time.Now
	}
	return &Store{
		clock: clock,
		epoch: uuid.NewString(),
		m:     NewMachine(o.Settings, clock()),
	}
}

// do runs one operation under the lock and publishes what happened, whatever it answers.
func do[T any](s *Store, op func(*Machine) (T, error)) (T, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		var zero T
		return zero, store.ErrUnavailable
	}
	s.m.Begin(s.clock())
	out, err := op(s.m)
	s.watchers.Publish(s.m.Events())
	return out, err
}

// run is do for an operation that can't be refused.
func run[T any](s *Store, op func(*Machine) T) (T, error) {
	return do(s, func(m *Machine) (T, error) { return op(m), nil })
}

// none is the answer of operations that answer nothing.
type none struct{}

// Watch is Keeper's. A watcher is for one reader at a time; a slice that Wait answered is good until the next Wait.
func (s *Store) Watch(in store.Interest) store.Watcher { return s.watchers.Watch(in) }

// Now is Keeper's.
func (s *Store) Now(context.Context) (time.Time, error) {
	return run(s, func(m *Machine) time.Time { return moment(m.now) })
}

// Epoch is Keeper's.
func (s *Store) Epoch(context.Context) (string, error) {
	return run(s, func(*Machine) string { return s.epoch })
}

// Close is Keeper's. What was kept is let go; closing again does nothing.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	s.watchers.Close()
	s.m = nil
	return nil
}
