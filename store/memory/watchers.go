package memory

import (
	"sync"

	"pushrelay/store"
)

// Watchers hands events to all who watch a store. The zero value has none. Locks: mu, then a watcher's mu.
type Watchers struct {
	mu     sync.Mutex
	all    map[*watcher]struct{} // guarded by mu
	closed bool                  // guarded by mu
}

// Watch adds a watcher; after Close it has ended from the start. A slice that its Wait answered is good until the next.
func (ws *Watchers) Watch(in store.Interest) store.Watcher {
	w := newWatcher(in, ws.leave)
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.closed {
		w.end()
		return w
	}
	if ws.all == nil {
		ws.all = make(map[*watcher]struct{})
	}
	ws.all[w] = struct{}{}
	return w
}

func (ws *Watchers) leave(w *watcher) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	delete(ws.all, w)
}

// Publish hands events to all watchers, in the order of its calls. It never blocks.
func (ws *Watchers) Publish(events []store.Event) {
	if len(events) == 0 {
		return
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for w := range ws.all {
		w.publish(events)
	}
}

// Resync tells all watchers that events were missed.
func (ws *Watchers) Resync() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for w := range ws.all {
		w.resync()
	}
}

// Close ends all watchers.
func (ws *Watchers) Close() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.closed = true
	for w := range ws.all {
		w.end()
	}
	clear(ws.all)
}
