package hub

import (
	"context"
	"hash/maphash"

	"pushrelay/session"
)

// presenceSlices is how many parts a round of renewals has, so that thousands of sessions aren't renewed at once.
const presenceSlices = 10

// renewPresence tells the store again and again who is here.
func (h *Hub) renewPresence(ctx context.Context) {
	seed := maphash.MakeSeed()
	for slice := uint64(0); pause(ctx, h.set.PresenceEvery/presenceSlices); slice = (slice + 1) % presenceSlices {
		due := func(id string) bool { return maphash.String(seed, id)%presenceSlices == slice }
		for _, d := range h.reg.allDaemons() {
			if ctx.Err() == nil && due(d.link.ID()) {
				_ = d.renew(ctx) // the next round tries again
			}
		}
		for _, s := range h.reg.allSites() {
			s.renew(ctx, due)
		}
	}
}

// renew keeps the session's number. When its presence had lapsed, as after an outage of the store, it gets a new one.
func (d *daemon) renew(ctx context.Context) error {
	n, err := d.hub.store.Attach(ctx, d.party(), d.link.ID(), d.hub.set.PresenceFor)
	if err != nil {
		d.hub.storeFailed(ctx, "attach", err)
		return err
	}
	d.mu.Lock()
	ended := d.ended
	d.mu.Unlock()
	if ended || d.hub.reg.daemon(d.runner) != d {
		d.hub.detach(ctx, d.party(), d.link.ID()) // it closed meanwhile, and nobody else would
		return nil
	}
	d.number.Store(n)
	return nil
}

// renew skips a site that answers no seal request: it counts as absent, and other replicas must know.
func (s *site) renew(ctx context.Context, due func(id string) bool) {
	if s.mute() {
		return
	}
	for _, ss := range s.list() {
		if !due(ss.link.ID()) || ctx.Err() != nil {
			continue
		}
		if _, err := s.hub.store.Attach(ctx, s.party(), ss.link.ID(), s.hub.set.PresenceFor); err != nil {
			s.hub.storeFailed(ctx, "attach", err)
		}
		if !s.has(ss.link.ID()) || s.mute() { // it became so meanwhile, and what was told of it is undone now
			s.hub.detach(ctx, s.party(), ss.link.ID())
		}
	}
}

func (s *site) mute() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.mutes.IsZero()
}

// StopClaims stops new claims and refuses new sessions: the first step of a drain. Heartbeats, results and pushes for
// what is claimed go on.
func (h *Hub) StopClaims() {
	h.draining.Store(true)
	h.stopped.Store(true)
	for _, d := range h.reg.allClaims() {
		d.resite()
	}
	h.polls.wakeFetches()
	for _, s := range h.reg.allSites() {
		s.letGo()
	}
}

// Leases answers how many unfinished grants the daemons here hold, so that a drain can end early when there are none.
func (h *Hub) Leases() int {
	n := 0
	for _, d := range h.reg.allDaemons() {
		d.mu.Lock()
		n += len(d.leases)
		d.mu.Unlock()
	}
	return n
}

// EndAll ends every session with going-away at once: the hard end of a drain, or a second signal.
func (h *Hub) EndAll(text string) {
	for _, d := range h.reg.allDaemons() {
		d.end(session.ReasonGoingAway, text)
	}
	for _, s := range h.reg.allSites() {
		for _, ss := range s.list() {
			ss.end(session.ReasonGoingAway, text)
		}
	}
}

// Settings answers the settings in force, defaults filled in.
func (h *Hub) Settings() Settings { return h.set }
