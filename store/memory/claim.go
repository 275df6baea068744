package memory

import "pushrelay/store"

// pick is a queue that a claim reads, and how far it came.
type pick struct {
	q     *queue
	after uint64
}

// Claim is RunnerStore's. Turns: the site served longest ago, of it the owner served longest ago, of that the oldest
// job. A route that used up what a claim may skip counts as served, or the routes behind it would never be reached.
func (m *Machine) Claim(c *store.Claim) ([]store.Claimed, error) {
	m.fire(store.MaxFired)
	if c.Number != 0 && !m.newest(c.Runner, c.Number) {
		return nil, store.ErrSuperseded
	}
	room := min(c.Max, c.Slots-m.unfinished(c.Runner))
	if room <= 0 {
		return nil, nil
	}
	who := m.runners[c.Runner]
	sites := m.candidates(c, who)
	var out []store.Claimed
	skipped := 0
	for len(sites) > 0 && len(out) < room && skipped <= store.MaxSkipped {
		s := sites[0]
		r := s.turns[0]
		var j *job
		if m.picks(r, c, who) {
			j = m.pickOf(r, c, &skipped)
		}
		if j != nil {
			m.offerTo(j, c)
			out = append(out, store.Claimed{Site: s.id, Stub: j.Stub.Wire(j.Key.Job), Lease: j.Lease, ExpiresAt: moment(j.Lapse)})
		}
		switch {
		case j != nil:
			r.served, s.served = j.Served, j.Served
		case skipped > store.MaxSkipped:
			m.touchTurns(r)
			r.served = m.nextStamp()
			s.served = r.served
		}
		if j == nil || r.unsealed >= m.set.UnsealedPerRoute {
			s.turns = behead(s.turns)
		} else {
			sink(s.turns, 0)
		}
		if len(s.turns) == 0 {
			sites = behead(sites)
		} else {
			sink(sites, 0)
		}
	}
	clear(m.turns)
	clear(m.named)
	return out, nil
}

func (m *Machine) unfinished(id string) int {
	if r := m.runners[id]; r != nil {
		return r.held.n
	}
	return 0
}

// candidates answers the sites with a route on which something waits, as a heap of turns with one in each. Whether the
// claim may have any of it is asked when it is the route's turn: most routes never get theirs.
func (m *Machine) candidates(c *store.Claim, who *runner) []*site {
	m.claim++
	m.turns = m.turns[:0]
	for i, r := range m.resolve(c.Routes, who) {
		if r == nil || r.waiting == 0 || r.unsealed >= m.set.UnsealedPerRoute || r.mark == m.claim {
			continue
		}
		s := r.site
		if s.bytes > m.set.BytesPerSite {
			continue
		}
		r.mark, r.order = m.claim, i
		if s.mark != m.claim {
			s.mark, s.order = m.claim, i
			clear(s.turns)
			s.turns = s.turns[:0]
			m.turns = append(m.turns, s)
		}
		s.turns = append(s.turns, r)
	}
	for _, s := range m.turns {
		heapify(s.turns)
	}
	heapify(m.turns)
	return m.turns
}

// maxKnown bounds how many routes are remembered for a runner.
const maxKnown = 128

// known is a route that a runner's claims named, so that its next claim finds it without a look-up.
type known struct {
	store.Route
	r *route
}

// ahead is how many remembered routes are passed over in search of the next one.
const ahead = 8

// resolve answers the routes of these names, nil for one of which there is no record. A runner names mostly the same ones
// in the same order, claim after claim: they are remembered, and compared rather than looked up.
func (m *Machine) resolve(names []store.Route, who *runner) []*route {
	m.named = m.named[:0]
	at, missed := 0, false
	for _, name := range names {
		r, next := who.recall(name, at)
		if next < 0 {
			if s := m.sites[name.Site]; s != nil {
				r = s.routes[name.Owner]
			}
			missed = missed || r != nil
		} else {
			at = next
		}
		m.named = append(m.named, r)
	}
	if missed && who != nil && len(names) <= maxKnown {
		clear(who.known)
		who.known = who.known[:0]
		for i, r := range m.named {
			if r != nil {
				who.known = append(who.known, known{names[i], r})
			}
		}
	}
	return m.named
}

// recall answers a remembered route at or soon after a place, and the place after it; a negative place when it isn't there.
func (w *runner) recall(name store.Route, at int) (*route, int) {
	if w == nil {
		return nil, -1
	}
	for i := at; i < min(at+ahead, len(w.known)); i++ {
		if k := &w.known[i]; k.Route == name && k.r.records > 0 {
			return k.r, i + 1
		}
	}
	return nil, -1
}

// picks notes the queues of a route that the claim may read, once in each claim, and reports whether there are any.
func (m *Machine) picks(r *route, c *store.Claim, who *runner) bool {
	if r.picked == m.claim {
		return len(r.picks) > 0
	}
	r.picked = m.claim
	clear(r.picks)
	r.picks = r.picks[:0]
	add := func(q *queue) {
		if q != nil && q.jobs.n > 0 && q.mark != m.claim && !who.waits(q.Queue, m.now) {
			q.mark = m.claim
			r.picks = append(r.picks, pick{q: q})
		}
	}
	for _, kind := range c.Kinds {
		add(r.queues[lane{kind, false, string(c.Dialect)}])
		if c.Owner == r.Owner {
			add(r.queues[lane{kind, true, string(c.Dialect)}])
		}
	}
	return len(r.picks) > 0
}

// pickOf answers the oldest job of the route that the claim may have; nil when there is none or too many were skipped.
func (m *Machine) pickOf(r *route, c *store.Claim, skipped *int) *job {
	for *skipped <= store.MaxSkipped {
		var j *job
		var from *pick
		for i := range r.picks {
			p := &r.picks[i]
			if o, _ := p.q.jobs.after(p.after); o != nil && (j == nil || o.Seq < j.Seq) {
				j, from = o, p
			}
		}
		if j == nil {
			return nil
		}
		from.after = j.Seq
		switch {
		case j.Deadline <= m.now:
			m.drop(j, store.WhyDeadline)
		case j.shunned(c.Runner, m.now):
		default:
			return j
		}
		*skipped++
	}
	return nil
}
