package memory

import (
	"time"

	"pushrelay/store"
	"pushrelay/wire"
)

// The moves are the only code that changes a record's state. Each is one arrow of section 3's picture.

// create: a new job waits.
func (m *Machine) create(k store.Key, dialect wire.Dialect, stub wire.Stub, deadline int64) *job {
	m.seq++
	q := m.queueOf(store.Queue{
		Route: store.Route{Site: k.Site, Owner: stub.Owner}, Kind: stub.Kind, Private: stub.Private(), Dialect: dialect,
	})
	k.Site = q.Site
	j := &job{q: q, Record: Record{
		Key: k, Seq: m.seq, State: store.Queued, EnqueuedAt: m.now, Since: m.now, Deadline: deadline,
		Stub: Stub{Form: q.form(&stub), Streaming: stub.Streaming, DeadlineAt: stub.DeadlineAt, Raw: stub.Raw},
	}}
	j.due.j, j.due.seq = j, j.Seq
	j.offer.due.j, j.offer.due.seq = j, j.Seq
	m.admit(j)
	m.enter(j)
	m.tell(j, store.EventQueued, "")
	return j
}

// offerTo: queued to offered, and on to awaiting when the claim leaves no time to accept.
func (m *Machine) offerTo(j *job, c *store.Claim) {
	m.leave(j)
	j.Served = m.nextStamp()
	m.hold(j, Grant{
		Lease: m.ids.next(), Runner: c.Runner, Owner: c.Owner, Device: c.Device, Identity: m.identity(c), Number: c.Number, Offered: true,
		LeaseFor: int64(c.LeaseFor), Lapse: m.now + int64(c.LeaseFor), Window: m.now + int64(c.OfferFor),
	})
	j.State, j.Since = store.AwaitingPayload, m.now
	m.enter(j)
	m.tellGrant(j, store.EventOffered, "").Number = c.Number
	if c.OfferFor <= 0 {
		m.accept(j)
	}
}

// accept: offered to awaiting; the payload window begins. Accepted grants are left alone.
func (m *Machine) accept(j *job) {
	if !j.Offered {
		return
	}
	m.leave(j)
	j.Offered = false
	j.Window = m.now + int64(m.set.PayloadWindow)
	m.enter(j)
	m.tellGrant(j, store.EventAwaiting, "")
}

// seal: awaiting to ready. The lease is judged from here on.
func (m *Machine) seal(j *job, env *wire.Envelope) {
	m.leave(j)
	m.keep(j, &j.Payload, env)
	j.State, j.Since = store.Ready, m.now
	j.Sealed, j.Window, j.Waits = true, 0, 0
	m.enter(j)
	m.tellGrant(j, store.EventReady, "")
}

// take: ready to running on the first take.
func (m *Machine) take(j *job) {
	m.touch(j)
	j.Takes++
	if j.State == store.Running {
		return
	}
	m.leave(j)
	j.State, j.Since = store.Running, m.now
	m.enter(j)
	m.tellGrant(j, store.EventRunning, "")
}

// finish: any granted state to done. The payload isn't needed any more.
func (m *Machine) finish(j *job, env *wire.Envelope, disposition string) {
	m.leave(j)
	m.settle(j)
	m.keep(j, &j.Payload, nil)
	m.keep(j, &j.Result, env)
	j.Disposition = disposition
	j.State, j.Since = store.Done, m.now
	j.KeepUntil = m.now + int64(m.set.ResultRetention)
	m.enter(j)
	e := m.tellGrant(j, store.EventDone, "")
	e.Disposition, e.Age = disposition, time.Duration(max(0, m.now-j.EnqueuedAt))
}

// end: a grant is over without a result. The job goes back to the queue, or is dropped: cancelled, or too many waits
// or lapses, which the caller counted.
func (m *Machine) end(j *job, why store.Why) {
	m.leave(j)
	m.ended(j, why)
	m.unhold(j)
	j.State, j.Since = store.Queued, m.now
	m.enter(j)
	switch {
	case j.Cancelled:
		m.drop(j, store.WhyCancelled)
	case j.Waits >= store.MaxWaits:
		m.drop(j, store.WhyUnsealed)
	case j.Lapses >= store.MaxLapses:
		m.drop(j, store.WhyLapsed)
	default:
		m.tell(j, store.EventQueued, why)
	}
}

func (m *Machine) ended(j *job, why store.Why) {
	e := m.tellGrant(j, store.EventEnded, why)
	e.Number, e.Accepted = j.Number, !j.Offered
}

// lapse: a grant ends that counts as a lapse when its payload had been taken.
func (m *Machine) lapse(j *job, why store.Why) {
	m.touch(j)
	if j.State == store.Running {
		j.Lapses++
	}
	m.end(j, why)
}

// wait: a grant ends because its site didn't seal.
func (m *Machine) wait(j *job, why store.Why) {
	m.touch(j)
	j.Waits++
	m.end(j, why)
}

// drop: the job is gone, a notice awaits the site. A grant that stands ends for the same reason.
func (m *Machine) drop(j *job, why store.Why) {
	m.leave(j)
	if j.Lease != "" {
		m.ended(j, why)
		m.unhold(j)
	}
	m.retire(j)
	j.State, j.Since, j.Dropped = store.Done, m.now, why
	j.Lease = m.ids.next()
	m.leases[j.Lease] = j
	j.KeepUntil = m.between(j.Deadline, store.NoticeMin, m.set.ResultRetention)
	m.enter(j)
	m.tell(j, store.EventDropped, why)
}

// cancel: the flag is set and the holder told; a queued job is dropped.
func (m *Machine) cancel(j *job) {
	m.touch(j)
	if j.State == store.Queued {
		j.Cancelled = true
		m.drop(j, store.WhyCancelled)
		return
	}
	m.leave(j)
	j.Cancelled = true
	m.enter(j)
	m.tellGrant(j, store.EventCancel, "")
}

// collect: a result or a notice becomes a tombstone.
func (m *Machine) collect(j *job) {
	m.leave(j)
	if j.Dropped == "" {
		m.retire(j)
	}
	j.Collected, j.Identity = true, nil
	j.KeepUntil = m.between(j.Deadline, store.TombstoneMin, store.TombstoneMax)
	m.enter(j)
	m.tellGrant(j, store.EventCollected, "")
}

// extend moves the end of a lease; window and state stay.
func (m *Machine) extend(j *job, leaseFor time.Duration) {
	m.touch(j)
	j.LeaseFor = int64(leaseFor)
	j.Lapse = m.now + j.LeaseFor
	m.dues.set(&j.due, j.next())
}

// widen gives the site SealingWindow from now on.
func (m *Machine) widen(j *job) {
	m.touch(j)
	j.Widened = true
	j.Window = m.now + int64(store.SealingWindow)
	m.dues.set(&j.due, j.next())
}

// between answers t, but at least low and at most high from now.
func (m *Machine) between(t int64, low, high time.Duration) int64 {
	return min(max(t, m.now+int64(low)), m.now+int64(max(low, high)))
}
