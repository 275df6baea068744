package memory

import "pushrelay/store"

// journal notes which records changed since it was last emptied. A machine that keeps nothing has none.
type journal struct {
	touched map[*job]struct{}
}

// touch notes a record before it changes.
func (m *Machine) touch(j *job) {
	if m.journal != nil {
		m.journal.touched[j] = struct{}{}
	}
}

// Keep makes the machine note changes for a medium; without it Changed tells nothing.
func (m *Machine) Keep() { m.journal = &journal{touched: make(map[*job]struct{})} }

// Changed calls f for each record that changed since the last call, with nil for one that is gone, and forgets them.
func (m *Machine) Changed(f func(seq uint64, r *Record)) {
	for j := range m.journal.touched {
		if m.jobs[j.Key] == j {
			f(j.Seq, &j.Record)
		} else {
			f(j.Seq, nil)
		}
	}
	clear(m.journal.touched)
}

// Load puts a kept record into its places, as when a store opens. Records come in the order of their Seq.
func (m *Machine) Load(r Record) {
	m.seq = max(m.seq, r.Seq)
	stub := r.Stub.Wire(r.Key.Job)
	q := m.queueOf(store.Queue{
		Route: store.Route{Site: r.Key.Site, Owner: stub.Owner}, Kind: stub.Kind, Private: stub.Private(), Dialect: r.Stub.Dialect,
	})
	r.Key.Site, r.Stub.Form = q.Site, q.form(&stub)
	j := &job{Record: r, q: q}
	j.due.j, j.due.seq = j, j.Seq
	j.offer.due.j, j.offer.due.seq = j, j.Seq
	m.admit(j)
	if r.Dropped != "" || r.Collected {
		j.q.route.site.jobs--
		j.q.route.site.all.remove(j.Seq)
	}
	if r.Lease != "" {
		m.leases[r.Lease] = j
	}
	if r.Runner != "" {
		m.holders[holding{r.Runner, r.Key.Job}]++
		if r.State != store.Done {
			m.runner(r.Runner).held.push(j, heldChain)
		}
	}
	n := size(r.Payload) + size(r.Result)
	m.bytes += n
	j.q.route.site.bytes += n
	m.enter(j)
}

// Grace gives leases the time that the store was closed, at least one lease: holders couldn't be heard.
func (m *Machine) Grace(closed int64) {
	for _, r := range m.runners {
		for j := r.held.head; j != nil; j = j.links[heldChain].next {
			j.Lapse = max(j.Lapse+max(closed, j.LeaseFor), m.now+j.LeaseFor)
			m.dues.set(&j.due, j.next())
		}
	}
}

// Counters answers the highest number of a job and of a session so far; Counted lets them go on above these.
func (m *Machine) Counters() (seq, number uint64) { return m.seq, m.number }

// Counted lets jobs' and sessions' numbers go on above these.
func (m *Machine) Counted(seq, number uint64) {
	m.seq, m.number = max(m.seq, seq), max(m.number, number)
}
