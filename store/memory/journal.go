package memory

import (
	"time"

	"pushrelay/store"
	"pushrelay/wire"
)

// journal is what a group of operations changed, so that a medium can be told of it and that it can be undone. Only
// records, offers, turns, streaks and sessions that ended are noted: the indexes follow from these. A session's beginning,
// a sighting and an offer aren't kept, so the operations that make them stand outside of groups.
type journal struct {
	records []was
	at      map[*job]int // place in records
	turns   []turns
	streaks []wasStreak
	known   map[streakKey]int // place in streaks
	ended   []ended

	seq, stamp uint64
	swept      int64
}

// was is a record before the group changed it.
type was struct {
	j       *job
	existed bool
	changed bool // the record; else only its offer
	record  Record
	offer   wasOffer
	turns   turns
}

// wasOffer is a record's offer with the name of its audience, which may come and go.
type wasOffer struct {
	key     uint64
	attempt int
	open    bool
	counted bool
	who     string
	at      int64
}

// turns is when a route and its site were served.
type turns struct {
	store.Route
	route, site uint64
}

type streakKey struct {
	runner string
	queue  store.Queue
}

// wasStreak is a streak before the group changed it.
type wasStreak struct {
	streakKey
	existed bool
	was     Streak
}

// ended is a session that a due time ended.
type ended struct {
	p *party
	s *session
}

// Change is a record before and after a group; nil where there was or is none. Both belong to the machine.
type Change struct {
	Seq     uint64
	Was, Is *Record
}

// StreakChange is a streak after a group; nil when there is none any more.
type StreakChange struct {
	Runner string
	Queue  store.Queue
	Is     *Streak
}

// BeginGroup starts a group of operations whose changes are noted. It ends with EndGroup or UndoGroup.
func (m *Machine) BeginGroup() {
	n := m.notes
	if n == nil {
		n = &journal{at: make(map[*job]int), known: make(map[streakKey]int)}
		m.notes = n
	}
	n.seq, n.stamp, n.swept = m.seq, m.stamp, m.swept
	m.journal = n
}

// EachChange calls f for each record that the group changed, made or removed, in the order of the first change.
func (m *Machine) EachChange(f func(Change) error) error {
	for i := range m.journal.records {
		w := &m.journal.records[i]
		c := Change{Seq: w.j.Seq}
		if w.existed {
			c.Was = &w.record
		}
		if m.jobs[w.j.Key] == w.j {
			c.Is = &w.j.Record
		}
		if !w.changed || c.Was == nil && c.Is == nil {
			continue
		}
		if err := f(c); err != nil {
			return err
		}
	}
	return nil
}

// EachStreakChange calls f for each streak that the group changed, made or removed.
func (m *Machine) EachStreakChange(f func(StreakChange) error) error {
	for i := range m.journal.streaks {
		k := m.journal.streaks[i].streakKey
		if err := f(StreakChange{k.runner, k.queue, m.streak(k)}); err != nil {
			return err
		}
	}
	return nil
}

// Changed reports whether the group changed anything that is kept.
func (m *Machine) Changed() bool {
	for i := range m.journal.records {
		if m.journal.records[i].changed {
			return true
		}
	}
	return len(m.journal.streaks) > 0
}

// noted reports whether the group that runs changed a record or its offer.
func (m *Machine) noted(j *job) bool {
	if m.journal == nil {
		return false
	}
	_, ok := m.journal.at[j]
	return ok
}

// Settled reports whether the grant's job has a result that the group that runs didn't touch.
func (m *Machine) Settled(site string, g wire.Grant) bool {
	j := m.ofSite(site, g)
	return j != nil && j.Result != nil && !m.noted(j)
}

// Steady reports whether the group that runs touched none of the first entries that may be offered to a site now. An Offer
// of that many is the same then whether the group will stand or not.
func (m *Machine) Steady(now time.Time, site string, kind store.OfferKind, most int) bool {
	s := m.sites[site]
	if s == nil || kind < store.OfferSeals || kind > store.OfferNotices {
		return false
	}
	sh := &s.shelves[kind-1]
	if d := sh.open.top(); d != nil && d.at <= now.UnixNano() {
		return false // some would be put back first
	}
	j, key := sh.free.after(0)
	for ; j != nil && most > 0; j, key = sh.free.after(key) {
		if m.noted(j) {
			return false
		}
		most--
	}
	return true
}

// EndGroup lets the group's changes stand.
func (m *Machine) EndGroup() {
	n := m.journal
	m.journal = nil
	if len(n.records) > 1024 { // one great sweep needn't hold its room for ever
		m.notes = nil
		return
	}
	clear(n.records)
	clear(n.streaks)
	clear(n.ended)
	n.records, n.turns, n.streaks, n.ended = n.records[:0], n.turns[:0], n.streaks[:0], n.ended[:0]
	clear(n.at)
	clear(n.known)
}

// touch notes a record before it changes.
func (m *Machine) touch(j *job) {
	if m.journal != nil {
		m.journal.note(j, true, true)
	}
}

// touchOffer notes a record before its offer changes for another reason than the record.
func (m *Machine) touchOffer(j *job) {
	if m.journal != nil {
		m.journal.note(j, true, false)
	}
}

// touchNew notes a record that is new.
func (m *Machine) touchNew(j *job) {
	if m.journal != nil {
		m.journal.note(j, false, true)
	}
}

func (n *journal) note(j *job, existed, changed bool) {
	if i, ok := n.at[j]; ok {
		n.records[i].changed = n.records[i].changed || changed
		return
	}
	n.at[j] = len(n.records)
	w := was{j: j, existed: existed, changed: changed, turns: turnsOf(j.q.route)}
	if existed {
		w.record = j.Record
		w.record.Shun = cloneShun(j.Shun)
		w.offer = j.offer.was()
	}
	n.records = append(n.records, w)
}

// touchTurns notes a route that is served without a grant.
func (m *Machine) touchTurns(r *route) {
	if m.journal != nil {
		m.journal.turns = append(m.journal.turns, turnsOf(r))
	}
}

func turnsOf(r *route) turns { return turns{r.Route, r.served, r.site.served} }

func cloneShun(from map[string]int64) map[string]int64 {
	if from == nil {
		return nil
	}
	to := make(map[string]int64, len(from))
	for k, v := range from {
		to[k] = v
	}
	return to
}

func (o *offer) was() wasOffer {
	w := wasOffer{key: o.key, attempt: o.attempt, open: o.onOffer(), counted: o.counted, at: o.due.at}
	if o.who != nil {
		w.who = o.who.id
	}
	return w
}

// touchStreak notes a streak before it changes, comes or goes.
func (m *Machine) touchStreak(runner string, q store.Queue) {
	if m.journal == nil {
		return
	}
	k := streakKey{runner, q}
	if _, ok := m.journal.known[k]; ok {
		return
	}
	w := wasStreak{streakKey: k}
	if s := m.streak(k); s != nil {
		w.existed, w.was = true, *s
	}
	m.journal.known[k] = len(m.journal.streaks)
	m.journal.streaks = append(m.journal.streaks, w)
}

// touchEnd notes a session that ends.
func (m *Machine) touchEnd(p *party, s *session) {
	if m.journal != nil {
		m.journal.ended = append(m.journal.ended, ended{p, s})
	}
}
