package hub

import (
	"context"
	"errors"
	"time"

	"pushrelay/hub/projection"
	"pushrelay/store"
)

// Explain answers for each of these jobs of a site why it isn't claimed, by what the store, this replica and the projection
// know now. It is for queued jobs; of others the answer says what would be in their way. It asks the store for the
// refusals of at most MaxBarred of them, those that nothing lasting holds up.
func (i *Inspector) Explain(ctx context.Context, site string, jobs []JobView) ([][]Obstacle, error) {
	facts, err := i.site(ctx, site)
	if err != nil {
		return nil, err
	}
	seen, err := i.sightings(ctx)
	if err != nil {
		return nil, err
	}
	cur := i.hub.proj.Current()
	queues := map[store.Queue]*routeFacts{}
	out, asked := make([][]Obstacle, len(jobs)), 0
	for n := range jobs {
		j := &jobs[n]
		q := store.Queue{Route: store.Route{Site: site, Owner: j.Owner}, Kind: j.Kind, Private: j.Private, Dialect: j.Dialect}
		r := queues[q]
		if r == nil {
			r = i.route(ctx, cur, q, seen)
			queues[q] = r
		}
		out[n] = explain(j, facts.siteFacts, *r, cur.Projection)
		if first := out[n][0].Code; first != Next && first != ObstacleBusy || asked == MaxBarred || facts.at.Sub(j.Since) < settled {
			continue
		}
		asked++
		barred, err := i.barred(ctx, j, *r)
		if err != nil {
			return nil, err
		}
		out[n] = explain(j, facts.siteFacts, barred, cur.Projection)
	}
	return out, nil
}

const (
	// MaxBarred bounds the reads of one Explain.
	MaxBarred = 64
	// settled is how long a job waits before its refusals are looked for: until then it is on its way.
	settled = time.Second
	// maxAway bounds the devices of one queue that are connected elsewhere and whose leases are counted.
	maxAway = 16
)

type knownSite struct {
	siteFacts
	stats store.SiteStats
	at    time.Time
}

func (i *Inspector) site(ctx context.Context, id string) (knownSite, error) {
	s := knownSite{at: i.hub.now()}
	all, err := i.hub.store.SiteStats(ctx, id)
	if err != nil {
		return s, err
	}
	for n := range all { // it is one
		s.stats = all[n]
	}
	s.draining, s.bytes, s.bytesMost = i.hub.stopped.Load(), s.stats.Bytes, i.hub.set.BytesPerSite
	s.presence, err = i.hub.sitePresence(ctx, id)
	return s, err
}

// sitePresence tells a site that doesn't answer from one that isn't there.
func (h *Hub) sitePresence(ctx context.Context, id string) (sitePresence, error) {
	s := h.reg.site(id)
	if s != nil {
		s.mu.Lock()
		sessions, here := len(s.sessions) > 0, s.hereLocked()
		s.mu.Unlock()
		if here {
			return sitePresent, nil
		}
		if sessions {
			return siteSilent, nil
		}
	}
	there, err := h.store.Present(ctx, store.Party{Role: store.SiteRole, ID: id})
	if err != nil || !there {
		return siteAbsent, err
	}
	return sitePresent, nil
}

// route gathers what is known of a queue.
func (i *Inspector) route(ctx context.Context, cur *projection.Current, q store.Queue, seen map[string]store.Sighting) *routeFacts {
	f := &routeFacts{unsealedMost: i.hub.set.UnsealedPerRoute, noGrants: i.hub.asksFor(q.Dialect) && !i.hub.grants.Open()}
	if r := i.hub.routes.find(q.Route); r != nil {
		r.mu.Lock()
		f.unsealed = len(r.unsealed)
		r.mu.Unlock()
	}
	devices, away := i.known(cur), 0
	for _, owner := range cur.Carriers(projection.Route(q.Route)) {
		if owner != q.Owner && i.hub.ownOnly(q) {
			continue
		}
		for _, dev := range devices[owner] {
			v := i.hub.deviceView(ctx, dev, seen)
			d := deviceFacts{runner: v.Runner, connected: v.connected()}
			if d.connected {
				d.dialect, d.kinds, d.paused, d.deaf, d.slots, d.held = v.Dialect, v.Kinds, v.Paused, v.Deaf, v.Slots, v.Leases
			}
			if d.connected && !v.Here && away < maxAway {
				away++
				d.held = i.hub.heldBy(ctx, v.Runner)
				if d.slots == 0 { // one that polls doesn't tell; while it holds something, it takes nothing more
					d.slots = 1
				}
			}
			d.declined = i.hub.cools(v.Runner, q.Route)
			f.devices = append(f.devices, d)
		}
	}
	return f
}

// ownOnly reports whether jobs of a queue are for their owner's own devices only: private ones, and those of a dialect in
// which other people's need a signed grant when there are none.
func (h *Hub) ownOnly(q store.Queue) bool {
	return q.Private || q.Dialect.SignedGrants() && !h.asksFor(q.Dialect)
}

// cools reports whether a runner leaves a route alone for a while, because the control plane declined so much of it.
func (h *Hub) cools(runner string, r store.Route) bool {
	d := h.reg.daemon(runner)
	if d == nil {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.asks && d.coolLocked(r)
}

// heldBy answers how many unfinished grants a runner has; 0 when the store can't tell.
func (h *Hub) heldBy(ctx context.Context, runner string) int {
	held, err := h.store.Held(ctx, runner)
	if err != nil {
		h.storeFailed(ctx, "held", err)
	}
	return len(held)
}

// barred adds to what is known of a job's queue who may not have this job.
func (i *Inspector) barred(ctx context.Context, j *JobView, r routeFacts) (routeFacts, error) {
	runners := make([]string, 0, len(r.devices))
	for n := range r.devices {
		if code := ofDevice(j, &r.devices[n]).Code; code == "" || code == ObstacleBusy {
			runners = append(runners, r.devices[n].runner)
		}
	}
	bars, err := i.hub.store.Barred(ctx, j.Site, j.Job, runners)
	if errors.Is(err, store.ErrNotFound) {
		return r, nil // it is gone meanwhile
	}
	if err != nil || len(bars) == 0 {
		return r, err
	}
	byRunner := make(map[string]*store.Bar, len(bars))
	for n := range bars {
		byRunner[bars[n].Runner] = &bars[n]
	}
	devices := make([]deviceFacts, len(r.devices))
	for n, d := range r.devices {
		d.bar = byRunner[d.runner]
		devices[n] = d
	}
	r.devices = devices
	return r, nil
}
