package hub

import (
	"context"
	"maps"
	"time"

	"pushrelay/store"
	"pushrelay/wire"
)

// offersEvery is how often open offers are looked at, and offersAgain how long entries whose offer ended are asked for:
// the store lets go of them when it sweeps, a moment before or after.
const (
	offersEvery = 200 * time.Millisecond
	offersAgain = time.Second
)

// watchOffers finds offers that ended unanswered and offers their entries to others. It also ends sessions whose key's
// window has closed.
func (h *Hub) watchOffers(ctx context.Context) {
	t := time.NewTicker(offersEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		cur := h.proj.Current()
		for _, s := range h.reg.allSites() {
			for _, ss := range s.list() {
				_ = h.judgeSite(cur, ss) // a superseded key's window may have closed
			}
			s.judgePolls(cur)
			s.shorten(ctx)
			s.expire(ctx)
		}
	}
}

// expire closes the offers whose time is over. A session that neither answered nor sent bulk meanwhile, and to which the
// entry isn't still on its way, is silent: it gets nothing more while another answers.
func (s *site) expire(ctx context.Context) {
	now := time.Now()
	received := s.received()
	s.mu.Lock()
	for _, ss := range s.sessions {
		maps.DeleteFunc(ss.moving, func(_ string, m moving) bool { return !m.until.IsZero() && now.After(m.until) })
		for id, o := range ss.open {
			if now.Before(o.ends) {
				continue
			}
			ss.forget(id)
			s.again[o.kind] = now.Add(offersAgain)
			if !ss.moves(id, now) && o.answers == ss.answers && received[ss]-o.received < bulkBytes && !ss.silent[o.kind] {
				ss.silent[o.kind] = true
				s.hub.obs.Count(CountSilent, 1)
			}
		}
	}
	s.expirePolls(now)
	wasMute := !s.mutes.IsZero()
	s.judgeMutes()
	mute := !s.mutes.IsZero()
	if mute && since(s.mutes) > s.hub.set.MuteFor {
		s.trust()
		mute = false
	}
	for kind, until := range s.again {
		if now.Before(until) {
			s.want[kind] = true
			s.mark()
		}
	}
	s.mu.Unlock()
	if mute != wasMute {
		s.tellPresence(ctx, !mute)
	}
}

// received asks the sessions that have offers open how many bytes came from them, without holding mu. Offers that are opened
// meanwhile don't end yet.
func (s *site) received() map[*siteSession]int64 {
	var list []*siteSession
	s.mu.Lock()
	for _, ss := range s.sessions {
		if len(ss.open) > 0 {
			list = append(list, ss)
		}
	}
	s.mu.Unlock()
	out := make(map[*siteSession]int64, len(list))
	for _, ss := range list {
		out[ss] = ss.link.Received()
	}
	return out
}

// judgeMutes sees whether a session answers seal requests; mu is held.
func (s *site) judgeMutes() {
	for _, ss := range s.sessions {
		if !ss.silent[store.OfferSeals] {
			s.mutes = time.Time{}
			return
		}
	}
	if len(s.sessions) > 0 && s.mutes.IsZero() {
		s.mutes = time.Now()
	}
}

// trust gives all sessions another chance to answer seal requests; mu is held.
func (s *site) trust() {
	for _, ss := range s.sessions {
		ss.silent[store.OfferSeals] = false
	}
	s.mutes = time.Time{}
}

// tellPresence lets the other replicas know that the site's sessions here do, or don't, count as present. Afterwards
// claims for it are made again, or only when it has a session elsewhere.
func (s *site) tellPresence(ctx context.Context, present bool) {
	for _, ss := range s.list() {
		if !present {
			s.hub.detach(ctx, s.party(), ss.link.ID())
			continue
		}
		if _, err := s.hub.store.Attach(ctx, s.party(), ss.link.ID(), s.hub.set.PresenceFor); err != nil {
			s.hub.storeFailed(ctx, "attach", err)
		}
	}
	s.unsure()
	if present {
		s.hub.routes.markWaiting(s.id)
	} else {
		s.hub.log.Warn().Str("site", s.id).Msg("no session of the site answers seal requests; it counts as absent")
	}
}

// answered closes the offers that an answer names, on whichever session they are, and trusts the one that answered.
func (ss *siteSession) answered(ctx context.Context, grants []wire.Grant) {
	s := ss.site
	s.mu.Lock()
	ss.answers++
	ss.silent = [offerKinds]bool{}
	wasMute := !s.mutes.IsZero()
	s.mutes = time.Time{}
	for _, g := range grants {
		s.closeOffer(g.LeaseID)
	}
	s.mu.Unlock()
	if wasMute {
		s.tellPresence(ctx, true)
	}
}

// closeOffer forgets an offer and, when others wait for room, asks for more; mu is held.
func (s *site) closeOffer(leaseID string) {
	for _, o := range s.sessions {
		kind := o.open[leaseID].kind
		if !o.forget(leaseID) {
			continue
		}
		if s.starved[kind] {
			s.starved[kind] = false
			s.want[kind] = true
			s.mark()
		}
		return
	}
}

// settled is told of what another session or a poll answered, and of grants that ended: no answer to them is silence.
func (s *site) settled(leaseID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.polls.open, leaseID)
	s.closeOffer(leaseID)
}
