package memory

import (
	"bytes"
	"strings"
	"time"

	"pushrelay/store"
	"pushrelay/wire"
)

// Enqueue is SiteStore's.
func (m *Machine) Enqueue(site string, dialect wire.Dialect, stubs []wire.Stub) []store.Enqueued {
	out := make([]store.Enqueued, len(stubs))
	for i := range stubs {
		out[i] = m.enqueue(site, dialect, &stubs[i])
	}
	return out
}

func (m *Machine) enqueue(site string, dialect wire.Dialect, stub *wire.Stub) store.Enqueued {
	e := store.Enqueued{JobID: stub.ID}
	k := store.Key{Site: site, Job: stub.ID}
	if j := m.jobs[k]; j != nil {
		e.State, e.Known = j.State, true
		return e
	}
	if !validID(stub.ID) || !validID(stub.Owner) || !validID(site) {
		e.Err = store.ErrBadID
		return e
	}
	deadline := m.deadline(stub.DeadlineAt)
	if deadline <= m.now {
		e.Err = &store.Refusal{Code: store.CodeTooLate, ServerTime: moment(m.now)}
		return e
	}
	if s := m.sites[site]; s != nil && s.jobs >= m.set.JobsPerSite {
		e.Err = store.ErrOverQuota
		return e
	}
	own := *stub
	own.Raw = bytes.Clone(stub.Raw) // or the job would keep the whole frame that it came in
	e.State = m.create(k, dialect, own, deadline).State
	return e
}

// validID: 1 to 256 bytes without U+0000.
func validID(id string) bool {
	return len(id) >= 1 && len(id) <= wire.MaxIDBytes && strings.IndexByte(id, 0) < 0
}

// deadline answers a stub's deadline as it counts, at most MaxDeadline ahead.
func (m *Machine) deadline(ms int64) int64 {
	last := m.now + int64(m.set.MaxDeadline)
	if ms > last/int64(time.Millisecond) {
		return last
	}
	return max(ms, 0) * int64(time.Millisecond)
}

// ofSite answers the job of a grant of this site, finished and dropped ones included; nil when there is none.
func (m *Machine) ofSite(site string, g wire.Grant) *job {
	j := m.leases[g.LeaseID]
	if j == nil || j.Key.Job != g.JobID || j.Key.Site != site {
		return nil
	}
	return j
}

// awaitingOf answers the job of a standing grant that the site may seal; nil when there is none.
func (m *Machine) awaitingOf(site string, g wire.Grant) *job {
	j := m.ofSite(site, g)
	if j == nil || j.State != store.AwaitingPayload || j.Offered {
		return nil
	}
	return j
}

// Sealing is SiteStore's. The seal stays with the session that it was on offer to, uncounted, while the window runs.
func (m *Machine) Sealing(site string, grants []wire.Grant) []wire.Grant {
	var out []wire.Grant
	for _, g := range grants {
		j := m.awaitingOf(site, g)
		if j == nil {
			continue
		}
		if !j.Widened {
			m.widen(j)
			if j.sealable() {
				j.q.route.site.reserve(j)
			}
		}
		out = append(out, g)
	}
	return out
}

// Seal is SiteStore's.
func (m *Machine) Seal(site string, g wire.Grant, env *wire.Envelope) (store.State, error) {
	j := m.jobs[store.Key{Site: site, Job: g.JobID}]
	if j == nil {
		return 0, store.ErrNotFound
	}
	stands := j.Lease != "" && j.Dropped == "" && j.Device == env.RecipientKeyID &&
		(g.LeaseID == j.Lease || g.LeaseID == "")
	switch {
	case stands && j.Offered:
		return 0, store.ErrNotFound
	case stands && j.Sealed:
		return j.State, nil
	case stands && j.State == store.AwaitingPayload:
		m.seal(j, env)
		return j.State, nil
	}
	return 0, &store.Refusal{Code: store.CodeTooLate, State: j.State}
}

// Decline is SiteStore's.
func (m *Machine) Decline(site string, grants []wire.Grant) []wire.Grant {
	var out []wire.Grant
	for _, g := range grants {
		if j := m.awaitingOf(site, g); j != nil {
			m.wait(j, store.WhyDeclined)
			out = append(out, g)
		}
	}
	return out
}

// Cancel is SiteStore's.
func (m *Machine) Cancel(site string, jobs []string) []bool {
	out := make([]bool, len(jobs))
	for i, id := range jobs {
		j := m.jobs[store.Key{Site: site, Job: id}]
		if j == nil {
			continue
		}
		out[i] = true
		if !j.finished() && !j.Cancelled {
			m.cancel(j)
		}
	}
	return out
}

// Collect is SiteStore's.
func (m *Machine) Collect(site string, grants []wire.Grant) {
	for _, g := range grants {
		if j := m.ofSite(site, g); j != nil && j.finished() && !j.Collected {
			m.collect(j)
		}
	}
}
