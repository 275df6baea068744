package disk

import (
	"context"
	"sync"
	"sync/atomic"

	"pushrelay/store"
	"pushrelay/store/memory"
)

// op is an operation that a caller waits for.
type op struct {
	run   func(*memory.Machine)
	keeps bool                       // it may change what is kept
	fits  func(*memory.Machine) bool // whether it may run while a group is being committed; nil: never
	stubs int                        // bytes of the stubs that it brings
	bytes int                        // of envelopes that it brings
	want  *text                      // of an envelope that it answers, set by run
	// numbers reports whether it needs no commit that sets numbers aside first; nil: it needs none
	numbers func() bool
	state   atomic.Int32
	done    chan error // holds one: nil when what run answered stands
}

// States of an op. Whoever moves it from waiting decides whether it runs.
const (
	waiting int32 = iota
	taken
	withdrawn
)

// queue is where operations wait for the committer.
type queue struct {
	wake chan struct{} // holds one when there is something to take

	mu     sync.Mutex
	ops    []*op // guarded by mu
	closed bool  // guarded by mu
}

// add lets an operation wait; false when the store is closed.
func (q *queue) add(o *op) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.ops = append(q.ops, o)
	if len(q.ops) == 1 {
		q.ring()
	}
	return true
}

func (q *queue) ring() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take appends all that wait, in their order; open says that more may come.
func (q *queue) take(to []*op) (_ []*op, open bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	to = append(to, q.ops...)
	clear(q.ops)
	q.ops = q.ops[:0]
	return to, !q.closed
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.ring()
}

// wait lets an operation run and waits for its outcome: nil, store.ErrUnavailable, or the context's error when it ended
// before the operation ran.
func (s *Store) wait(ctx context.Context, o *op) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !o.keeps {
		if ran, err := s.atOnce(o); ran {
			return err
		}
	}
	o.done, _ = s.answers.Get().(chan error)
	defer s.answers.Put(o.done) // empty again: nobody answers an operation that was withdrawn
	if !s.queue.add(o) {
		return store.ErrUnavailable
	}
	select {
	case err := <-o.done:
		return err
	case <-ctx.Done():
	}
	if o.state.CompareAndSwap(waiting, withdrawn) {
		o.run, o.want = nil, nil // while the file can't be written it stays in the queue, and mustn't keep its envelope
		return ctx.Err()
	}
	return <-o.done
}

// atOnce runs an operation that changes nothing that is kept when what it sees is committed; false when it must wait.
func (s *Store) atOnce(o *op) (ran bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.m == nil:
		return true, store.ErrUnavailable
	case s.writing && (o.fits == nil || !o.fits(s.m)), o.numbers != nil && !o.numbers():
		return false, nil
	}
	return true, s.see(o)
}

// see runs an operation that changes nothing that is kept; mu is held.
func (s *Store) see(o *op) error {
	s.m.Begin(s.clock())
	o.run(s.m)
	s.watchers.Publish(s.m.Events())
	if o.want == nil {
		return nil
	}
	return s.lend(o.want)
}

// do runs an operation that may change what is kept.
func do[T any](ctx context.Context, s *Store, bytes int, f func(*memory.Machine) (T, error)) (T, error) {
	return await(ctx, s, &op{keeps: true, bytes: bytes}, f)
}

// run is do for an operation that can't be refused and brings no envelope.
func run[T any](ctx context.Context, s *Store, f func(*memory.Machine) T) (T, error) {
	return await(ctx, s, &op{keeps: true}, func(m *memory.Machine) (T, error) { return f(m), nil })
}

// ask runs an operation that changes nothing that is kept: a question, presence, an offer.
func ask[T any](ctx context.Context, s *Store, f func(*memory.Machine) (T, error)) (T, error) {
	return await(ctx, s, &op{}, f)
}

// read is ask for an operation that can't be refused.
func read[T any](ctx context.Context, s *Store, f func(*memory.Machine) T) (T, error) {
	return await(ctx, s, &op{}, func(m *memory.Machine) (T, error) { return f(m), nil })
}

func await[T any](ctx context.Context, s *Store, o *op, f func(*memory.Machine) (T, error)) (T, error) {
	var out, zero T
	var refused error
	o.run = func(m *memory.Machine) { out, refused = f(m) }
	if err := s.wait(ctx, o); err != nil {
		return zero, err
	}
	return out, refused
}
