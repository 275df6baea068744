package memory

import (
	"pushrelay/store"
	"pushrelay/wire"
)

// admit takes a new record in: its key, its owner's and site's counts, the site's list.
func (m *Machine) admit(j *job) {
	r := j.q.route
	j.q.records++
	r.records++
	r.site.records++
	r.site.jobs++
	r.site.all.insert(j.Seq, j)
	m.jobs[j.Key] = j
	m.touchNew(j)
}

// retire takes a record that is only a notice or a tombstone from now on off the site's list and count.
func (m *Machine) retire(j *job) {
	j.q.route.site.unlist(j)
	j.Shun = nil
	j.Stub.Raw = nil
	m.keep(j, &j.Payload, nil)
	m.keep(j, &j.Result, nil)
}

func (s *site) unlist(j *job) {
	s.jobs--
	s.all.remove(j.Seq)
}

// leave takes a record off the places that its state gave it, before it changes. The due time stays until enter.
func (m *Machine) leave(j *job) {
	m.touch(j)
	r := j.q.route
	switch {
	case j.Collected:
		return
	case j.Dropped != "":
		m.notices--
		r.site.notices--
		r.site.unshelve(m, j)
		return
	}
	m.byState[j.State]--
	r.site.byState[j.State]--
	switch j.State {
	case store.Queued:
		r.waiting--
		j.q.jobs.remove(j.Seq)
		if j.q.jobs.n == 0 {
			delete(r.site.waiting, j.q)
		}
	case store.AwaitingPayload:
		if !j.Cancelled {
			r.unsealed--
		}
		if j.sealable() {
			r.site.awaiting.remove(j.Seq)
			r.site.unshelve(m, j)
		}
	case store.Done:
		r.site.finished.remove(j.Seq)
		r.site.unshelve(m, j)
	}
}

// enter puts a record where its state says, after it changed.
func (m *Machine) enter(j *job) {
	r := j.q.route
	m.dues.set(&j.due, j.next())
	switch {
	case j.Collected:
		return
	case j.Dropped != "":
		m.notices++
		r.site.notices++
		r.site.shelve(m, j, store.OfferNotices)
		return
	}
	m.byState[j.State]++
	r.site.byState[j.State]++
	switch j.State {
	case store.Queued:
		r.waiting++
		if j.q.jobs.n == 0 {
			r.site.waiting[j.q] = struct{}{}
		}
		j.q.jobs.insert(j.Seq, j)
	case store.AwaitingPayload:
		if !j.Cancelled {
			r.unsealed++
		}
		if j.sealable() {
			r.site.awaiting.insert(j.Seq, j)
			r.site.shelve(m, j, store.OfferSeals)
		}
	case store.Done:
		r.site.finished.insert(j.Seq, j)
		r.site.shelve(m, j, store.OfferResults)
	}
}

// sealable reports whether the site is asked to seal: accepted, and not cancelled.
func (j *job) sealable() bool { return j.State == store.AwaitingPayload && !j.Offered && !j.Cancelled }

// hold gives a queued job a grant. The record must have left its place.
func (m *Machine) hold(j *job, g Grant) {
	j.Grant = g
	m.leases[g.Lease] = j
	m.holders[holding{g.Runner, j.Key.Job}]++
	m.runner(g.Runner).held.push(j, heldChain)
}

// settle takes a job that is done off what its runner holds; the grant is remembered.
func (m *Machine) settle(j *job) {
	m.runner(j.Runner).held.remove(j, heldChain)
	m.tidyRunner(j.Runner)
}

// unhold forgets a standing grant, its payload included.
func (m *Machine) unhold(j *job) {
	m.settle(j)
	m.forgetGrant(j)
}

// forgetGrant takes the grant of a record, or the id of its notice, out of the look-ups.
func (m *Machine) forgetGrant(j *job) {
	delete(m.leases, j.Lease)
	if h := (holding{j.Runner, j.Key.Job}); j.Runner != "" {
		if m.holders[h]--; m.holders[h] == 0 {
			delete(m.holders, h)
		}
	}
	m.keep(j, &j.Payload, nil)
	j.Grant = Grant{}
}

// forget removes a record whole.
func (m *Machine) forget(j *job) {
	m.leave(j)
	if j.live() {
		m.retire(j)
	}
	if j.Runner != "" && !j.finished() {
		m.settle(j)
	}
	m.forgetGrant(j)
	m.dues.remove(&j.due)
	delete(m.jobs, j.Key)
	q := j.q
	r, s := q.route, q.route.site
	q.records--
	r.records--
	s.records--
	if q.records == 0 {
		delete(r.queues, lane{q.Kind, q.Private, string(q.Dialect)})
	}
	if r.records == 0 {
		delete(s.routes, r.Owner)
	}
	m.tidySite(s)
}

// keep replaces an envelope of the job and counts the bytes.
func (m *Machine) keep(j *job, at **Sealed, e *wire.Envelope) {
	d := -(*at).size()
	*at = nil
	if e != nil {
		*at = &Sealed{Envelope: *e, Seq: j.Seq, Bytes: int64(len(e.Raw))}
		d += (*at).Bytes
	}
	m.bytes += d
	j.q.route.site.bytes += d
}
