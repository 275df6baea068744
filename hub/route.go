package hub

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"pushrelay/hub/projection"
	"pushrelay/store"
	"pushrelay/wire"
)

// lane is what tells the queues of one route apart.
type lane struct {
	kind    string
	private bool
	dialect wire.Dialect
}

func laneOf(q *store.Queue) lane { return lane{q.Kind, q.Private, q.Dialect} }

// route is what this replica knows of the jobs that wait along one route. One worker claims for it at a time.
type route struct {
	hub  *Hub
	key  store.Route
	site *site
	turn turn

	total atomic.Int32 // jobs that wait, as far as known

	mu       sync.Mutex
	dead     bool                // removed from routes: look it up again
	waiting  laneCounts          // too high costs an empty claim
	unsealed map[string]struct{} // leases that wait for their seal, as far as known
	moved    time.Time           // of the last event
	delayed  bool                // a timer will mark it
}

// queued notes one more waiting job.
func (r *route) queued(l lane) {
	r.waiting.add(l, 1)
	r.total.Add(1)
}

// offered notes a grant, told by the claim or by its event, whichever is first.
func (r *route) offered(l lane, lease string) {
	if _, known := r.unsealed[lease]; known {
		return
	}
	r.unsealed[lease] = struct{}{}
	r.less(l, 1)
}

func (r *route) less(l lane, n int) {
	n = min(n, r.waiting.of(l))
	r.waiting.add(l, -n)
	r.total.Add(-int32(n)) //nolint:gosec // bounded by the store's quota
}

// sealed notes that a grant doesn't wait for its seal any more. Claims wait for that only when too many did.
func (r *route) sealed(lease string) {
	r.mu.Lock()
	full := len(r.unsealed) >= r.hub.set.UnsealedPerRoute
	delete(r.unsealed, lease)
	full = full && len(r.unsealed) < r.hub.set.UnsealedPerRoute
	r.moved = time.Now()
	r.mu.Unlock()
	if full && r.total.Load() > 0 {
		r.mark()
	}
}

func (r *route) mark() { r.turn.mark(r.hub.pool, r) }

// later marks the route after 50 to 150 ms: another replica took the job and claims at once.
func (r *route) later() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.delayed {
		return
	}
	r.delayed = true
	time.AfterFunc(50*time.Millisecond+rand.N(100*time.Millisecond), func() {
		r.mu.Lock()
		r.delayed = false
		r.mu.Unlock()
		if r.total.Load() > 0 {
			r.mark()
		}
	})
}

// lanes answers what waits, and false when claims would be in vain: nothing does, or too much waits for its seal.
func (r *route) lanes(dst []laneCount) ([]laneCount, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	dst = append(dst, r.waiting...)
	return dst, len(dst) > 0 && len(r.unsealed) < r.hub.set.UnsealedPerRoute
}

type laneCount struct {
	lane
	n int
}

// laneCounts holds the lanes where something waits: hardly ever more than one or two.
type laneCounts []laneCount

func (c laneCounts) index(l lane) int {
	return slices.IndexFunc(c, func(e laneCount) bool { return e.lane == l })
}

func (c laneCounts) of(l lane) int {
	if i := c.index(l); i >= 0 {
		return c[i].n
	}
	return 0
}

// add changes a count; n may be negative, but no more than there is.
func (c *laneCounts) add(l lane, n int) {
	i := c.index(l)
	switch {
	case i < 0 && n > 0:
		*c = append(*c, laneCount{l, n})
	case i < 0:
	case (*c)[i].n+n <= 0:
		*c = slices.Delete(*c, i, i+1)
	default:
		(*c)[i].n += n
	}
}

// work claims for all that waits, one daemon after the other, the least loaded first.
func (r *route) work(ctx context.Context) {
	r.turn.begin()
	defer r.turn.end(r.hub.pool, r)
	var buf [4]laneCount
	var asked []*daemon
	for ctx.Err() == nil && !r.hub.stopped.Load() {
		lanes, ok := r.lanes(buf[:0])
		if !ok || !r.site.present(ctx) {
			return
		}
		cur := r.hub.proj.Current()
		d, n := r.hub.pick(cur, r.key, lanes, asked)
		if d == nil {
			return
		}
		granted, err := r.hub.claim(ctx, cur, d, []store.Route{r.key}, n)
		if err != nil {
			return // a resync tries again
		}
		if granted < n {
			asked = append(asked, d)
		}
	}
}

// routes finds routes; those that are idle are forgotten by resyncs.
type routes struct {
	version atomic.Uint64 // changes with all

	mu  sync.RWMutex
	all map[store.Route]*route
}

func (rs *routes) init() { rs.all = map[store.Route]*route{} }

func (rs *routes) find(key store.Route) *route {
	rs.mu.RLock()
	defer rs.mu.RUnlock()
	return rs.all[key]
}

// among appends those of the given routes that are known.
func (rs *routes) among(dst []*route, keys []projection.Route) []*route {
	rs.mu.RLock()
	defer rs.mu.RUnlock()
	for _, key := range keys {
		if r := rs.all[store.Route(key)]; r != nil {
			dst = append(dst, r)
		}
	}
	return dst
}

// with calls f with the living route of that key, locked.
func (rs *routes) with(h *Hub, key store.Route, f func(*route)) *route {
	for {
		r := rs.find(key)
		if r == nil {
			r = rs.make(h, key)
		}
		if r.try(f) {
			return r
		}
	}
}

func (r *route) try(f func(*route)) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dead {
		return false
	}
	r.moved = time.Now()
	f(r)
	return true
}

func (rs *routes) make(h *Hub, key store.Route) *route {
	s := h.reg.ensureSite(h, key.Site)
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r := rs.all[key]
	if r == nil {
		r = &route{hub: h, key: key, site: s, unsealed: map[string]struct{}{}, moved: time.Now()}
		rs.all[key] = r
		rs.version.Add(1)
	}
	return r
}

func (rs *routes) size() int {
	rs.mu.RLock()
	defer rs.mu.RUnlock()
	return len(rs.all)
}

func (rs *routes) snapshot() []*route {
	rs.mu.RLock()
	defer rs.mu.RUnlock()
	out := make([]*route, 0, len(rs.all))
	for _, r := range rs.all {
		out = append(out, r)
	}
	return out
}

// forget removes a route that nothing waits for and that nothing moved on for a minute.
func (rs *routes) forget(r *route) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) == 0 && since(r.moved) > time.Minute {
		r.dead = true
		delete(rs.all, r.key)
		rs.version.Add(1)
	}
}

// markWaiting puts in line what waits: all of it, or one site's.
func (rs *routes) markWaiting(site string) {
	for _, r := range rs.snapshot() {
		if r.total.Load() > 0 && (site == "" || r.key.Site == site) {
			r.mark()
		}
	}
}
