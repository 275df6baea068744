package memory

import (
	"slices"

	"pushrelay/store"
)

// UndoGroup puts everything back as it was when the group began. Its events are forgotten.
func (m *Machine) UndoGroup() {
	n := m.journal
	m.journal = nil // what follows isn't noted
	for i := range slices.Backward(n.records) {
		if j := n.records[i].j; m.jobs[j.Key] == j {
			m.forget(j)
		}
	}
	for i := range n.records {
		if w := &n.records[i]; w.existed {
			w.j.Record = w.record
			m.place(w.j)
			m.putOffer(w.j, &w.offer)
		}
	}
	for i := range slices.Backward(n.streaks) {
		m.putStreak(&n.streaks[i])
	}
	for _, e := range slices.Backward(n.ended) {
		m.revive(e)
	}
	for _, t := range slices.Backward(n.turns) {
		m.putTurns(t)
	}
	for i := range slices.Backward(n.records) {
		m.putTurns(n.records[i].turns)
	}
	m.seq, m.stamp, m.swept = n.seq, n.stamp, n.swept
	m.events = m.events[:0]
	m.journal = n
	m.EndGroup()
}

// place puts a record that stands nowhere where it belongs.
func (m *Machine) place(j *job) {
	stub := j.Stub.Wire(j.Key.Job)
	j.q = m.queueOf(store.Queue{
		Route: store.Route{Site: j.Key.Site, Owner: stub.Owner}, Kind: stub.Kind, Private: stub.Private(), Dialect: j.Stub.Dialect,
	})
	j.Key.Site, j.Stub.Form = j.q.Site, j.q.form(&stub)
	m.admit(j)
	if !j.live() {
		j.q.route.site.unlist(j)
	}
	if j.Lease != "" {
		m.leases[j.Lease] = j
	}
	if j.Runner != "" {
		m.holders[holding{j.Runner, j.Key.Job}]++
		if !j.finished() {
			m.runner(j.Runner).held.sort(j)
		}
	}
	bytes := j.Payload.size() + j.Result.size()
	m.bytes += bytes
	j.q.route.site.bytes += bytes
	m.enter(j)
}

// putOffer gives a record that was placed the offer that it had.
func (m *Machine) putOffer(j *job, w *wasOffer) {
	o := &j.offer
	if o.kind == 0 {
		return
	}
	s := j.q.route.site
	sh := &s.shelves[o.kind-1]
	sh.free.remove(o.key)
	o.key, o.attempt = w.key, w.attempt
	if !w.open {
		sh.free.insert(o.key, j)
		return
	}
	sh.open.set(&o.due, w.at)
	if w.who == "" {
		return
	}
	o.who = s.audience(w.who)
	c := &o.who.open[o.kind-1]
	c.jobs.push(j, openChain)
	if w.counted {
		o.counted = true
		c.n++
		c.bytes += o.bytes
	}
}

// putTurns gives a route and its site the turns that they had; one without records has none.
func (m *Machine) putTurns(t turns) {
	if s := m.sites[t.Site]; s != nil {
		s.served = t.site
		if r := s.routes[t.Owner]; r != nil {
			r.served = t.route
		}
	}
}

// putStreak makes a streak what it was.
func (m *Machine) putStreak(w *wasStreak) {
	m.removeStreak(w.streakKey)
	if w.existed {
		m.LoadStreak(w.was)
	} else {
		m.tidyRunner(w.runner)
	}
}

// revive gives a session back that had ended.
func (m *Machine) revive(e ended) {
	p := m.parties[e.s.party]
	if p == nil {
		p = e.p
		m.parties[e.s.party] = p
	}
	p.sessions[e.s.id] = e.s
	m.dues.set(&e.s.due, e.s.due.at)
	m.online++
}
