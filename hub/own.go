package hub

import (
	"sync"

	"pushrelay/store"
	"pushrelay/wire"
)

// ownJobs remembers what this replica has just enqueued, where others share the store: it claims for these at once.
// Two generations, so that those whose event never came are forgotten.
type ownJobs struct {
	mu       sync.Mutex
	now, old map[store.Key]struct{}
}

func (o *ownJobs) init() { o.now, o.old = map[store.Key]struct{}{}, map[store.Key]struct{}{} }

func (o *ownJobs) add(shared bool, site string, stubs []wire.Stub) {
	if !shared {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range stubs {
		o.now[store.Key{Site: site, Job: stubs[i].ID}] = struct{}{}
	}
}

// take reports whether the job is ours, once.
func (o *ownJobs) take(key store.Key) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, a := o.now[key]
	_, b := o.old[key]
	delete(o.now, key)
	delete(o.old, key)
	return a || b
}

func (o *ownJobs) age() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.old, o.now = o.now, map[store.Key]struct{}{}
}
