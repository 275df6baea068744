package storetest

import (
	"time"

	"pushrelay/store"
	"pushrelay/wire"
)

var reasons = []string{
	wire.ReleaseShutdown, wire.ReleasePause, wire.ReleaseRevoked, wire.ReleaseBackendDown, wire.ReleaseRefused,
}

var releaseClauses = []clause{
	{"gives back from every unfinished state, for every reason", store.Settings{}, func(r *rig) {
		for _, l := range lives[1:5] {
			for _, reason := range reasons {
				id := l.name + " " + reason
				g := l.make(r, id)
				r.Equal(one(g), r.release(r1, reason, 0, g), id)
				j := r.queuedAgain(id)
				r.Zero(j.Waits+j.Lapses, id)
				r.cancel(siteA, id)
			}
		}
		r.Zero(r.siteBytes())
	}},
	{"exactly these grants, others are passed over", store.Settings{}, func(r *rig) {
		a, b := r.running("a"), r.running("b")
		gone := r.awaiting("gone")
		r.release(r1, wire.ReleaseRefused, 0, gone)
		done := r.done("done")
		mixed := wire.Grant{JobID: "b", LeaseID: a.LeaseID}
		r.Equal(one(a), r.release(r1, wire.ReleaseShutdown, 0, gone, bogus("b"), mixed, done, a, bogus("none")))
		r.Equal(store.Running, r.job(siteA, "b").State)
		r.Equal(b.LeaseID, r.job(siteA, "b").Lease)
	}},
	{"an earlier grant doesn't give back a later one", store.Settings{}, func(r *rig) {
		old := r.running("j")
		r.release(r1, wire.ReleaseShutdown, 0, old)
		g := r.grant(r1)
		r.Empty(r.release(r1, wire.ReleaseShutdown, 0, old))
		r.Equal(g.LeaseID, r.job(siteA, "j").Lease)
	}},
	{"another runner's grants are passed over", store.Settings{}, func(r *rig) {
		g := r.running("j")
		r.Empty(r.release(r2, wire.ReleaseRefused, time.Hour, g))
		r.Equal(store.Running, r.job(siteA, "j").State)
		r.release(r1, wire.ReleaseShutdown, 0, g)
		r.Len(r.claim(r2), 1)
	}},
	{"refused means never again for this runner", store.Settings{}, func(r *rig) {
		g := r.awaiting("j")
		r.release(r1, wire.ReleaseRefused, 0, g)
		r.Empty(r.claim(r1))
		if !r.f.Gaps.NoClock {
			r.jump(50 * time.Minute)
			r.Empty(r.claim(r1))
		}
		r.release(r2, wire.ReleaseShutdown, 0, r.grant(r2))
		r.Empty(r.claim(r1))
	}},
	{"notFor is at most five minutes", store.Settings{}, func(r *rig) {
		r.release(r1, wire.ReleaseShutdown, time.Hour, r.awaiting("j", r.dueIn(time.Hour)))
		r.jump(store.MaxNotFor - time.Second)
		r.Empty(r.claim(r1))
		r.jump(time.Second)
		r.Len(r.claim(r1), 1)
	}},
	{"without notFor the runner may have it again at once", store.Settings{}, func(r *rig) {
		r.release(r1, wire.ReleaseShutdown, 0, r.awaiting("j"))
		r.Len(r.claim(r1), 1)
	}},
	{"releases never use a job up", store.Settings{}, func(r *rig) {
		r.enqueue(siteA, "j")
		for range 12 {
			g := r.grant(r1)
			r.seal(siteA, g, r1)
			r.take(r1, g)
			r.release(r1, wire.ReleaseShutdown, 0, g)
		}
		r.queuedAgain("j")
	}},
	{"a cancelled job given back is dropped", store.Settings{}, func(r *rig) {
		for _, l := range lives[1:5] {
			g := l.make(r, l.name)
			r.cancel(siteA, l.name)
			r.Equal(one(g), r.release(r1, wire.ReleaseShutdown, 0, g))
			r.noticed(l.name, store.WhyCancelled)
		}
	}},
	{"abandon takes back what that session hasn't accepted", store.Settings{}, func(r *rig) {
		n := r.attach(r1, "s1")
		r.enqueueN(siteA, "j", 3)
		got := r.claim(r1, numbered(n), offered, upTo(3))
		r.Len(got, 3)
		r.accept(r1, grantOf(got[0]))
		back, err := r.st.Abandon(r.ctx, r1, n)
		r.NoError(err)
		r.ElementsMatch([]wire.Grant{grantOf(got[1]), grantOf(got[2])}, back)
		r.Equal(store.AwaitingPayload, r.job(siteA, got[0].Stub.ID).State)
		for _, c := range got[1:] {
			j := r.queuedAgain(c.Stub.ID)
			r.Zero(j.Waits + j.Lapses)
		}
		back, err = r.st.Abandon(r.ctx, r1, n)
		r.NoError(err)
		r.Empty(back)
	}},
	{"abandon leaves other sessions' and runners' grants alone", store.Settings{}, func(r *rig) {
		r.enqueueN(siteA, "j", 3)
		old := r.attach(r1, "s1")
		a := r.grant(r1, numbered(old), offered)
		newest := r.attach(r1, "s2")
		b := r.grant(r1, numbered(newest), offered)
		other := r.attach(r2, "t1")
		c := r.grant(r2, numbered(other), offered)
		back, err := r.st.Abandon(r.ctx, r1, old)
		r.NoError(err)
		r.Equal(one(a), back)
		r.True(r.job(siteA, b.JobID).Offered)
		r.True(r.job(siteA, c.JobID).Offered)
	}},
}
