package memory

// Load puts a kept record into its places, as when a store opens; Loaded must follow. It answers the record as the machine
// has it from now on, or nil for one whose key or lease another one has.
func (m *Machine) Load(r Record) *Record {
	if m.jobs[r.Key] != nil || r.Lease != "" && m.leases[r.Lease] != nil {
		return nil
	}
	j := &job{Record: r}
	j.due.j, j.due.seq = j, j.Seq
	j.offer.due.j, j.offer.due.seq = j, j.Seq
	m.place(j)
	t := j.q.route
	t.served, t.site.served = max(t.served, j.Served), max(t.site.served, j.Served)
	m.seq, m.stamp = max(m.seq, j.Seq), max(m.stamp, j.Served)
	return &j.Record
}

// Loaded ends the loading. Jobs' and sessions' numbers go on above those given. Every lease has at least one whole one from
// now on, as grace: holders couldn't be heard. Sites couldn't either, so payload windows have a whole one, too.
func (m *Machine) Loaded(seq, number uint64) {
	m.seq, m.number = max(m.seq, seq), max(m.number, number)
	for _, r := range m.runners {
		for j := r.held.head; j != nil; j = j.links[heldChain].next {
			j.Lapse = max(j.Lapse, m.now+j.LeaseFor)
			if j.Window != 0 && !j.Offered {
				j.Window = max(j.Window, m.now+int64(m.set.PayloadWindow))
			}
			m.dues.set(&j.due, j.next())
		}
	}
	m.swept = m.now
}

// Adopt takes over who is there, and who was seen, from another machine, which can go on as it is.
func (m *Machine) Adopt(old *Machine) {
	m.number = max(m.number, old.number)
	for who, p := range old.parties {
		own := &party{sessions: make(map[string]*session, len(p.sessions)), newest: p.newest}
		m.parties[who] = own
		for id, s := range p.sessions {
			c := &session{party: s.party, id: id, number: s.number}
			c.due.s, c.due.seq = c, s.due.seq
			own.sessions[id] = c
			m.online++
			m.dues.set(&c.due, s.due.at)
		}
	}
	for at := old.sightings.Front(); at != nil; at = at.Next() {
		m.seen[sighted(at).Runner] = m.sightings.PushBack(at.Value)
	}
}

// Seq and Number answer the highest number of a job and of a session so far.
func (m *Machine) Seq() uint64    { return m.seq }
func (m *Machine) Number() uint64 { return m.number }
