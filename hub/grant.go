package hub

import (
	"context"
	"crypto/ed25519"
	"errors"
	"time"

	"pushrelay/hub/grants"
	"pushrelay/hub/projection"
	"pushrelay/store"
	"pushrelay/wire"
)

// GrantConfig says whom the hub asks for signed grants. Endpoint and Key are required.
type GrantConfig struct {
	Endpoint grants.Endpoint
	Key      ed25519.PublicKey                // the control plane's
	Timeout  time.Duration                    // of one request; 0 means 2 s
	Parallel int                              // requests at once; 0 means 8
	Told     func(o grants.Outcome, jobs int) // for metrics; must not block; may be nil
}

func (h *Hub) newAsker(cfg *GrantConfig) (err error) {
	if cfg == nil {
		return nil
	}
	h.grants, err = grants.New(grants.Config{
		Endpoint: cfg.Endpoint, Key: cfg.Key, Now: h.now, Timeout: cfg.Timeout, Parallel: cfg.Parallel, Log: h.log, Told: cfg.Told,
		Again: func() { h.routes.markWaiting("") },
	})
	if err == nil && h.set.OfferFor+h.grants.Within() >= h.set.LeaseFor {
		err = errors.New("hub: asking for grants takes too long for these leases; use a shorter timeout or longer leases")
	}
	return err
}

// asksFor reports whether daemons of the dialect get jobs only with the control plane's grant.
func (h *Hub) asksFor(d wire.Dialect) bool { return h.grants != nil && d.SignedGrants() }

// Declines in a row of one route, after which a daemon leaves it alone for a while: a deep queue of jobs that it may not
// have would be walked through again and again.
const (
	coolAfter = 16
	coolFirst = time.Second
	coolMost  = 30 * time.Second
)

// coolness is what a daemon's questions about one route came to lately.
type coolness struct {
	declined int
	wait     time.Duration
	until    time.Time
}

// cool reports whether the daemon leaves a route alone just now; mu is held.
func (d *daemon) coolLocked(key store.Route) bool {
	c := d.cools[key]
	return c != nil && time.Now().Before(c.until)
}

// askableLocked reports whether jobs of a route may be claimed as far as grants go: none are needed, or they may be asked
// for; mu is held.
func (d *daemon) askableLocked(key store.Route) bool {
	return !d.asks || d.hub.grants.Open() && !d.coolLocked(key)
}

func (d *daemon) askable(key store.Route) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.askableLocked(key)
}

// chill notes how many jobs of a route were granted and declined; mu is held.
func (d *daemon) chillLocked(key store.Route, granted, declined int) {
	if granted > 0 {
		delete(d.cools, key)
		return
	}
	c := d.cools[key]
	if c == nil {
		if d.cools == nil {
			d.cools = map[store.Route]*coolness{}
		}
		c = &coolness{wait: coolFirst}
		d.cools[key] = c
	}
	if c.declined += declined; c.declined < coolAfter {
		return
	}
	c.declined, c.until = 0, time.Now().Add(c.wait)
	c.wait = min(2*c.wait, coolMost)
}

// askFor asks the control plane about what a daemon claimed; the answer pushes it or gives it back. Meanwhile the jobs have
// their slots, and the daemon knows nothing of them.
func (h *Hub) askFor(d *daemon, claimed []store.Claimed) {
	if len(claimed) == 0 {
		return
	}
	d.mu.Lock()
	r := grantRunner(d.runner, d.owner, d.keyID, d.caps, claimed)
	d.mu.Unlock()
	h.grants.Submit(r, func(v []grants.Verdict) { h.judged(d, claimed, v) })
}

func grantRunner(runner, owner, keyID string, caps []wire.Capability, claimed []store.Claimed) *wire.GrantRunner {
	r := &wire.GrantRunner{RunnerID: runner, Owner: owner, KeyID: keyID, Capabilities: caps, Jobs: make([]wire.GrantJob, len(claimed))}
	for i := range claimed {
		r.Jobs[i] = wire.GrantJob{LeaseID: claimed[i].Lease, SiteID: claimed[i].Site, Stub: &claimed[i].Stub}
	}
	return r
}

// judged pushes what was granted and gives back the rest.
func (h *Hub) judged(d *daemon, claimed []store.Claimed, verdicts []grants.Verdict) {
	ctx, cancel := afterwards(context.Background())
	defer cancel()
	jobs, back := h.sort(d.runner, d.keyID, d.owner, claimed, verdicts)
	jobs = d.learned(jobs, claimed, verdicts, &back)
	h.pushClaimed(d, jobs)
	h.giveBack(ctx, d.runner, &back)
}

// returns are grants to give back, by why.
type returns struct {
	never     []wire.Grant // the control plane's last word
	later     []wire.Grant // not now, or no answer
	withdrawn []wire.Grant // the route doesn't stand any more
	free      []wire.Grant // not wanted any more: cancelled, or the relay goes away
}

// sort tells what may be told to the device from what goes back, by the verdicts and by the projection that is in force now.
func (h *Hub) sort(runner, keyID, owner string, claimed []store.Claimed, verdicts []grants.Verdict) (jobs []wire.ClaimedJob, back returns) {
	cur := h.proj.Current()
	stands := h.deviceStands(cur, runner, keyID, owner)
	for i := range claimed {
		c, v := &claimed[i], verdicts[i]
		g := wire.Grant{JobID: c.Stub.ID, LeaseID: c.Lease}
		switch {
		case !stands || !cur.MayCarry(projection.Route{Site: c.Site, Owner: c.Stub.Owner}, owner):
			back.withdrawn = append(back.withdrawn, g)
		case v.Never:
			back.never = append(back.never, g)
		case v.Grant == nil:
			back.later = append(back.later, g)
		case h.stopped.Load():
			back.free = append(back.free, g)
		default:
			jobs = append(jobs, claimedJob(c, runner, v.Grant))
		}
	}
	return jobs, back
}

func claimedJob(c *store.Claimed, runner string, grant *wire.SignedGrant) wire.ClaimedJob {
	return wire.ClaimedJob{
		Stub:  &c.Stub,
		Lease: wire.ClaimLease{ID: c.Lease, RunnerID: runner, ExpiresAt: c.ExpiresAt.UnixMilli()},
		Grant: grant,
	}
}

func (h *Hub) giveBack(ctx context.Context, runner string, back *returns) {
	h.withdraw(ctx, runner, back.withdrawn)
	for _, r := range []struct {
		list   []wire.Grant
		reason string
		notFor time.Duration
	}{
		{back.never, wire.ReleaseRefused, 0},
		{back.later, wire.ReleaseBackendDown, h.set.DeclinedWait},
		{back.free, wire.ReleaseShutdown, 0},
	} {
		if len(r.list) == 0 {
			continue
		}
		if _, err := h.store.Release(ctx, runner, r.list, r.reason, r.notFor); err != nil {
			h.storeFailed(ctx, "release", err) // they go back when the time of their offer is over
		}
	}
}

// learned notes what the control plane said, and answers the jobs that are still the daemon's to be told.
func (d *daemon) learned(jobs []wire.ClaimedJob, claimed []store.Claimed, verdicts []grants.Verdict, back *returns) []wire.ClaimedJob {
	d.mu.Lock()
	defer d.mu.Unlock()
	type sum struct{ granted, declined int }
	sums := map[store.Route]sum{}
	for i := range claimed {
		key := store.Route{Site: claimed[i].Site, Owner: claimed[i].Stub.Owner}
		s := sums[key]
		if verdicts[i].Grant != nil {
			s.granted++
		} else {
			s.declined++
		}
		sums[key] = s
	}
	for key, s := range sums {
		d.chillLocked(key, s.granted, s.declined)
	}
	out := jobs[:0]
	for _, j := range jobs {
		l := d.leases[j.Lease.ID]
		switch {
		case l == nil || d.ended && d.held == nil: // given back already, or by the end of the session
		case l.cancelled:
			back.free = append(back.free, wire.Grant{JobID: j.Stub.ID, LeaseID: j.Lease.ID})
		default:
			l.asking, l.told = false, true
			out = append(out, j)
		}
	}
	return out
}
