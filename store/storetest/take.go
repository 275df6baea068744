package storetest

import (
	"time"

	"pushrelay/store"
	"pushrelay/wire"
)

var takeClauses = []clause{
	{"answers the payload and makes it running, repeatably", store.Settings{}, func(r *rig) {
		g := r.ready("j")
		for i := range 3 {
			r.Equal(payloadFor(r1, "payload of j"), r.take(r1, g))
			j := r.job(siteA, "j")
			r.Equal(store.Running, j.State)
			r.Equal(i+1, j.Takes)
		}
	}},
	{"unsealed is not ready", store.Settings{}, func(r *rig) {
		r.takeErr(r1, r.awaiting("j"), store.ErrNotReady)
	}},
	{"done is terminal, judged before unsealed", store.Settings{}, func(r *rig) {
		r.takeErr(r1, r.done("j"), store.ErrTerminal)
		g := r.awaiting("k")
		r.complete(r1, g)
		r.takeErr(r1, g, store.ErrTerminal)
		r.collect(siteA, g)
		r.takeErr(r1, g, store.ErrTerminal)
	}},
	{"cancelled is too late, judged before unsealed", store.Settings{}, func(r *rig) {
		a, b, c := r.awaiting("a"), r.ready("b"), r.running("c")
		r.cancel(siteA, "a", "b", "c")
		for _, g := range []wire.Grant{a, b, c} {
			r.takeErr(r1, g, store.ErrTooLate)
		}
		r.Equal(store.Ready, r.job(siteA, "b").State)
	}},
	{"another runner's grant is not-holder", store.Settings{}, func(r *rig) {
		for _, l := range lives[1:6] {
			r.takeErr(r2, l.make(r, l.name), store.ErrNotHolder)
		}
	}},
	{"another lease of a job that it holds is stale", store.Settings{}, func(r *rig) {
		old := r.ready("j")
		r.release(r1, wire.ReleaseShutdown, 0, old)
		r.takeErr(r1, old, store.ErrNotFound)
		g := r.grant(r1)
		r.takeErr(r1, old, store.ErrStaleLease)
		r.takeErr(r1, bogus("j"), store.ErrStaleLease)
		r.complete(r1, g)
		r.takeErr(r1, old, store.ErrStaleLease)
	}},
	{"a lease of another job doesn't count", store.Settings{}, func(r *rig) {
		g := r.ready("j")
		r.takeErr(r1, wire.Grant{JobID: "k", LeaseID: g.LeaseID}, store.ErrNotFound)
		h := r.ready("k")
		r.takeErr(r1, wire.Grant{JobID: "k", LeaseID: g.LeaseID}, store.ErrStaleLease)
		r.takeErr(r2, wire.Grant{JobID: "k", LeaseID: g.LeaseID}, store.ErrNotFound)
		r.take(r1, h)
	}},
	{"one id at two sites: the lease tells them apart", store.Settings{}, func(r *rig) {
		g := r.awaiting("j")
		r.enqueue(siteB, "j")
		h := r.grant(r1)
		r.seal(siteA, g, r1)
		r.takeErr(r1, h, store.ErrNotReady)
		_, err := r.st.Seal(r.ctx, siteB, h, payloadFor(r1, "of b"))
		r.NoError(err)
		r.Equal("of b", string(r.take(r1, h).Raw))
		r.Equal("payload of j", string(r.take(r1, g).Raw))
		r.complete(r1, g)
		r.Equal("of b", string(r.take(r1, h).Raw))
		r.takeErr(r1, g, store.ErrTerminal)
	}},
	{"one id at two sites: as long as one of them is held, another lease of the id is stale", store.Settings{}, func(r *rig) {
		g := r.awaiting("j")
		r.enqueue(siteB, "j")
		h := r.grant(r1)
		r.takeErr(r1, bogus("j"), store.ErrStaleLease)
		r.release(r1, wire.ReleaseRefused, 0, g)
		r.takeErr(r1, bogus("j"), store.ErrStaleLease)
		r.release(r1, wire.ReleaseRefused, 0, h)
		r.takeErr(r1, bogus("j"), store.ErrNotFound)
	}},
	{"the ninth take gives the grant back as a lapse", store.Settings{}, func(r *rig) {
		g := r.ready("j")
		for range store.MaxTakes {
			r.take(r1, g)
		}
		r.takeErr(r1, g, store.ErrStaleLease)
		r.Equal(1, r.queuedAgain("j").Lapses)
		r.takeErr(r1, g, store.ErrNotFound)
	}},
	{"takes count for one grant only", store.Settings{}, func(r *rig) {
		g := r.ready("j")
		for range store.MaxTakes {
			r.take(r1, g)
		}
		r.release(r1, wire.ReleaseShutdown, 0, g)
		g = r.grant(r1)
		r.seal(siteA, g, r1)
		r.take(r1, g)
		r.Equal(1, r.job(siteA, "j").Takes)
		r.Zero(r.job(siteA, "j").Lapses)
	}},
	{"the fifth grant taken too often drops the job as lapsed", store.Settings{}, func(r *rig) {
		r.enqueue(siteA, "j")
		for range store.MaxLapses {
			r.queuedAgain("j")
			g := r.grant(r1)
			r.seal(siteA, g, r1)
			for range store.MaxTakes {
				r.take(r1, g)
			}
			r.takeErr(r1, g, store.ErrStaleLease)
		}
		r.noticed("j", store.WhyLapsed)
	}},
	{"late but unfired it still counts", store.Settings{}, func(r *rig) {
		g := r.ready("j")
		r.pass(lease - time.Second)
		r.advance(time.Second)
		r.take(r1, g)
	}},
}

// takeErr expects that a take is refused.
func (r *rig) takeErr(runner string, g wire.Grant, want *store.Refusal) {
	r.t.Helper()
	env, err := r.st.TakePayload(r.ctx, runner, g)
	r.errIs(err, want)
	r.Empty(env.Raw)
}
