package storetest

import (
	"time"

	"pushrelay/store"
	"pushrelay/wire"
)

var acceptClauses = []clause{
	{"stamps the payload window", store.Settings{}, func(r *rig) {
		g := r.offeredTo("j")
		before := r.now()
		r.Empty(r.accept(r1, g))
		j := r.job(siteA, "j")
		r.False(j.Offered)
		r.WithinRange(j.WindowEnds, before.Add(10*time.Second), r.now().Add(10*time.Second))
	}},
	{"a second accept leaves the window as it is", store.Settings{}, func(r *rig) {
		g := r.offeredTo("j")
		r.accept(r1, g)
		before := r.job(siteA, "j")
		if !r.f.Gaps.NoClock {
			r.pass(3 * time.Second)
		}
		r.Empty(r.accept(r1, g))
		r.Equal(before, r.job(siteA, "j"))
	}},
	{"answers those that don't stand for this runner", store.Settings{}, func(r *rig) {
		g := r.offeredTo("j")
		gone := r.awaiting("gone")
		r.release(r1, wire.ReleaseShutdown, time.Hour, gone)
		other := wire.Grant{JobID: "other", LeaseID: g.LeaseID}
		lost := r.accept(r1, g, gone, bogus("j"), bogus("none"), other)
		r.Equal([]wire.Grant{gone, bogus("j"), bogus("none"), other}, lost)
		r.False(r.job(siteA, "j").Offered)
	}},
	{"another runner accepts nothing", store.Settings{}, func(r *rig) {
		g := r.offeredTo("j")
		r.Equal(one(g), r.accept(r2, g))
		r.True(r.job(siteA, "j").Offered)
	}},
	{"a done grant of its own isn't lost", store.Settings{}, func(r *rig) {
		r.Empty(r.accept(r1, r.done("j")))
	}},
	{"late but unfired it still holds", store.Settings{}, func(r *rig) {
		g := r.offeredTo("j")
		r.advance(offer)
		r.Empty(r.accept(r1, g))
		r.sweep()
		r.Equal(store.AwaitingPayload, r.job(siteA, "j").State)
	}},
	{"any later call that names the grant accepts it", store.Settings{}, func(r *rig) {
		calls := map[string]func(g wire.Grant){
			"take": func(g wire.Grant) {
				_, err := r.st.TakePayload(r.ctx, r1, g)
				r.errIs(err, store.ErrNotReady)
			},
			"renew": func(g wire.Grant) { r.Empty(r.renew(r1, g)) },
			"resume": func(g wire.Grant) {
				got, err := r.st.Resume(r.ctx, r1, r.attach(r1, "s"), one(g), lease)
				r.NoError(err)
				r.Equal(one(g), got.Kept)
			},
		}
		for name, call := range calls {
			g := r.offeredTo(name)
			before := r.now()
			call(g)
			j := r.job(siteA, name)
			r.False(j.Offered, name)
			r.WithinRange(j.WindowEnds, before.Add(10*time.Second), r.now().Add(10*time.Second))
			r.release(r1, wire.ReleaseRefused, 0, g)
		}
	}},
	{"a call of another runner accepts nothing", store.Settings{}, func(r *rig) {
		g := r.offeredTo("j")
		_, _ = r.st.TakePayload(r.ctx, r2, g)
		_, _ = r.st.Complete(r.ctx, r2, g, resultFrom(r2, "x"), wire.DispositionOK)
		r.Equal(one(g), r.renew(r2, g))
		r.Empty(r.release(r2, wire.ReleaseShutdown, 0, g))
		r.True(r.job(siteA, "j").Offered)
	}},
	{"unaccepted, it goes back when its offer is over", store.Settings{}, func(r *rig) {
		g := r.offeredTo("j")
		r.pass(offer - time.Millisecond)
		r.True(r.job(siteA, "j").Offered)
		r.pass(time.Millisecond)
		j := r.queuedAgain("j")
		r.Zero(j.Waits + j.Lapses)
		r.Equal(one(g), r.accept(r1, g))
		r.Len(r.claim(r1), 1)
	}},
	{"offers left unanswered never use a job up", store.Settings{}, func(r *rig) {
		r.enqueue(siteA, "j")
		for range 10 {
			r.grant(r1, offered)
			r.pass(offer)
		}
		r.queuedAgain("j")
	}},
}
