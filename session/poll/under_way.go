package poll

import (
	"context"
	"sync"
)

// heldByCaller is how many requests of one caller wait at once: a fetch for each of 64 leases, and as many claims. Those
// beyond are answered at once, as those beyond all places are.
const heldByCaller = 128

// underWay counts the requests that wait, and those that a drain waits for. Its zero value is ready.
type underWay struct {
	mu       sync.Mutex
	held     int
	by       map[heldCaller]int // of held; without zeros
	before   int                // requests that began before the drain
	draining bool
	over     chan struct{} // closed when a drain has nothing to wait for
}

type heldCaller struct{ role, id string }

// hold takes a place for a request that may wait; false: there is none. release gives it back.
func (u *underWay) hold(c heldCaller, most int) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.held >= most || u.by[c] >= heldByCaller {
		return false
	}
	if u.by == nil {
		u.by = map[heldCaller]int{}
	}
	u.held++
	u.by[c]++
	return true
}

func (u *underWay) release(c heldCaller) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.held--
	if u.by[c]--; u.by[c] == 0 {
		delete(u.by, c)
	}
}

// begin notes a request, and reports whether a drain waits for it; then end says that it was answered.
func (u *underWay) begin() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.draining {
		return false
	}
	u.before++
	return true
}

func (u *underWay) end() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.before--
	if u.draining && u.before == 0 {
		close(u.over)
	}
}

// drain begins a drain, once.
func (u *underWay) drain() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.draining {
		return
	}
	u.draining, u.over = true, make(chan struct{})
	if u.before == 0 {
		close(u.over)
	}
}

// await waits until all requests that began before the drain were answered, or ctx ends.
func (u *underWay) await(ctx context.Context) error {
	u.mu.Lock()
	over := u.over
	u.mu.Unlock()
	select {
	case <-over: // nil, and so never, without a drain
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
