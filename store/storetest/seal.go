package storetest

import (
	"errors"
	"time"

	"pushrelay/store"
	"pushrelay/wire"
)

var sealClauses = []clause{
	{"makes a standing grant ready", store.Settings{}, func(r *rig) {
		g := r.awaiting("j")
		r.seal(siteA, g, r1)
		j := r.job(siteA, "j")
		r.Equal(store.Ready, j.State)
		r.True(j.WindowEnds.IsZero())
		r.EqualValues(len("payload of j"), j.Payload)
		r.EqualValues(j.Payload, r.siteBytes())
	}},
	{"forgets the waits in vain", store.Settings{}, func(r *rig) {
		r.enqueue(siteA, "j")
		for range store.MaxWaits - 1 {
			_, err := r.st.Decline(r.ctx, siteA, one(r.grant(r1)))
			r.NoError(err)
		}
		g := r.grant(r1)
		r.Equal(store.MaxWaits-1, r.job(siteA, "j").Waits)
		r.seal(siteA, g, r1)
		r.Zero(r.job(siteA, "j").Waits)
		r.release(r1, wire.ReleaseShutdown, 0, g)
		for range store.MaxWaits - 1 {
			_, err := r.st.Decline(r.ctx, siteA, one(r.grant(r1)))
			r.NoError(err)
		}
		r.queuedAgain("j")
	}},
	{"a second seal of the grant answers the state, whatever its ciphertext", store.Settings{}, func(r *rig) {
		g := r.ready("j")
		again := func(want store.State, env wire.Envelope) {
			before := r.job(siteA, "j")
			st, err := r.st.Seal(r.ctx, siteA, g, env)
			r.NoError(err)
			r.Equal(want, st)
			r.Equal(before, r.job(siteA, "j"))
		}
		again(store.Ready, payloadFor(r1, "another ciphertext"))
		again(store.Ready, payloadFor(r1, "payload of j"))
		r.Equal("payload of j", string(r.take(r1, g).Raw))
		again(store.Running, payloadFor(r1, "another ciphertext"))
		r.Equal("payload of j", string(r.take(r1, g).Raw))
		r.complete(r1, g)
		again(store.Done, payloadFor(r1, "another ciphertext"))
	}},
	{"only for the grant that stands", store.Settings{}, func(r *rig) {
		old := r.awaiting("j")
		r.release(r1, wire.ReleaseShutdown, 0, old)
		r.tooLate(old, payloadFor(r1, "x"), store.Queued)
		g := r.grant(r1)
		r.tooLate(old, payloadFor(r1, "x"), store.AwaitingPayload)
		r.tooLate(bogus("j"), payloadFor(r1, "x"), store.AwaitingPayload)
		r.seal(siteA, g, r1)
		r.tooLate(old, payloadFor(r1, "x"), store.Ready)
	}},
	{"sealed to the device that claimed", store.Settings{}, func(r *rig) {
		g := r.awaiting("j")
		r.tooLate(g, payloadFor(r2, "x"), store.AwaitingPayload)
		r.tooLate(g, wire.Envelope{Raw: []byte("x")}, store.AwaitingPayload)
		r.seal(siteA, g, r1)
	}},
	{"a polled seal has no lease id and is matched by its recipient", store.Settings{}, func(r *rig) {
		r.awaiting("j")
		g := wire.Grant{JobID: "j"}
		r.tooLate(g, payloadFor(r2, "x"), store.AwaitingPayload)
		st, err := r.st.Seal(r.ctx, siteA, g, payloadFor(r1, "one"))
		r.NoError(err)
		r.Equal(store.Ready, st)
		st, err = r.st.Seal(r.ctx, siteA, g, payloadFor(r1, "two"))
		r.NoError(err)
		r.Equal(store.Ready, st)
		r.EqualValues(3, r.job(siteA, "j").Payload)
		r.tooLate(g, payloadFor(r2, "x"), store.Ready)
	}},
	{"a polled seal of a queued job is too late", store.Settings{}, func(r *rig) {
		r.enqueue(siteA, "j")
		r.tooLate(wire.Grant{JobID: "j"}, payloadFor(r1, "x"), store.Queued)
	}},
	{"an offered grant is unknown to its site", store.Settings{}, func(r *rig) {
		g := r.offeredTo("j")
		for _, g := range []wire.Grant{g, {JobID: "j"}} {
			_, err := r.st.Seal(r.ctx, siteA, g, payloadFor(r1, "x"))
			r.errIs(err, store.ErrNotFound)
		}
		r.True(r.job(siteA, "j").Offered)
	}},
	{"a done or dropped job is too late", store.Settings{}, func(r *rig) {
		g := r.awaiting("j")
		r.complete(r1, g)
		r.tooLate(g, payloadFor(r1, "x"), store.Done)
		r.tooLate(bogus("j"), payloadFor(r1, "x"), store.Done)
		r.enqueue(siteA, "k")
		r.cancel(siteA, "k")
		r.tooLate(bogus("k"), payloadFor(r1, "x"), store.Done)
	}},
	{"a cancelled grant is sealed and its payload withheld", store.Settings{}, func(r *rig) {
		g := r.awaiting("j")
		r.cancel(siteA, "j")
		r.seal(siteA, g, r1)
		_, err := r.st.TakePayload(r.ctx, r1, g)
		r.errIs(err, store.ErrTooLate)
	}},
	{"late but unfired it still counts", store.Settings{}, func(r *rig) {
		g := r.awaiting("j")
		r.pass(8 * time.Second)
		r.advance(2 * time.Second)
		r.seal(siteA, g, r1)
		r.sweep()
		r.Equal(store.Ready, r.job(siteA, "j").State)
	}},
	{"sealing widens the window to a minute, once", store.Settings{}, func(r *rig) {
		g := r.awaiting("j")
		before := r.now()
		r.Equal(one(g), r.sealing(siteA, g))
		at := r.job(siteA, "j").WindowEnds
		r.WithinRange(at, before.Add(store.SealingWindow), r.now().Add(store.SealingWindow))
		if !r.f.Gaps.NoClock {
			r.pass(20 * time.Second)
		}
		r.Equal(one(g), r.sealing(siteA, g))
		r.Equal(at, r.job(siteA, "j").WindowEnds)
	}},
	{"sealing passes over what isn't the site's standing, unsealed grant", store.Settings{}, func(r *rig) {
		g := r.awaiting("j")
		gone := r.awaiting("gone")
		r.release(r1, wire.ReleaseRefused, 0, gone)
		sealed := r.ready("sealed")
		r.enqueue(siteA, "offered")
		unaccepted := r.grant(r2, offered, along(routes(ann, siteA)...), upTo(1))
		for unaccepted.JobID != "offered" {
			unaccepted = r.grant(r2, offered)
		}
		r.Equal(one(g), r.sealing(siteA, bogus("j"), gone, sealed, unaccepted, g, bogus("none")))
		r.Empty(r.sealing(siteB, g))
		r.True(r.job(siteA, "offered").WindowEnds.IsZero())
	}},
	{"a widened window also ends", store.Settings{}, func(r *rig) {
		g := r.awaiting("j")
		r.sealing(siteA, g)
		r.pass(store.SealingWindow - time.Millisecond)
		r.Equal(store.AwaitingPayload, r.job(siteA, "j").State)
		r.pass(time.Millisecond)
		r.Equal(1, r.queuedAgain("j").Waits)
	}},
	{"the next grant may be widened again", store.Settings{}, func(r *rig) {
		g := r.awaiting("j")
		r.sealing(siteA, g)
		r.release(r1, wire.ReleaseShutdown, 0, g)
		g = r.grant(r1)
		r.WithinDuration(r.now().Add(10*time.Second), r.job(siteA, "j").WindowEnds, 2*time.Second)
		r.Equal(one(g), r.sealing(siteA, g))
		r.WithinDuration(r.now().Add(store.SealingWindow), r.job(siteA, "j").WindowEnds, 2*time.Second)
	}},
	{"a decline gives back and counts as a wait in vain", store.Settings{}, func(r *rig) {
		g := r.awaiting("j")
		r.Equal(one(g), r.decline(siteA, g))
		r.Equal(1, r.queuedAgain("j").Waits)
		r.Empty(r.decline(siteA, g))
		r.Equal(1, r.queuedAgain("j").Waits)
	}},
	{"a decline passes over all but the site's accepted, unsealed grants", store.Settings{}, func(r *rig) {
		sealed, un := r.ready("sealed"), r.offeredTo("offered")
		r.Empty(r.decline(siteA, sealed, un, bogus("sealed"), bogus("none")))
		g := r.awaiting("j")
		r.Empty(r.decline(siteB, g))
		r.Equal(store.AwaitingPayload, r.job(siteA, "j").State)
	}},
	{"three waits in vain drop the job as unsealed", store.Settings{}, func(r *rig) {
		r.enqueue(siteA, "j")
		for i := range store.MaxWaits {
			r.Equal(i, r.queuedAgain("j").Waits)
			r.decline(siteA, r.grant(r1))
		}
		r.Empty(r.claim(r1))
		r.noticed("j", store.WhyUnsealed)
	}},
	{"windows and declines count alike", store.Settings{}, func(r *rig) {
		g := r.awaiting("j")
		r.pass(10*time.Second - time.Millisecond)
		r.Equal(store.AwaitingPayload, r.job(siteA, "j").State)
		r.pass(time.Millisecond)
		r.Equal(1, r.queuedAgain("j").Waits)
		r.tooLate(g, payloadFor(r1, "x"), store.Queued)
		r.decline(siteA, r.grant(r1))
		r.grant(r1)
		r.pass(10 * time.Second)
		r.noticed("j", store.WhyUnsealed)
	}},
}

// tooLate expects that a seal is refused with the job's state and changes nothing.
func (r *rig) tooLate(g wire.Grant, env wire.Envelope, state store.State) {
	r.t.Helper()
	before := r.job(siteA, g.JobID)
	_, err := r.st.Seal(r.ctx, siteA, g, env)
	r.errIs(err, store.ErrTooLate)
	var ref *store.Refusal
	r.True(errors.As(err, &ref))
	r.Equal(state, ref.State)
	r.Equal(before, r.job(siteA, g.JobID))
}

func (r *rig) sealing(site string, gs ...wire.Grant) []wire.Grant {
	r.t.Helper()
	out, err := r.st.Sealing(r.ctx, site, gs)
	r.NoError(err)
	return out
}

func (r *rig) decline(site string, gs ...wire.Grant) []wire.Grant {
	r.t.Helper()
	out, err := r.st.Decline(r.ctx, site, gs)
	r.NoError(err)
	return out
}

// siteBytes answers the envelopes' bytes that siteA's jobs hold, by its pages; in a store of our own the totals agree.
func (r *rig) siteBytes() int64 {
	r.t.Helper()
	p, err := r.st.Jobs(r.ctx, siteA, 0, 1000)
	r.NoError(err)
	var n int64
	for _, j := range p.Jobs {
		n += j.Payload + j.Result
	}
	if !r.f.Gaps.SharedMemory {
		r.Equal(n, r.stats().Bytes)
	}
	return n
}
