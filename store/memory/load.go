package memory

import "time"

// Kept is what a medium keeps of a machine beside its records and streaks.
type Kept struct {
	Seq    uint64 // highest of a job so far
	Number uint64 // highest of a session so far, or one that no session had yet
}

// Load puts a kept record into its places, as when a store opens; Loaded must follow. It reports false for a record whose
// key or lease another one has.
func (m *Machine) Load(r Record) bool {
	if m.jobs[r.Key] != nil || r.Lease != "" && m.leases[r.Lease] != nil {
		return false
	}
	j := &job{Record: r}
	j.due.j, j.due.seq = j, j.Seq
	j.offer.due.j, j.offer.due.seq = j, j.Seq
	m.place(j)
	t := j.q.route
	t.served, t.site.served = max(t.served, j.Served), max(t.site.served, j.Served)
	m.seq, m.stamp = max(m.seq, j.Seq), max(m.stamp, j.Served)
	return true
}

// Loaded ends the loading. What was granted gets the time that the store was closed, at least one lease, as grace: holders
// couldn't be heard. Sites couldn't either, so payload windows get as much of theirs.
func (m *Machine) Loaded(k Kept, closed time.Duration) {
	m.seq, m.number = max(m.seq, k.Seq), max(m.number, k.Number)
	for _, r := range m.runners {
		for j := r.held.head; j != nil; j = j.links[heldChain].next {
			j.Lapse = longer(j.Lapse, m.now, closed, j.LeaseFor)
			if j.Window != 0 && !j.Offered {
				j.Window = longer(j.Window, m.now, closed, int64(m.set.PayloadWindow))
			}
			m.dues.set(&j.due, j.next())
		}
	}
	m.swept = m.now
}

// longer answers the end of a span that stood still while the store was closed, and that is whole again at least once.
func longer(end, now int64, closed time.Duration, whole int64) int64 {
	return max(end+max(int64(closed), whole), now+whole)
}

// Adopt takes over who is there from a machine that isn't used any more.
func (m *Machine) Adopt(old *Machine) {
	m.parties, m.online, m.number = old.parties, old.online, max(m.number, old.number)
	for _, p := range m.parties {
		for _, s := range p.sessions {
			at := s.due.at
			s.due.pos = 0
			m.dues.set(&s.due, at)
		}
	}
	m.seen = old.seen
	m.sightings = old.sightings
}

// Seq and Number answer the highest number of a job and of a session so far.
func (m *Machine) Seq() uint64    { return m.seq }
func (m *Machine) Number() uint64 { return m.number }
