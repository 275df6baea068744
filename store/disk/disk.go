// Package disk is the store that keeps: the state machine of store/memory, with every change committed to a bbolt file
// before the call returns (design, section 3).
package disk

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"pushrelay/store"
	"pushrelay/store/memory"
)

// fileName is the database in its folder.
const fileName = "pushrelay.db"

// Options configure a store. Zero settings mean the defaults; a nil Clock is time.Now.
type Options struct {
	Dir      string // made when missing
	Settings store.Settings
	Clock    func() time.Time
	Observer Observer // nil: nobody is told
}

// Observer is told of rare events. Its methods don't block and may be called by any goroutine.
type Observer interface {
	// Failed is told once for each outage: a commit failed, and until Recovered changes are refused.
	Failed(err error)
	// Recovered is told when commits succeed again.
	Recovered(after time.Duration)
	// Unreadable is told of each record that this build can't read. It is left where it is.
	Unreadable(seq uint64, err error)
}

// Store is a RoutingStore on disk.
type Store struct {
	clock    func() time.Time
	set      store.Settings
	epoch    string
	lock     *os.File
	observer Observer
	watchers memory.Watchers

	mu     sync.Mutex
	db     *bbolt.DB       // guarded by mu
	m      *memory.Machine // guarded by mu
	err    error           // guarded by mu: of the last commit
	failed time.Time       // guarded by mu: since when commits fail
	closed bool            // guarded by mu
}

var _ store.RoutingStore = (*Store)(nil)

// Open opens the store in a folder, or makes one. Errors: *LockedError, *ForeignError, *VersionError, and what the
// operating system says.
func Open(ctx context.Context, o Options) (*Store, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	held, err := lock(ctx, o.Dir)
	if err != nil {
		return nil, err
	}
	s := &Store{clock: o.Clock, set: o.Settings, observer: o.Observer, lock: held}
	if s.clock == nil {
		s.clock = time.Now
	}
	s.db, err = openFile(filepath.Join(o.Dir, fileName))
	if err == nil {
		err = s.load()
	}
	if err != nil {
		if s.db != nil {
			_ = s.db.Close()
		}
		_ = held.Close()
		return nil, err
	}
	return s, nil
}

// Err answers why changes can't be committed now; nil while commits succeed.
func (s *Store) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// do runs one operation, commits what it changed and publishes what happened.
func do[T any](ctx context.Context, s *Store, op func(*memory.Machine) (T, error)) (T, error) {
	var zero T
	if err := ctx.Err(); err != nil {
		return zero, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return zero, store.ErrUnavailable
	}
	s.m.Begin(s.clock())
	out, err := op(s.m)
	if failed := s.commit(); failed != nil {
		if s.err == nil {
			s.failed = s.clock()
			if s.observer != nil {
				s.observer.Failed(failed)
			}
		}
		s.err = failed
		return zero, store.ErrUnavailable
	}
	s.watchers.Publish(s.m.Events())
	return out, err
}

// run is do for an operation that can't be refused.
func run[T any](ctx context.Context, s *Store, op func(*memory.Machine) T) (T, error) {
	return do(ctx, s, func(m *memory.Machine) (T, error) { return op(m), nil })
}

// none is the answer of operations that answer nothing.
type none struct{}

// Watch is Keeper's.
func (s *Store) Watch(in store.Interest) store.Watcher { return s.watchers.Watch(in) }

// Now is Keeper's.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	return run(ctx, s, func(*memory.Machine) time.Time { return s.clock().UTC() })
}

// Epoch is Keeper's. It stays as long as the file does.
func (s *Store) Epoch(ctx context.Context) (string, error) {
	return run(ctx, s, func(*memory.Machine) string { return s.epoch })
}

// Close is Keeper's. Closing again does nothing.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	s.watchers.Close()
	s.m = nil
	return errors.Join(s.db.Close(), s.lock.Truncate(0), s.lock.Close())
}
