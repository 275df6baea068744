package storetest

import (
	"time"

	"pushrelay/store"
	"pushrelay/wire"
)

// enqueue answers what the store must.
func (m *model) enqueue(site string, d wire.Dialect, stub wire.Stub) store.Enqueued {
	k := store.Key{Site: site, Job: stub.ID}
	e := store.Enqueued{JobID: stub.ID}
	if j := m.jobs[k]; j != nil {
		e.State, e.Known = j.State, true
		return e
	}
	deadline := time.UnixMilli(stub.DeadlineAt).UTC()
	switch {
	case !deadline.After(m.now):
		e.Err = store.ErrTooLate
		return e
	case m.siteJobs(site) >= m.set.JobsPerSite:
		e.Err = store.ErrOverQuota
		return e
	}
	if far := m.now.Add(m.set.MaxDeadline); deadline.After(far) {
		deadline = far
	}
	m.seq++
	j := &mjob{seq: m.seq, shun: map[string]time.Time{}}
	j.Key, j.Stub, j.Dialect, j.State, j.EnqueuedAt, j.Since, j.Deadline = k, stub, d, store.Queued, m.now, m.now, deadline
	j.queue = store.Queue{
		Route: store.Route{Site: site, Owner: stub.Owner}, Kind: stub.Kind, Private: stub.Private(), Dialect: d,
	}
	m.jobs[k] = j
	m.tell(j, store.EventQueued, "")
	e.State = store.Queued
	return e
}

func (m *model) acceptAll(runner string, gs []wire.Grant) (lost []wire.Grant) {
	for _, g := range gs {
		if j, err := m.look(runner, g); err != nil {
			lost = append(lost, g)
		} else if j.held() {
			m.accept(j)
		}
	}
	return lost
}

func (m *model) renew(runner string, gs []wire.Grant, d time.Duration) (lost []wire.Grant) {
	lost = m.acceptAll(runner, gs)
	for _, g := range gs {
		if j := m.standing(runner, g); j != nil {
			j.LeaseEnds = m.now.Add(d)
		}
	}
	return lost
}

func (m *model) take(runner string, g wire.Grant) (wire.Envelope, *store.Refusal) {
	j, err := m.look(runner, g)
	switch {
	case err != nil:
		return wire.Envelope{}, err
	case j.State == store.Done:
		return wire.Envelope{}, store.ErrTerminal
	}
	m.accept(j)
	switch {
	case j.Cancelled:
		return wire.Envelope{}, store.ErrTooLate
	case j.State == store.AwaitingPayload:
		return wire.Envelope{}, store.ErrNotReady
	case j.Takes == store.MaxTakes:
		m.lapse(j, store.WhyLapsed)
		return wire.Envelope{}, store.ErrStaleLease
	}
	j.Takes++
	if j.State == store.Ready {
		j.State, j.Since = store.Running, m.now
		m.tellGrant(j, store.EventRunning, "")
	}
	return j.payload, nil
}

func (m *model) complete(runner string, g wire.Grant, env wire.Envelope, disposition string) (store.Completion, *store.Refusal) {
	j, err := m.look(runner, g)
	switch {
	case err != nil:
		return store.Completion{}, err
	case j.State == store.Done:
		return store.Completion{Duplicate: true, State: store.Done}, nil
	}
	m.accept(j)
	delete(m.streaks, mqueue{runner, j.queue})
	j.State, j.Since, j.payload, j.result, j.Disposition = store.Done, m.now, wire.Envelope{}, env, disposition
	j.keep = m.now.Add(m.set.ResultRetention)
	j.offer = moffer{}
	m.tellGrant(j, store.EventDone, "").Disposition = disposition
	return store.Completion{Accepted: true, State: store.Done}, nil
}

func (m *model) release(runner string, gs []wire.Grant, reason string, notFor time.Duration) (out []wire.Grant) {
	why := store.WhyReleased
	if reason == wire.ReleaseRefused {
		why = store.WhyRefused
	} else if reason == wire.ReleaseRevoked {
		why = store.WhyWithdrawn
	}
	for _, g := range gs {
		j := m.standing(runner, g)
		if j == nil {
			continue
		}
		if notFor > 0 && m.now.Add(notFor).After(j.shun[runner]) {
			j.shun[runner] = m.now.Add(notFor)
		}
		if reason == wire.ReleaseRefused {
			j.shun[runner] = never
			m.refused(j, runner)
		}
		m.end(j, why)
		out = append(out, g)
	}
	return out
}

func (m *model) abandon(runner string, number uint64) (out []wire.Grant) {
	for _, j := range m.heldBy(runner) {
		if j.Offered && j.number == number {
			out = append(out, wire.Grant{JobID: j.Key.Job, LeaseID: j.Lease})
			m.end(j, store.WhyCut)
		}
	}
	return out
}

func (m *model) resume(runner string, gs []wire.Grant, d time.Duration) (out store.Resumed) {
	named := map[*mjob]bool{}
	for _, g := range gs {
		j, err := m.look(runner, g)
		switch {
		case err != nil:
			out.Lost = append(out.Lost, g)
		case j.held():
			named[j] = true
			m.accept(j)
			j.LeaseEnds = m.now.Add(d)
			out.Kept = append(out.Kept, g)
		}
	}
	for _, j := range m.heldBy(runner) {
		if !named[j] {
			out.Returned = append(out.Returned, wire.Grant{JobID: j.Key.Job, LeaseID: j.Lease})
			m.lapse(j, store.WhyAbandoned)
		}
	}
	return out
}

// seal answers the state or the refusal. Vague says that the contract leaves the answer open, though nothing changes: a
// finished grant's own late seal, one for another grant while one is offered, a second one to another device.
func (m *model) seal(site string, g wire.Grant, env wire.Envelope) (st store.State, refused *store.Refusal, vague bool) {
	j := m.jobs[store.Key{Site: site, Job: g.JobID}]
	if j == nil {
		return 0, store.ErrNotFound, false
	}
	late := &store.Refusal{Code: store.CodeTooLate, State: j.State}
	named := j.dropped == "" && j.Lease != "" && (g.LeaseID == j.Lease || g.LeaseID == "")
	toDevice := env.RecipientKeyID == j.Device
	switch {
	case j.Offered:
		return 0, store.ErrNotFound, !(named && toDevice)
	case !named || g.LeaseID == "" && !toDevice:
		return 0, late, false
	case j.State == store.Done:
		return 0, late, j.sealed || j.Collected || g.LeaseID == ""
	case j.sealed:
		return j.State, nil, !toDevice
	case !toDevice:
		return 0, late, false
	}
	j.State, j.Since, j.WindowEnds, j.Waits, j.sealed = store.Ready, m.now, time.Time{}, 0, true
	j.payload, j.offer = env, moffer{}
	m.tellGrant(j, store.EventReady, "")
	return store.Ready, nil, false
}

// awaited answers the site's job whose accepted, unsealed grant this is, or nil.
func (m *model) awaited(site string, g wire.Grant) *mjob {
	j := m.jobs[store.Key{Site: site, Job: g.JobID}]
	if j == nil || j.State != store.AwaitingPayload || j.Offered || j.Lease != g.LeaseID {
		return nil
	}
	return j
}

func (m *model) sealing(site string, gs []wire.Grant) (out []wire.Grant) {
	for _, g := range gs {
		j := m.awaited(site, g)
		if j == nil {
			continue
		}
		out = append(out, g)
		if j.widened {
			continue
		}
		j.widened = true
		j.WindowEnds = m.now.Add(store.SealingWindow)
		if !m.open(j) {
			j.uncertainly = j.offer.attempts > 0
			j.offer.session = ""
		}
		j.offer.open = false
	}
	return out
}

func (m *model) decline(site string, gs []wire.Grant) (out []wire.Grant) {
	for _, g := range gs {
		if j := m.awaited(site, g); j != nil {
			out = append(out, g)
			j.Waits++
			m.end(j, store.WhyDeclined)
		}
	}
	return out
}

func (m *model) cancel(site string, ids []string) (out []bool) {
	for _, id := range ids {
		j := m.jobs[store.Key{Site: site, Job: id}]
		out = append(out, j != nil)
		switch {
		case j == nil || j.State == store.Done || j.Cancelled:
		case j.State == store.Queued:
			m.drop(j, store.WhyCancelled)
		default:
			j.Cancelled = true
			j.offer.open = false
			m.tellGrant(j, store.EventCancel, "")
		}
	}
	return out
}

func (m *model) collect(site string, gs []wire.Grant) {
	for _, g := range gs {
		j := m.jobs[store.Key{Site: site, Job: g.JobID}]
		if j == nil || j.State != store.Done || j.Collected {
			continue
		}
		id := j.Lease
		if j.dropped != "" {
			id = j.offer.id
		}
		if id == "" || id != g.LeaseID {
			continue
		}
		j.Collected, j.result = true, wire.Envelope{}
		j.offer.open = false
		j.keep = m.between(j.Deadline, store.TombstoneMin, store.TombstoneMax)
		m.tell(j, store.EventCollected, "").Lease = id
	}
}
