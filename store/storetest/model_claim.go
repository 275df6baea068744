package storetest

import (
	"slices"
	"time"

	"pushrelay/store"
)

// eligible reports whether this claim may have the job now.
func (m *model) eligible(j *mjob, c *store.Claim) bool {
	if j.State != store.Queued || j.Cancelled || !j.Deadline.After(m.now) || j.Dialect != c.Dialect {
		return false
	}
	if !slices.Contains(c.Routes, j.queue.Route) || !slices.Contains(c.Kinds, j.queue.Kind) {
		return false
	}
	if j.queue.Private && j.queue.Owner != c.Owner {
		return false
	}
	if until, ok := j.shun[c.Runner]; ok && until.After(m.now) {
		return false
	}
	if s := m.streaks[mqueue{c.Runner, j.queue}]; s != nil && s.until.After(m.now) {
		return false
	}
	return m.unsealed(j.queue.Route) < m.set.UnsealedPerRoute && m.siteBytes(j.Site) <= m.set.BytesPerSite
}

// unsealed counts a route's grants that wait for their seal.
func (m *model) unsealed(r store.Route) (n int) {
	for _, j := range m.jobs {
		if j.queue.Route == r && j.State == store.AwaitingPayload && !j.Cancelled {
			n++
		}
	}
	return n
}

func (m *model) heldBy(runner string) (out []*mjob) {
	for _, j := range m.jobs {
		if j.held() && j.Runner == runner {
			out = append(out, j)
		}
	}
	return out
}

// follow judges a claim's grants one after another and makes them. It answers what is wrong, or nothing.
func (m *model) follow(c *store.Claim, got []store.Claimed) string {
	for i, g := range got {
		room := min(c.Max-i, c.Slots-len(m.heldBy(c.Runner)))
		if room <= 0 {
			return "a grant beyond max or slots"
		}
		j := m.jobs[store.Key{Site: g.Site, Job: g.Stub.ID}]
		if j == nil || !m.eligible(j, c) {
			return "a grant of a job that this claim may not have: " + g.Stub.ID
		}
		if wrong := m.fair(j, c); wrong != "" {
			return wrong
		}
		if !g.ExpiresAt.Equal(m.now.Add(c.LeaseFor)) && !m.still() {
			return "a lease that doesn't end at now + leaseFor"
		}
		m.grant(j, c, g.Lease)
	}
	if min(c.Max-len(got), c.Slots-len(m.heldBy(c.Runner))) > 0 {
		for _, j := range m.jobs {
			if m.eligible(j, c) {
				return "left behind: " + j.Key.Job
			}
		}
	}
	return ""
}

// still reports whether the model's time is unknown: the store judges by a clock of its own.
func (m *model) still() bool { return m.now.IsZero() }

// fair judges that it was this job's turn: its site's, then its owner's, then by age.
func (m *model) fair(j *mjob, c *store.Claim) string {
	for _, o := range m.jobs {
		if o == j || !m.eligible(o, c) {
			continue
		}
		switch {
		case o.Site != j.Site:
			if m.sooner(store.Route{Site: o.Site}, store.Route{Site: j.Site}) {
				return "it was the turn of site " + o.Site
			}
		case o.queue.Owner != j.queue.Owner:
			if m.sooner(o.queue.Route, j.queue.Route) {
				return "it was the turn of owner " + o.queue.Owner
			}
		case o.seq < j.seq:
			return "an older job was passed over: " + o.Key.Job
		}
	}
	return ""
}

// sooner reports whether a was certainly served before b, or never.
func (m *model) sooner(a, b store.Route) bool {
	ta, tb := m.turn(a), m.turn(b)
	return ta.certain && tb.certain && ta.at < tb.at
}

func (m *model) turn(r store.Route) *mturn {
	if m.turns[r] == nil {
		m.turns[r] = &mturn{certain: true}
	}
	return m.turns[r]
}

func (m *model) grant(j *mjob, c *store.Claim, lease string) {
	m.stamp++
	*m.turn(store.Route{Site: j.Site}) = mturn{m.stamp, true}
	*m.turn(j.queue.Route) = mturn{m.stamp, true}
	j.State, j.Since, j.served = store.AwaitingPayload, m.now, m.stamp
	j.Lease, j.Runner, j.RunnerOwner, j.Device, j.Identity, j.number = lease, c.Runner, c.Owner, c.Device, c.Identity, c.Number
	j.LeaseEnds = m.now.Add(c.LeaseFor)
	j.Offered, j.WindowEnds = true, m.now.Add(c.OfferFor)
	m.tellGrant(j, store.EventOffered, "")
	if c.OfferFor == 0 {
		m.accept(j)
	}
}

// settleTurns marks the turns of what waits for nobody as uncertain: a store may forget them.
func (m *model) settleTurns() {
	waits := map[store.Route]bool{}
	for _, j := range m.jobs {
		if j.State == store.Queued {
			waits[store.Route{Site: j.Site}], waits[j.queue.Route] = true, true
		}
	}
	for r, t := range m.turns {
		if !waits[r] && t.at > 0 {
			t.certain = false
		}
	}
}

// refused counts a refusal in its queue.
func (m *model) refused(j *mjob, runner string) {
	q := mqueue{runner, j.queue}
	s := m.streaks[q]
	if s == nil {
		s = &mstreak{}
		m.streaks[q] = s
	}
	s.n++
	if s.n < store.RefusalStreak {
		return
	}
	s.n = 0
	if s.wait == 0 {
		s.wait = store.RefusalWait
	} else {
		s.wait = min(2*s.wait, 24*time.Hour)
	}
	s.until = m.now.Add(s.wait)
}
