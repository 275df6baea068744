package storetest

import (
	"time"

	"pushrelay/store"
	"pushrelay/wire"
)

var collectClauses = []clause{
	{"the ciphertext goes, a tombstone stays", store.Settings{}, func(r *rig) {
		g := r.done("j")
		r.collect(siteA, g)
		j := r.job(siteA, "j")
		r.True(j.Collected)
		r.Equal(store.Done, j.State)
		r.Zero(j.Result)
		r.Equal([]string{g.LeaseID, r1, wire.DispositionOK}, []string{j.Lease, j.Runner, j.Disposition})
		_, err := r.st.ResultEnvelope(r.ctx, siteA, g)
		r.errIs(err, store.ErrNotFound)
		r.Empty(r.offerTo(siteA, "s", store.OfferResults))
		r.Zero(r.siteTotal(siteA))
		r.duplicate(r1, g, "result of j")
		r.True(r.enqueueAll(siteA, r.stub("j"))[0].Known)
	}},
	{"repeatable; unknown ones are passed over", store.Settings{}, func(r *rig) {
		g, h := r.done("g"), r.done("h")
		r.collect(siteA, bogus("none"), bogus("h"), g, g)
		r.collect(siteA, g)
		r.True(r.job(siteA, "g").Collected)
		r.False(r.job(siteA, "h").Collected)
		r.collect(siteA, h)
	}},
	{"only by the grant that finished it", store.Settings{}, func(r *rig) {
		old := r.running("j")
		r.release(r1, wire.ReleaseShutdown, 0, old)
		g := r.grant(r1)
		r.complete(r1, g)
		r.collect(siteA, old, wire.Grant{JobID: "j"}, wire.Grant{JobID: "k", LeaseID: g.LeaseID})
		r.False(r.job(siteA, "j").Collected)
	}},
	{"another site collects nothing", store.Settings{}, func(r *rig) {
		g := r.done("j")
		r.collect(siteB, g)
		r.False(r.job(siteA, "j").Collected)
	}},
	{"an unfinished job isn't collected", store.Settings{}, func(r *rig) {
		for _, l := range lives[1:5] {
			g := l.make(r, l.name)
			before := r.job(siteA, l.name)
			r.collect(siteA, g)
			r.Equal(before, r.job(siteA, l.name))
		}
	}},
	{"a notice is collected by its own id", store.Settings{}, func(r *rig) {
		r.enqueue(siteA, "j")
		r.cancel(siteA, "j")
		n := r.notices(siteA)["j"]
		r.collect(siteB, n.Grant)
		r.collect(siteA, bogus("j"))
		r.Equal(1, r.stats().Notices)
		r.collect(siteA, n.Grant)
		r.Zero(r.stats().Notices)
		r.Empty(r.offerTo(siteA, "s", store.OfferNotices))
		r.Equal([]store.Enqueued{{JobID: "j", State: store.Done, Known: true}}, r.enqueueAll(siteA, r.stub("j")))
		r.collect(siteA, n.Grant)
	}},
	{"a collected notice's tombstone ends with the deadline", store.Settings{}, func(r *rig) {
		r.enqueue(siteA, "j")
		r.cancel(siteA, "j")
		r.collect(siteA, r.notices(siteA)["j"].Grant)
		r.jump(time.Hour - time.Millisecond)
		r.job(siteA, "j")
		r.jump(time.Millisecond)
		r.jobGone("j")
	}},
	{"a tombstone stays until the deadline, five minutes to a day", store.Settings{}, func(r *rig) {
		for _, c := range []struct{ deadline, stays time.Duration }{
			{time.Minute, store.TombstoneMin}, {3 * time.Hour, 3 * time.Hour}, {72 * time.Hour, store.TombstoneMax},
		} {
			g := r.done("j", r.dueIn(c.deadline))
			r.collect(siteA, g)
			r.jump(c.stays - time.Millisecond)
			r.duplicate(r1, g, "result of j")
			r.collect(siteA, g) // moves nothing
			r.jump(time.Millisecond)
			r.jobGone("j")
			r.completeErr(r1, g, store.ErrNotFound)
			r.Equal(one(g), r.renew(r1, g))
		}
	}},
	{"late in the retention, a tombstone still stays its five minutes", store.Settings{}, func(r *rig) {
		g := r.done("j")
		r.jump(23 * time.Hour)
		r.collect(siteA, g)
		r.jump(store.TombstoneMin - time.Millisecond)
		r.duplicate(r1, g, "result of j")
		r.jump(time.Millisecond)
		r.jobGone("j")
	}},
	{"after its retention ended a collected key stays taken no longer", store.Settings{ResultRetention: 10 * time.Minute}, func(r *rig) {
		g := r.done("j")
		r.collect(siteA, g)
		r.jump(30 * time.Minute)
		r.duplicate(r1, g, "result of j")
		r.jump(30 * time.Minute)
		r.enqueue(siteA, "j")
	}},
	{"results wait for an absent site and are lost to nobody", store.Settings{}, func(r *rig) {
		want := ids(r.manyDone(20, "x"))
		r.jump(20 * time.Hour)
		got := map[string]bool{}
		for _, o := range r.offerTo(siteA, "s", store.OfferResults) {
			env, err := r.st.ResultEnvelope(r.ctx, siteA, o.Grant)
			r.NoError(err)
			r.Equal("x", string(env.Raw))
			got[o.Grant.JobID] = true
			r.collect(siteA, o.Grant)
		}
		for _, id := range want {
			r.True(got[id], id)
		}
		r.Zero(r.siteBytes())
	}},
}
