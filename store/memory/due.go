package memory

import (
	"time"

	"pushrelay/store"
)

// Sweep is Keeper's. Offers to a site's sessions end by themselves at the next Offer and aren't fired here.
func (m *Machine) Sweep() store.Swept {
	out := store.Swept{Fired: m.fire(store.MaxFired), Next: -1}
	m.swept = m.now
	if d := m.dues.top(); d != nil {
		out.Next = time.Duration(max(0, d.at-m.now))
	}
	return out
}

// maxFreed bounds the envelopes' bytes that go with what one Sweep or Claim fires: a medium that keeps them takes long to
// let them go, and everybody waits for it. The last one may go beyond.
const maxFreed = 64 << 20

// fire lets at most max due times act, earliest first.
func (m *Machine) fire(most int) (fired int) {
	m.grace()
	for had := m.bytes; fired < most && had-m.bytes < maxFreed; {
		d := m.dues.top()
		if d == nil || d.at > m.now {
			break
		}
		fired++
		if d.s != nil {
			m.endSession(d.s)
		} else {
			m.act(d.j)
		}
	}
	return fired
}

// grace gives every lease the time that no sweeper was there, at least one lease: holders couldn't be heard. Sites couldn't
// either, so payload windows get it, too, at least one window: it was no wait in vain.
// A claim that comes first does the same, or it would fire what the sweep was to spare.
func (m *Machine) grace() {
	gap := m.now - m.swept
	if gap < 0 {
		m.wentBack()
	}
	if gap <= int64(store.SweeperAway) {
		return
	}
	m.swept = m.now
	for _, r := range m.runners {
		for j := r.held.head; j != nil; j = j.links[heldChain].next {
			m.touch(j)
			j.Lapse += max(gap, j.LeaseFor)
			if j.State == store.AwaitingPayload && !j.Offered {
				j.Window += max(gap, int64(m.set.PayloadWindow))
			}
			m.dues.set(&j.due, j.next())
		}
	}
}

// clockStep is how much the clock may go back without anything being done about it.
const clockStep = int64(time.Second)

// wentBack follows a clock that was set back: nothing that was begun before lasts longer than what begins now, or a device
// that is gone would hold its jobs for as long as the clock was ahead. Deadlines are the clock's own and stay.
func (m *Machine) wentBack() {
	if m.swept-m.now < clockStep {
		return
	}
	m.swept = m.now
	for _, r := range m.runners {
		for j := r.held.head; j != nil; j = j.links[heldChain].next {
			window := int64(m.set.PayloadWindow)
			if j.Widened || j.Offered {
				window = max(window, int64(store.SealingWindow))
			}
			m.touch(j)
			j.Lapse, j.Window = min(j.Lapse, m.now+j.LeaseFor), min(j.Window, m.now+window)
			m.dues.set(&j.due, j.next())
		}
	}
	longest := m.now + int64(store.MaxOffer)
	for _, s := range m.sites {
		for _, a := range s.sessions {
			for kind := range a.open {
				for j := a.open[kind].jobs.head; j != nil; j = j.links[openChain].next {
					if j.offer.due.at > longest {
						m.touchOffer(j)
						s.shelves[kind].open.set(&j.offer.due, longest)
					}
				}
			}
		}
	}
}

// act does what is due for a job.
func (m *Machine) act(j *job) {
	switch {
	case j.finished():
		m.forget(j)
	case j.Deadline <= j.due.at:
		m.drop(j, store.WhyDeadline)
	case j.Offered:
		m.end(j, store.WhyUnaccepted)
	case j.State == store.AwaitingPayload:
		m.wait(j, store.WhyWindow)
	default:
		m.lapse(j, store.WhyLapsed)
	}
}
