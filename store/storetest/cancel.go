package storetest

import (
	"time"

	"pushrelay/store"
	"pushrelay/wire"
)

var cancelClauses = []clause{
	{"queued: dropped at once, with a notice", store.Settings{}, func(r *rig) {
		r.enqueue(siteA, "j")
		r.Equal([]bool{true}, r.cancel(siteA, "j"))
		r.Empty(r.claim(r1))
		r.Zero(r.siteTotal(siteA))
		r.noticed("j", store.WhyCancelled)
	}},
	{"false for a job that the site doesn't have, in order", store.Settings{}, func(r *rig) {
		r.enqueue(siteA, "j")
		r.enqueue(siteB, "other")
		r.Equal([]bool{false, true, false, false}, r.cancel(siteA, "none", "j", "other", ""))
		r.Equal(store.Queued, r.job(siteB, "other").State)
	}},
	{"granted: a flag, the state stays", store.Settings{}, func(r *rig) {
		for _, l := range lives[1:5] {
			l.make(r, l.name)
			r.Equal([]bool{true}, r.cancel(siteA, l.name))
			j := r.job(siteA, l.name)
			r.True(j.Cancelled)
			r.Equal(l.state, j.State)
			r.Empty(r.notices(siteA))
		}
	}},
	{"offered and awaiting: off the seal list", store.Settings{}, func(r *rig) {
		a := r.awaiting("a")
		b := r.offeredTo("b")
		r.cancel(siteA, "a", "b")
		r.accept(r1, b)
		p, err := r.st.Awaiting(r.ctx, siteA, 0, 10)
		r.NoError(err)
		r.Empty(p.Jobs)
		r.Empty(r.offerTo(siteA, "s", store.OfferSeals))
		r.release(r1, wire.ReleaseShutdown, 0, a, b)
	}},
	{"ready: the payload is withheld", store.Settings{}, func(r *rig) {
		g := r.ready("j")
		r.cancel(siteA, "j")
		r.takeErr(r1, g, store.ErrTooLate)
		r.Equal(store.Ready, r.job(siteA, "j").State)
	}},
	{"running: told until a result", store.Settings{}, func(r *rig) {
		g := r.running("j")
		r.cancel(siteA, "j")
		for range 2 {
			r.Equal(one(g), r.cancelRequests(r1))
		}
		r.complete(r1, g)
		r.Empty(r.cancelRequests(r1))
	}},
	{"cancel requests are the runner's own, unfinished, cancelled grants", store.Settings{}, func(r *rig) {
		want := []wire.Grant{}
		for _, l := range lives[1:5] {
			g := l.make(r, l.name)
			r.cancel(siteA, l.name)
			want = append(want, g)
		}
		r.running("not cancelled")
		done := r.done("done")
		r.cancel(siteA, done.JobID)
		r.ElementsMatch(want, r.cancelRequests(r1))
		r.Empty(r.cancelRequests(r2))
	}},
	{"done, collected and dropped: true, nothing changes", store.Settings{}, func(r *rig) {
		for _, l := range lives[5:] {
			l.make(r, l.name)
			before, stats := r.job(siteA, l.name), r.stats()
			r.Equal([]bool{true}, r.cancel(siteA, l.name))
			r.Equal(before, r.job(siteA, l.name))
			r.Equal(stats, r.stats())
		}
	}},
	{"repeatable in every state", store.Settings{}, func(r *rig) {
		for _, l := range lives {
			l.make(r, l.name)
			r.cancel(siteA, l.name)
			before, stats := r.job(siteA, l.name), r.stats()
			r.Equal([]bool{true}, r.cancel(siteA, l.name))
			r.Equal(before, r.job(siteA, l.name))
			r.Equal(stats, r.stats())
		}
	}},
	{"back in the queue by any way it is dropped as cancelled", store.Settings{}, func(r *rig) {
		a := r.awaiting("declined")
		r.cancel(siteA, "declined")
		r.decline(siteA, a)
		r.noticed("declined", store.WhyCancelled)
		r.awaiting("window")
		r.cancel(siteA, "window")
		r.pass(10 * time.Second)
		r.noticed("window", store.WhyCancelled)
		r.offeredTo("offer")
		r.cancel(siteA, "offer")
		r.pass(offer)
		r.noticed("offer", store.WhyCancelled)
		for name, life := range map[string]func(string) wire.Grant{
			"ready":   func(id string) wire.Grant { return r.ready(id) },
			"running": func(id string) wire.Grant { return r.running(id) },
		} {
			life(name)
			r.cancel(siteA, name)
			r.pass(lease)
			r.noticed(name, store.WhyCancelled)
		}
	}},
	{"before a count could drop it", store.Settings{}, func(r *rig) {
		r.enqueue(siteA, "j")
		for range store.MaxWaits - 1 {
			r.decline(siteA, r.grant(r1))
		}
		g := r.grant(r1)
		r.cancel(siteA, "j")
		r.decline(siteA, g)
		r.noticed("j", store.WhyCancelled)
	}},
	{"a resume that doesn't name it drops it, one that names it keeps it", store.Settings{}, func(r *rig) {
		a, b := r.running("a"), r.running("b")
		r.cancel(siteA, "a", "b")
		got, err := r.st.Resume(r.ctx, r1, r.attach(r1, "s"), one(a), lease)
		r.NoError(err)
		r.Equal(one(a), got.Kept)
		r.Equal(one(b), got.Returned)
		r.noticed("b", store.WhyCancelled)
		r.Equal(one(a), r.cancelRequests(r1))
	}},
	{"a cancelled job still lives by its lease and may be renewed", store.Settings{}, func(r *rig) {
		g := r.running("j")
		r.cancel(siteA, "j")
		r.pass(lease - time.Second)
		r.Empty(r.renew(r1, g))
		r.pass(lease - time.Second)
		r.complete(r1, g)
	}},
	{"only the site's own job of that id", store.Settings{}, func(r *rig) {
		r.enqueue(siteB, "j")
		g := r.running("j", ofKind(gen))
		r.cancel(siteB, "j")
		r.False(r.job(siteA, "j").Cancelled)
		r.Empty(r.cancelRequests(r1))
		r.take(r1, g)
	}},
}

func (r *rig) cancelRequests(runner string) []wire.Grant {
	r.t.Helper()
	gs, err := r.st.CancelRequests(r.ctx, runner)
	r.NoError(err)
	return gs
}
