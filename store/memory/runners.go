package memory

import (
	"time"

	"pushrelay/store"
	"pushrelay/wire"
)

// look answers the job of a grant for its runner, alike in all calls: see store.Refusal.
func (m *Machine) look(runner string, g wire.Grant) (*job, error) {
	if j := m.leases[g.LeaseID]; j != nil && j.Key.Job == g.JobID && j.Dropped == "" {
		if j.Runner != runner {
			return nil, store.ErrNotHolder
		}
		return j, nil
	}
	if m.holders[holding{runner, g.JobID}] > 0 {
		return nil, store.ErrStaleLease
	}
	return nil, store.ErrNotFound
}

// standing answers the job of a grant that the runner holds and hasn't finished; nil when there is none.
func (m *Machine) standing(runner string, g wire.Grant) *job {
	j, err := m.look(runner, g)
	if err != nil || j.finished() {
		return nil
	}
	return j
}

// Accept is RunnerStore's. A done grant of the runner isn't lost.
func (m *Machine) Accept(runner string, grants []wire.Grant) []wire.Grant {
	var lost []wire.Grant
	for _, g := range grants {
		j, err := m.look(runner, g)
		if err != nil {
			lost = append(lost, g)
			continue
		}
		m.accept(j)
	}
	return lost
}

// TakePayload is RunnerStore's.
func (m *Machine) TakePayload(runner string, g wire.Grant) (*Sealed, error) {
	j, err := m.look(runner, g)
	if err != nil {
		return nil, err
	}
	if j.finished() {
		return nil, store.ErrTerminal
	}
	m.accept(j)
	switch {
	case j.Cancelled:
		return nil, store.ErrTooLate
	case j.Payload == nil:
		return nil, store.ErrNotReady
	case j.Takes >= store.MaxTakes:
		m.lapse(j, store.WhyLapsed)
		return nil, store.ErrStaleLease
	}
	m.take(j)
	return j.Payload, nil
}

// Complete is RunnerStore's.
func (m *Machine) Complete(runner string, g wire.Grant, env *wire.Envelope, disposition string) (store.Completion, error) {
	j, err := m.look(runner, g)
	if err != nil {
		return store.Completion{}, err
	}
	if j.finished() {
		return store.Completion{Duplicate: true, State: store.Done}, nil
	}
	m.forgive(runner, j.q.Queue)
	m.accept(j)
	m.finish(j, env, disposition)
	return store.Completion{Accepted: true, State: store.Done}, nil
}

// Release is RunnerStore's.
func (m *Machine) Release(runner string, grants []wire.Grant, reason string, notFor time.Duration) []wire.Grant {
	why := store.WhyReleased
	switch reason {
	case wire.ReleaseRefused:
		why = store.WhyRefused
	case wire.ReleaseRevoked:
		why = store.WhyWithdrawn
	}
	var out []wire.Grant
	for _, g := range grants {
		j := m.standing(runner, g)
		if j == nil {
			continue
		}
		m.touch(j)
		switch {
		case why == store.WhyRefused:
			j.shun(runner, forever, m.now)
			m.refuse(runner, j.q.Queue)
		case notFor > 0:
			j.shun(runner, m.now+int64(min(notFor, store.MaxNotFor)), m.now)
		}
		m.end(j, why)
		out = append(out, g)
	}
	return out
}

// Abandon is RunnerStore's.
func (m *Machine) Abandon(runner string, number uint64) []wire.Grant {
	var out []wire.Grant
	m.eachHeld(runner, func(j *job) {
		if j.Offered && j.Number == number {
			out = append(out, j.grant())
			m.end(j, store.WhyCut)
		}
	})
	return out
}

// eachHeld calls f for the runner's unfinished grants, oldest first; f may end the one that it is given.
func (m *Machine) eachHeld(runner string, f func(*job)) {
	r := m.runners[runner]
	if r == nil {
		return
	}
	for j := r.held.head; j != nil; {
		next := j.links[heldChain].next
		f(j)
		j = next
	}
}

// Resume is RunnerStore's.
func (m *Machine) Resume(runner string, number uint64, active []wire.Grant, leaseFor time.Duration) (store.Resumed, error) {
	var out store.Resumed
	if !m.newest(runner, number) {
		return out, store.ErrSuperseded
	}
	named := make(map[string]struct{}, len(active))
	for _, g := range active {
		j, err := m.look(runner, g)
		switch {
		case err != nil:
			out.Lost = append(out.Lost, g)
		case !j.finished():
			named[g.LeaseID] = struct{}{}
			m.accept(j)
			m.extend(j, leaseFor)
			out.Kept = append(out.Kept, g)
		}
	}
	m.eachHeld(runner, func(j *job) {
		if _, ok := named[j.Lease]; !ok {
			out.Returned = append(out.Returned, j.grant())
			m.lapse(j, store.WhyAbandoned)
		}
	})
	return out, nil
}

// Renew is RunnerStore's.
func (m *Machine) Renew(runner string, grants []wire.Grant, leaseFor time.Duration) []wire.Grant {
	var lost []wire.Grant
	for _, g := range grants {
		j, err := m.look(runner, g)
		switch {
		case err != nil:
			lost = append(lost, g)
		case !j.finished():
			m.accept(j)
			m.extend(j, leaseFor)
		}
	}
	return lost
}

// CancelRequests is RunnerStore's.
func (m *Machine) CancelRequests(runner string) []wire.Grant {
	var out []wire.Grant
	m.eachHeld(runner, func(j *job) {
		if j.Cancelled {
			out = append(out, j.grant())
		}
	})
	return out
}

// Held is RunnerStore's.
func (m *Machine) Held(runner string) []store.Job {
	var out []store.Job
	m.eachHeld(runner, func(j *job) { out = append(out, j.view()) })
	return out
}
