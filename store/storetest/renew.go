package storetest

import (
	"time"

	"pushrelay/store"
	"pushrelay/wire"
)

var renewClauses = []clause{
	{"extends to now + leaseFor, the window isn't touched", store.Settings{}, func(r *rig) {
		for _, l := range lives[2:5] {
			g := l.make(r, l.name)
			was := r.job(siteA, l.name)
			before := r.now()
			lost, err := r.st.Renew(r.ctx, r1, one(g), 3*lease)
			r.NoError(err)
			r.Empty(lost)
			j := r.job(siteA, l.name)
			r.WithinRange(j.LeaseEnds, before.Add(3*lease), r.now().Add(3*lease))
			r.Equal(was.WindowEnds, j.WindowEnds)
			r.Equal(was.State, j.State)
		}
	}},
	{"answers as lost what doesn't stand, in order", store.Settings{}, func(r *rig) {
		g := r.running("j")
		gone := r.running("gone")
		r.release(r1, wire.ReleaseRefused, 0, gone)
		mixed := wire.Grant{JobID: "gone", LeaseID: g.LeaseID}
		r.Equal([]wire.Grant{gone, bogus("j"), mixed, bogus("none")}, r.renew(r1, gone, bogus("j"), g, mixed, bogus("none")))
	}},
	{"another runner's grant is lost and not extended", store.Settings{}, func(r *rig) {
		g := r.running("j")
		before := r.job(siteA, "j")
		lost, err := r.st.Renew(r.ctx, r2, one(g), time.Hour)
		r.NoError(err)
		r.Equal(one(g), lost)
		r.Equal(before, r.job(siteA, "j"))
	}},
	{"a done grant is neither extended nor lost", store.Settings{}, func(r *rig) {
		g := r.done("j")
		if !r.f.Gaps.NoClock {
			r.advance(time.Second)
		}
		before := r.job(siteA, "j")
		r.Empty(r.renew(r1, g))
		r.Equal(before, r.job(siteA, "j"))
		r.Equal(one(g), r.renew(r2, g))
	}},
	{"one bad entry doesn't fail the rest", store.Settings{}, func(r *rig) {
		a, b := r.running("a"), r.running("b")
		r.pass(lease - 10*time.Second)
		r.Equal(one(bogus("x")), r.renew(r1, a, bogus("x"), b))
		r.pass(lease - 10*time.Second)
		r.Equal(store.Running, r.job(siteA, "a").State)
		r.Equal(store.Running, r.job(siteA, "b").State)
	}},
	{"a job 20 leases long runs once", store.Settings{}, func(r *rig) {
		g := r.running("j")
		for range 60 {
			r.pass(lease / 3)
			r.Empty(r.renew(r1, g))
			r.Empty(r.claim(r2))
		}
		r.complete(r1, g)
		r.Zero(r.job(siteA, "j").Lapses)
	}},
	{"one missed heartbeat loses nothing", store.Settings{}, func(r *rig) {
		g := r.running("j")
		for range 5 {
			r.pass(2 * lease / 3)
			r.Empty(r.renew(r1, g))
		}
		r.complete(r1, g)
	}},
	{"an earlier grant's heartbeat doesn't extend a later one", store.Settings{}, func(r *rig) {
		old := r.running("j")
		r.release(r1, wire.ReleaseShutdown, 0, old)
		r.grant(r1)
		before := r.job(siteA, "j")
		r.Equal(one(old), r.renew(r1, old))
		r.Equal(before.LeaseEnds, r.job(siteA, "j").LeaseEnds)
	}},
	{"renewing an unsealed grant doesn't save it from its window", store.Settings{}, func(r *rig) {
		g := r.awaiting("j")
		r.pass(8 * time.Second)
		r.Empty(r.renew(r1, g))
		r.pass(2 * time.Second)
		r.queuedAgain("j")
	}},
	{"late but unfired it still holds", store.Settings{}, func(r *rig) {
		g := r.running("j")
		r.pass(lease - 2*time.Second)
		r.advance(2 * time.Second)
		r.Empty(r.renew(r1, g))
		r.sweep()
		r.Equal(store.Running, r.job(siteA, "j").State)
	}},
	{"a shorter lease than before counts too", store.Settings{}, func(r *rig) {
		g := r.running("j")
		_, err := r.st.Renew(r.ctx, r1, one(g), 5*time.Second)
		r.NoError(err)
		r.pass(5 * time.Second)
		r.queuedAgain("j")
	}},
	{"held answers the runner's unfinished grants, oldest first", store.Settings{}, func(r *rig) {
		want := []string{}
		for _, l := range lives[1:5] {
			g := l.make(r, l.name)
			want = append(want, g.JobID)
			if !r.f.Gaps.NoClock {
				r.advance(time.Millisecond)
			}
		}
		r.done("done")
		held, err := r.st.Held(r.ctx, r1)
		r.NoError(err)
		got := []string{}
		for _, j := range held {
			got = append(got, j.Job)
			r.Equal(r.job(siteA, j.Job), j)
		}
		r.Equal(want, got)
		held, err = r.st.Held(r.ctx, r2)
		r.NoError(err)
		r.Empty(held)
	}},
}

var resumeClauses = []clause{
	{"kept, lost, returned", store.Settings{}, func(r *rig) {
		a, b, c := r.awaiting("a"), r.ready("b"), r.running("c")
		d := r.offeredTo("d")
		gone := r.awaiting("gone")
		r.release(r1, wire.ReleaseRefused, 0, gone)
		got := r.resume(r1, a, c, gone, bogus("b"))
		r.ElementsMatch([]wire.Grant{a, c}, got.Kept)
		r.ElementsMatch([]wire.Grant{gone, bogus("b")}, got.Lost)
		r.ElementsMatch([]wire.Grant{b, d}, got.Returned)
		r.queuedAgain("b")
		r.queuedAgain("d")
	}},
	{"what it names is accepted and renewed", store.Settings{}, func(r *rig) {
		g := r.running("j")
		d := r.offeredTo("d")
		before := r.now()
		_, err := r.st.Resume(r.ctx, r1, r.attach(r1, "s"), []wire.Grant{g, d}, 5*lease)
		r.NoError(err)
		r.WithinRange(r.job(siteA, "j").LeaseEnds, before.Add(5*lease), r.now().Add(5*lease))
		r.False(r.job(siteA, "d").Offered)
		r.WithinRange(r.job(siteA, "d").LeaseEnds, before.Add(5*lease), r.now().Add(5*lease))
	}},
	{"a done grant of its own is neither", store.Settings{}, func(r *rig) {
		g := r.done("j")
		got := r.resume(r1, g)
		r.Empty(got.Kept)
		r.Empty(got.Lost)
		r.Empty(got.Returned)
		r.collect(siteA, g)
		r.Empty(r.resume(r1, g).Lost)
	}},
	{"another runner's grants are lost and untouched", store.Settings{}, func(r *rig) {
		g := r.running("j")
		got := r.resume(r2, g)
		r.Equal(one(g), got.Lost)
		r.Empty(got.Kept)
		r.Empty(got.Returned)
		r.Equal(store.Running, r.job(siteA, "j").State)
	}},
	{"coming back without it is a lapse once the payload was taken", store.Settings{}, func(r *rig) {
		r.running("j")
		r.resume(r1)
		r.Equal(1, r.queuedAgain("j").Lapses)
		g := r.grant(r1)
		r.seal(siteA, g, r1)
		r.resume(r1)
		r.Equal(1, r.queuedAgain("j").Lapses)
		r.grant(r1)
		r.resume(r1)
		j := r.queuedAgain("j")
		r.Equal(1, j.Lapses)
		r.Zero(j.Waits)
	}},
	{"a job that kills its runner is dropped as lapsed at the fifth time", store.Settings{}, func(r *rig) {
		r.enqueue(siteA, "j")
		for i := range store.MaxLapses {
			r.Equal(i, r.queuedAgain("j").Lapses)
			g := r.grant(r1)
			r.seal(siteA, g, r1)
			r.take(r1, g)
			r.Equal(one(g), r.resume(r1).Returned)
		}
		r.Empty(r.claim(r1))
		r.noticed("j", store.WhyLapsed)
	}},
	{"only the newest session resumes; else nothing changes", store.Settings{}, func(r *rig) {
		g := r.running("j")
		old := r.attach(r1, "s1")
		newest := r.attach(r1, "s2")
		before := r.job(siteA, "j")
		for _, n := range []uint64{old, newest + 1000} {
			_, err := r.st.Resume(r.ctx, r1, n, nil, time.Hour)
			r.errIs(err, store.ErrSuperseded)
			_, err = r.st.Resume(r.ctx, r1, n, one(g), time.Hour)
			r.errIs(err, store.ErrSuperseded)
		}
		r.Equal(before, r.job(siteA, "j"))
	}},
	{"a second resume with the same changes nothing more", store.Settings{}, func(r *rig) {
		g := r.running("j")
		r.running("k")
		r.resume(r1, g)
		again := r.resume(r1, g)
		r.Equal(one(g), again.Kept)
		r.Empty(again.Lost)
		r.Empty(again.Returned)
		r.Equal(1, r.queuedAgain("k").Lapses)
	}},
	{"late but unfired leases still hold", store.Settings{}, func(r *rig) {
		g := r.running("j")
		r.pass(lease - 2*time.Second)
		r.advance(2 * time.Second)
		r.Equal(one(g), r.resume(r1, g).Kept)
		r.sweep()
		r.Equal(store.Running, r.job(siteA, "j").State)
	}},
}

// resume returns with a new session that names these grants.
func (r *rig) resume(runner string, active ...wire.Grant) store.Resumed {
	r.t.Helper()
	n := r.attach(runner, "resume-"+r.now().String())
	got, err := r.st.Resume(r.ctx, runner, n, active, lease)
	r.NoError(err)
	return got
}
