package hub

import (
	"context"
	"math/rand/v2"
	"time"

	"pushrelay/hub/projection"
	"pushrelay/store"
	"pushrelay/wire"
)

// resyncs derives everything again every so often, so that a lost notification costs latency only (rule 9).
func (h *Hub) resyncs(ctx context.Context) {
	for pause(ctx, h.set.ResyncEvery*3/4+rand.N(h.set.ResyncEvery/2+1)) {
		h.resync(ctx, false)
	}
}

// resync reads what waits and tells it again. Idle daemons cost nothing: routes come from one read of the backlog, and
// only daemons with leases are read. missed says that events were lost: then nothing known counts.
func (h *Hub) resync(ctx context.Context, missed bool) {
	h.own.age()
	if err := h.readClock(ctx); err != nil {
		h.storeFailed(ctx, "now", err)
		return
	}
	backlog, err := h.store.Backlog(ctx, "")
	if err != nil {
		h.storeFailed(ctx, "backlog", err)
		return
	}
	h.storeWorks()
	h.countAgain(backlog, missed)
	for _, s := range h.reg.allSites() {
		s.unsure()
		s.wantsAll()
	}
	h.routes.markWaiting("")
	cur := h.proj.Current()
	h.polls.tidy(missed)
	for _, d := range h.reg.allClaims() {
		h.judge(cur, d)
	}
	for _, d := range h.reg.allDaemons() {
		if ctx.Err() != nil {
			return
		}
		h.judge(cur, d)
		if d.busy() || missed {
			h.resyncDaemon(ctx, d)
		}
	}
}

// countAgain corrects the routes' counts. One on which something moves just now may only be raised: its events are under
// way, and a count that is too low would leave a job waiting.
func (h *Hub) countAgain(backlog []store.Backlog, missed bool) {
	byRoute := make(map[store.Route]map[lane]int, len(backlog))
	for i := range backlog {
		b := &backlog[i]
		if b.Waiting == 0 {
			continue
		}
		if byRoute[b.Route] == nil {
			byRoute[b.Route] = make(map[lane]int, 1)
		}
		byRoute[b.Route][laneOf(&b.Queue)] += b.Waiting
	}
	for _, r := range h.routes.snapshot() {
		if byRoute[r.key] == nil {
			r.recount(nil, missed)
			h.routes.forget(r)
		}
	}
	for key, lanes := range byRoute {
		for !h.routes.get(h, key).recount(lanes, missed) {
		}
	}
}

// recount answers false when the route is dead and has to be looked up again.
func (r *route) recount(lanes map[lane]int, missed bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dead {
		return false
	}
	quiet := missed || since(r.moved) > time.Second
	if quiet {
		clear(r.unsealed) // a hint that was never taken back must not block the route
		r.waiting = nil
	}
	for l, n := range lanes {
		r.waiting.add(l, max(0, n-r.waiting.of(l)))
	}
	total := 0
	for _, w := range r.waiting {
		total += w.n
	}
	r.total.Store(int32(total)) //nolint:gosec // bounded by the store's quota
	return true
}

func (rs *routes) get(h *Hub, key store.Route) *route {
	if r := rs.find(key); r != nil {
		return r
	}
	return rs.make(h, key)
}

func (d *daemon) busy() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.leases) > 0
}

// resyncDaemon compares what the runner holds with what this session knows, and tells the difference.
func (h *Hub) resyncDaemon(ctx context.Context, d *daemon) {
	known, removals := d.snapshotLeases()
	held, err := h.store.Held(ctx, d.runner)
	if err != nil {
		h.storeFailed(ctx, "held", err)
		return
	}
	cur := h.proj.Current()
	var back []wire.Grant
	for i := range held {
		j := &held[i]
		g := wire.Grant{JobID: j.Job, LeaseID: j.Lease}
		delete(known, j.Lease)
		if !h.grantStands(cur, d.runner, j) {
			back = append(back, g)
			continue
		}
		d.adopt(g, j.Site, removals)
		switch {
		case j.Cancelled && !j.Offered:
			d.cancelled(g)
		case j.State == store.Ready:
			d.readied(g)
		}
	}
	h.withdraw(ctx, d.runner, back)
	h.missing(ctx, d, known)
}

func (d *daemon) snapshotLeases() (map[string]wire.Grant, uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make(map[string]wire.Grant, len(d.leases))
	for id, l := range d.leases {
		out[id] = wire.Grant{JobID: l.job, LeaseID: id}
	}
	return out, d.removals
}

// adopt notes a grant that this session didn't know, unless some ended since the read began: it may be one of them.
func (d *daemon) adopt(g wire.Grant, site string, removals uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.leases[g.LeaseID]
	switch {
	case l != nil:
		l.site = site
	case d.removals == removals:
		d.leases[g.LeaseID] = &lease{job: g.JobID, site: site}
	}
}

// missing settles grants that the store doesn't name any more: done ones are dropped, others are lost.
func (h *Hub) missing(ctx context.Context, d *daemon, known map[string]wire.Grant) {
	if len(known) == 0 {
		return
	}
	grants := make([]wire.Grant, 0, len(known))
	for _, g := range known {
		grants = append(grants, g)
	}
	lost, err := h.store.Renew(ctx, d.runner, grants, h.set.LeaseFor)
	if err != nil {
		h.storeFailed(ctx, "renew", err)
		return
	}
	d.lose(wire.LostLapsed, lost...)
	for _, g := range grants {
		d.drop(g.LeaseID)
	}
}

// grantStands reports whether a grant that the runner holds may still run.
func (h *Hub) grantStands(cur *projection.Current, runner string, j *store.Job) bool {
	dev, ok := cur.DeviceByRunner(runner)
	return ok && h.deviceStands(cur, runner, j.Device, dev.Owner) &&
		cur.Carries(projection.Route{Site: j.Site, Owner: j.Stub.Owner}, dev.Owner)
}

// sweep lets the store's due times act within milliseconds of when they are due.
func (h *Hub) sweep(ctx context.Context) {
	for {
		swept, err := h.store.Sweep(ctx)
		next := time.Second
		if err != nil {
			h.storeFailed(ctx, "sweep", err)
		} else if swept.Next >= 0 {
			next = min(next, swept.Next)
		}
		if !pause(ctx, next) {
			return
		}
	}
}
