package hub

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"

	"pushrelay/hub/projection"
	"pushrelay/session"
	"pushrelay/store"
	"pushrelay/wire"
)

// maxCompared is how many daemons of one owner are compared for a route; of more, a random part is.
const maxCompared = 64

// pick answers the least loaded daemon that, under a projection, may take what waits on the route, with how many jobs to ask for; that many
// are reserved in its slots until claim has run.
func (h *Hub) pick(cur *projection.Current, key store.Route, lanes []laneCount, asked []*daemon) (*daemon, int) {
	for {
		var best choice
		for _, owner := range cur.Carriers(projection.Route(key)) {
			best.compare(h.reg.ofOwner(owner), key, lanes, asked, maxCompared)
		}
		if best.d == nil {
			return nil, 0
		}
		if n := best.d.reserve(best.fit); n > 0 {
			return best.d, n
		}
		// It filled up since it was compared; the next look finds another, or none with room.
	}
}

// choice is the best daemon so far. Load is leases over slots, compared crosswise; ties are broken by chance.
type choice struct {
	d           *daemon
	fit         int // jobs that wait and that it may take
	load, slots int
	ties        int
}

func (c *choice) compare(list []*daemon, key store.Route, lanes []laneCount, asked []*daemon, most int) {
	start, found := 0, c.d != nil
	if len(list) > most {
		start = rand.IntN(len(list))
	}
	for i := range list {
		if i >= most && (found || c.d != nil) {
			return
		}
		d := list[(start+i)%len(list)]
		if slices.Contains(asked, d) {
			continue
		}
		if load, slots, fit := d.offerable(key, lanes); fit > 0 {
			c.consider(choice{d: d, fit: fit, load: load, slots: slots, ties: 1})
		}
	}
}

func (c *choice) consider(other choice) {
	if c.d != nil {
		a, b := other.load*c.slots, c.load*other.slots
		if a > b {
			return
		}
		if a == b {
			c.ties++
			if rand.IntN(c.ties) != 0 {
				return
			}
			other.ties = c.ties
		}
	}
	*c = other
}

// claimFor lets a daemon with room claim over its routes that are known to hold something.
func (h *Hub) claimFor(ctx context.Context, d *daemon) {
	for ctx.Err() == nil && !h.stopped.Load() && d.room() > 0 {
		cur := h.proj.Current()
		list, fit := h.routesFor(ctx, cur, d)
		if len(list) == 0 {
			return
		}
		n := d.reserve(fit)
		if n == 0 {
			return
		}
		if granted, err := h.claim(ctx, cur, d, list, n); err != nil || granted < n {
			return
		}
	}
}

// routesFor answers the daemon's routes with something for it under a projection, and how many jobs that is.
func (h *Hub) routesFor(ctx context.Context, cur *projection.Current, d *daemon) (list []store.Route, fit int) {
	known := d.routes(cur)
	list = make([]store.Route, 0, len(known))
	for _, r := range known {
		if r.total.Load() <= 0 {
			continue
		}
		var buf [4]laneCount
		lanes, ok := r.lanes(buf[:0])
		if !ok {
			continue
		}
		if _, _, n := d.offerable(r.key, lanes); n > 0 && r.site.present(ctx) {
			list, fit = append(list, r.key), fit+n
		}
	}
	return list, fit
}

// ownRoutes are the routes that a daemon may carry and that something was seen on: a daemon claims whenever it gains room,
// and would look up all of them each time.
type ownRoutes struct {
	under   *projection.Current // nil: not looked up yet
	version uint64              // of the hub's routes
	list    []*route
}

// routes answers the daemon's routes under a projection. It goes over the smaller of two sets: what the daemon may carry, or
// where something may wait. Only the daemon's turn calls it.
func (d *daemon) routes(cur *projection.Current) []*route {
	rs, own := &d.hub.routes, &d.own
	version := rs.version.Load() // before the look, so that a route made meanwhile is looked for next time
	if own.under == cur && own.version == version {
		return own.list
	}
	own.under, own.version = cur, version
	clear(own.list)
	if may := cur.Routes(d.owner); len(may) <= rs.size() {
		own.list = rs.among(own.list[:0], may)
	} else {
		own.list = append(own.list[:0], rs.snapshot()...)
		own.list = slices.DeleteFunc(own.list, func(r *route) bool { return !cur.MayCarry(projection.Route(r.key), d.owner) })
	}
	return own.list
}

// claim asks the store for n jobs, which reserve has set aside, and pushes what it grants. The routes, which it may change,
// were chosen under a projection that may be gone by now; then they are judged again by the one that the claim carries.
func (h *Hub) claim(ctx context.Context, chosen *projection.Current, d *daemon, list []store.Route, n int) (int, error) {
	cur := h.proj.Current()
	if d.told.Load() != cur.Generation { // it would refuse jobs of a site that it wasn't told of
		d.settle(n, nil)
		if d.held == nil {
			d.resite() // its own turn tells it, and then claims; what is held is let go when its sites changed
		}
		return 0, nil
	}
	if cur != chosen {
		list = slices.DeleteFunc(list, func(r store.Route) bool { return !cur.MayCarry(projection.Route(r), d.owner) })
	}
	c, ok := d.claimOf(n)
	if !ok || len(list) == 0 || !h.deviceStands(cur, d.runner, d.keyID, d.owner) {
		d.settle(n, nil)
		return 0, nil
	}
	c.Routes, c.LeaseFor, c.OfferFor = list, h.set.LeaseFor, h.set.OfferFor
	if d.asks {
		c.OfferFor += h.grants.Within() // the daemon has all of its time, whenever the answer comes
	}
	h.obs.Count(CountClaims, 1)
	granted, err := h.store.Claim(ctx, c)
	if err != nil {
		d.settle(n, nil)
		if errors.Is(err, store.ErrSuperseded) {
			h.notNewest(ctx, d)
			return 0, nil
		}
		h.storeFailed(ctx, "claim", err)
		return 0, err
	}
	if len(granted) == 0 {
		h.obs.Count(CountEmptyClaims, 1)
		d.settle(n, nil)
		return 0, nil
	}
	h.obs.Count(CountGranted, len(granted))
	h.noteGranted(d, granted)
	standing := granted
	if h.proj.Current().Generation != cur.Generation {
		standing = h.standing(ctx, d, granted)
	}
	d.settle(n, standing)
	if len(standing) == 0 {
		return len(granted), nil
	}
	if d.asks {
		h.askFor(d, standing)
		return len(granted), nil
	}
	jobs := make([]wire.ClaimedJob, len(standing))
	for i := range standing {
		jobs[i] = claimedJob(&standing[i], d.runner, nil)
	}
	h.pushClaimed(d, jobs)
	return len(granted), nil
}

// noteGranted takes what was granted off the routes' counts before its events arrive.
func (h *Hub) noteGranted(d *daemon, granted []store.Claimed) {
	for i := range granted {
		g := &granted[i]
		l := lane{g.Stub.Kind, g.Stub.Private(), d.dialect}
		h.routes.with(h, store.Route{Site: g.Site, Owner: g.Stub.Owner}, func(r *route) { r.offered(l, g.Lease) })
	}
}

// standing gives back what a projection that came into force meanwhile doesn't allow, and answers the rest.
func (h *Hub) standing(ctx context.Context, d *daemon, granted []store.Claimed) []store.Claimed {
	cur := h.proj.Current()
	var back []wire.Grant
	keep := granted[:0:0]
	for _, g := range granted {
		r := projection.Route{Site: g.Site, Owner: g.Stub.Owner}
		if h.deviceStands(cur, d.runner, d.keyID, d.owner) && cur.MayCarry(r, d.owner) {
			keep = append(keep, g)
			continue
		}
		back = append(back, wire.Grant{JobID: g.Stub.ID, LeaseID: g.Lease})
	}
	h.withdraw(ctx, d.runner, back)
	return keep
}

// pushClaimed tells a daemon what it was granted; each frame is kept within the size of a text message. It is called once
// behind every claim whose grants stood, if only with none that may be told.
func (h *Hub) pushClaimed(d *daemon, jobs []wire.ClaimedJob) {
	if d.held != nil {
		d.held.deliver(d, jobs)
		return
	}
	for len(jobs) > 0 {
		n, size := 0, 0
		for n < len(jobs) {
			size += len(jobs[n].Stub.Raw) + 2*len(d.runner) + 256 + grantSize(jobs[n].Grant)
			if size > wire.MaxTextBytes && n > 0 {
				break
			}
			n++
		}
		size = min(size, wire.MaxTextBytes)
		d.push(wire.AppendClaimed(make([]byte, 0, size), jobs[:n], h.set.LeaseFor.Milliseconds()))
		jobs = jobs[n:]
	}
}

func grantSize(g *wire.SignedGrant) int {
	if g == nil {
		return 0
	}
	return 2*(len(g.GrantID)+len(g.JobID)+len(g.Site)+len(g.User)+len(g.Owner)+len(g.Purpose)+len(g.Kind)+len(g.Service)) + 256
}

// notNewest finds out why a session isn't its runner's newest: its presence lapsed, as after an outage of the store, and it
// gets a new number; or it was superseded elsewhere.
func (h *Hub) notNewest(ctx context.Context, d *daemon) {
	was := d.number.Load()
	if err := d.renew(ctx); err != nil {
		return
	}
	if d.number.Load() != was {
		d.gained()
		return
	}
	h.superseded(d)
}

// superseded ends a session whose runner has a newer one, here or on another replica.
func (h *Hub) superseded(d *daemon) {
	h.obs.Count(CountSuperseded, 1)
	d.end(session.ReasonSuperseded, "a newer session of this runner was opened")
}
