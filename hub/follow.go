package hub

import (
	"context"
	"sync"
	"time"

	"pushrelay/hub/projection"
	"pushrelay/session"
	"pushrelay/wire"
)

// Replace puts a projection in force; what no longer stands is given back and told within a second while Run runs. An
// error keeps the old one.
func (h *Hub) Replace(p *projection.Projection) error {
	changed, err := h.proj.Replace(p)
	if err != nil {
		h.log.Error().Err(err).Msg("the new projection is refused; the old one stays in force")
		return err
	}
	if changed {
		sites, devices := p.Size()
		version, _ := p.Version()
		h.log.Info().Int64("version", version).Int("sites", sites).Int("devices", devices).Msg("a new projection is in force")
	}
	return nil
}

// follow applies each change of the projection; one that the store failed is applied again after a second.
func (h *Hub) follow(ctx context.Context, changed <-chan struct{}) {
	for {
		wait := time.Hour
		if !h.apply(ctx) {
			wait = time.Second
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-changed:
		case <-t.C:
		}
		t.Stop()
	}
}

// expel ends, after each change of the projection, the sessions that it doesn't carry any more. It asks the store nothing, so
// that no revocation waits for an earlier projection that is still being applied.
func (h *Hub) expel(ctx context.Context, changed <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		h.judgeAll(h.proj.Current())
	}
}

// expelled is whose sessions ended and whose grants weren't looked at since.
type expelled struct {
	mu      sync.Mutex
	runners []string
}

func (e *expelled) add(runners ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.runners = append(e.runners, runners...)
}

func (e *expelled) take() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := e.runners
	e.runners = nil
	return out
}

// judgeAll ends the sessions that the projection doesn't carry.
func (h *Hub) judgeAll(cur *projection.Current) {
	for _, d := range h.reg.allDaemons() {
		if !h.judge(cur, d) {
			h.expelled.add(d.runner)
		}
	}
	for _, d := range h.reg.allClaims() {
		h.judge(cur, d)
	}
	h.polls.wakeFetches() // each judges itself
	for _, s := range h.reg.allSites() {
		for _, ss := range s.list() {
			_ = h.judgeSite(cur, ss)
		}
		s.judgePolls(cur)
	}
}

// apply ends sessions whose key isn't good any more, gives back grants whose route doesn't stand, and tells daemons what
// changed for them. The new projection is in force already.
func (h *Hub) apply(ctx context.Context) (done bool) {
	old, cur := h.applied, h.proj.Current()
	if old.Generation == cur.Generation {
		return true
	}
	h.polls.follow(old, cur)
	here := h.reg.allDaemons() // before some of them end
	h.judgeAll(cur)
	done = true
	for _, runner := range h.expelled.take() {
		if !h.recheck(ctx, cur, runner) {
			h.expelled.add(runner)
			done = false
		}
	}
	// A projection that came and went in between may have let through what those before and after it don't.
	unseen := cur.Generation != old.Generation+1
	if unseen {
		for _, d := range here {
			done = h.recheck(ctx, cur, d.runner) && done
		}
	}
	old.EachDevice(func(dev *projection.Device) {
		if ctx.Err() != nil || !unseen && !changedFor(old, cur, dev) {
			return
		}
		done = h.recheck(ctx, cur, dev.Runner) && done
	})
	for _, d := range h.reg.allDaemons() {
		if !old.SameFor(cur.Projection, d.owner) || !d.told.CompareAndSwap(old.Generation, cur.Generation) {
			d.resite()
		}
	}
	for _, d := range h.reg.allClaims() {
		moved := old.SameFor(cur.Projection, d.owner) && d.told.CompareAndSwap(old.Generation, cur.Generation)
		if !moved && d.told.Load() != cur.Generation {
			d.resite()
		}
	}
	h.routes.markWaiting("")
	if done {
		h.applied = cur
	}
	return done
}

// changedFor reports whether anything that decides on the device's grants changed.
func changedFor(old, cur *projection.Current, dev *projection.Device) bool {
	now, ok := cur.DeviceByRunner(dev.Runner)
	return !ok || now.Owner != dev.Owner || now.KeyID != dev.KeyID ||
		cur.Revoked(dev.Runner) != old.Revoked(dev.Runner) || !old.SameFor(cur.Projection, dev.Owner)
}

// resite has the daemon told its sites again and lets it claim over its new routes.
func (d *daemon) resite() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.held != nil { // its daemon asks with a heartbeat first, and is told by that
		d.ended = true
		d.held.close(d)
		return
	}
	d.out.sites, d.out.room = true, true
	d.mark()
}

// recheck gives back what the runner holds along routes that no longer stand, wherever it is connected.
func (h *Hub) recheck(ctx context.Context, cur *projection.Current, runner string) bool {
	held, err := h.store.Held(ctx, runner)
	if err != nil {
		h.storeFailed(ctx, "held", err)
		return false
	}
	var back []wire.Grant
	for i := range held {
		if !h.grantStands(cur, runner, &held[i]) {
			back = append(back, wire.Grant{JobID: held[i].Job, LeaseID: held[i].Lease})
		}
	}
	return h.withdraw(ctx, runner, back)
}

// withdraw gives grants back as revoked; the event of each tells its daemon.
func (h *Hub) withdraw(ctx context.Context, runner string, grants []wire.Grant) bool {
	if len(grants) == 0 {
		return true
	}
	back, err := h.store.Release(ctx, runner, grants, wire.ReleaseRevoked, 0)
	if err != nil {
		h.storeFailed(ctx, "release", err)
		return false
	}
	if len(back) > 0 {
		h.obs.Count(CountWithdrawn, len(back))
	}
	return true
}

// deviceStands reports whether the device is known with this key and owner, and not revoked.
func (h *Hub) deviceStands(cur *projection.Current, runner, keyID, owner string) bool {
	dev, ok := cur.DeviceByRunner(runner)
	return ok && dev.KeyID == keyID && dev.Owner == owner && !cur.Revoked(runner)
}

// judge ends a session that the projection doesn't carry any more, and reports whether it does.
func (h *Hub) judge(cur *projection.Current, d *daemon) bool {
	dev, ok := cur.DeviceByRunner(d.runner)
	switch {
	case !ok:
		d.end(session.ReasonUnknown, "unknown: this runner isn't known here any more")
	case cur.Revoked(d.runner):
		d.end(session.ReasonRevoked, "this device was revoked")
	case !dev.Key.Equal(d.key):
		d.end(session.ReasonUnknown, "unknown: this runner has another key now")
	case dev.Owner != d.owner:
		d.end(session.ReasonGoingAway, "this runner has another owner now; dial again")
	default:
		return true
	}
	return false
}

// judgeSite ends a session whose site or key isn't good any more.
func (h *Hub) judgeSite(cur *projection.Current, ss *siteSession) error {
	s, ok := cur.SiteByID(ss.site.id)
	if ok && s.Signs(ss.keyID, h.now()) {
		return nil
	}
	ss.end(session.ReasonUnknown, "unknown: this site or its key isn't known here any more")
	return errUnknownSite()
}
