package memory

import (
	"context"
	"sync"

	"pushrelay/store"
)

const (
	maxWaiting = 1 << 16 // events of one watcher; beyond, one resync takes their place
	idleBuffer = 4096    // a larger buffer is given up once it was read
)

// watcher buffers events for one reader. Locks: a publisher holds the mutex of Watchers when it takes mu; never reversed.
type watcher struct {
	sites  map[string]struct{} // nil: all
	leave  func(*watcher)
	signal chan struct{} // holds one when there is something to see

	mu     sync.Mutex
	buf    []store.Event // guarded by mu
	lost   bool          // guarded by mu: buf is one resync, nothing is added until it was read
	closed bool          // guarded by mu

	spare []store.Event // the reader's: what the last Wait answered
}

func newWatcher(in store.Interest, leave func(*watcher)) *watcher {
	w := &watcher{leave: leave, signal: make(chan struct{}, 1)}
	if len(in.Sites) > 0 {
		w.sites = make(map[string]struct{}, len(in.Sites))
		for _, s := range in.Sites {
			w.sites[s] = struct{}{}
		}
	}
	return w
}

// publish adds the events that are of interest. It never blocks.
func (w *watcher) publish(events []store.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lost || w.closed {
		return
	}
	for i := range events {
		if !w.wants(&events[i]) {
			continue
		}
		if len(w.buf) == maxWaiting {
			w.lost = true
			w.buf = []store.Event{{Type: store.EventResync}}
			return
		}
		w.buf = append(w.buf, events[i])
	}
	if len(w.buf) > 0 {
		w.wake()
	}
}

func (w *watcher) wants(e *store.Event) bool {
	if w.sites == nil || e.Party.Role == store.RunnerRole {
		return true
	}
	_, ok := w.sites[e.Site]
	return ok
}

func (w *watcher) wake() {
	select {
	case w.signal <- struct{}{}:
	default:
	}
}

// Wait is Watcher's. Events that wait are answered even when ctx has ended.
func (w *watcher) Wait(ctx context.Context) ([]store.Event, error) {
	for {
		if out, err := w.swap(); err != nil || len(out) > 0 {
			return out, err
		}
		select {
		case <-w.signal:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// swap hands the buffer over and takes the last one back.
func (w *watcher) swap() ([]store.Event, error) {
	clear(w.spare) // or their ids would stay in memory
	if cap(w.spare) > idleBuffer {
		w.spare = nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		w.wake() // for whoever else waits
		return nil, store.ErrUnavailable
	}
	if len(w.buf) == 0 {
		w.spare = w.spare[:0]
		return nil, nil
	}
	out := w.buf
	w.buf = w.spare[:0]
	w.spare = out
	w.lost = false
	return out, nil
}

// resync takes the place of what waits.
func (w *watcher) resync() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.lost = true
		w.buf = []store.Event{{Type: store.EventResync}}
		w.wake()
	}
}

// end closes the watcher from the store's side.
func (w *watcher) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.buf = nil
	w.wake()
}

// Close is Watcher's.
func (w *watcher) Close() {
	w.leave(w)
	w.end()
}
