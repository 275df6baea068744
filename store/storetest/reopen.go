package storetest

import (
	"time"

	"pushrelay/store"
)

// reopenClauses hold for stores that keep things: what was answered is there again.
var reopenClauses = []clause{
	{"every state is there again, the epoch too", store.Settings{}, func(r *rig) {
		r.needReopen()
		before := map[string]store.Job{}
		for _, l := range lives {
			l.make(r, l.name)
			if l.name == "queued" {
				r.cancelLater()
			}
			before[l.name] = r.job(siteA, l.name)
		}
		epoch, err := r.st.Epoch(r.ctx)
		r.NoError(err)
		bytes, waiting, notices := r.siteBytes(), r.backlog(siteA), r.stats().Notices
		r.reopen()
		again, err := r.st.Epoch(r.ctx)
		r.NoError(err)
		r.Equal(epoch, again)
		for id, want := range before {
			got := r.job(siteA, id)
			r.False(got.LeaseEnds.Before(want.LeaseEnds))
			got.LeaseEnds = want.LeaseEnds // a grace may have been given
			r.Equal(want, got, id)
		}
		r.Equal(bytes, r.siteBytes())
		r.Equal(waiting, r.backlog(siteA))
		r.Equal(notices, r.stats().Notices)
	}},
	{"grants go on, results are duplicates, keys are known", store.Settings{}, func(r *rig) {
		r.needReopen()
		run, rdy, done := r.running("run"), r.ready("ready"), r.done("done")
		r.reopen()
		r.Equal("payload of ready", string(r.take(r1, rdy).Raw))
		r.complete(r1, run)
		r.duplicate(r1, done, "again")
		env, err := r.st.ResultEnvelope(r.ctx, siteA, done)
		r.NoError(err)
		r.Equal("result of done", string(env.Raw))
		r.True(r.enqueueAll(siteA, r.stub("done"))[0].Known)
	}},
	{"leases get a grace after a restart", store.Settings{}, func(r *rig) {
		r.needReopen()
		g := r.running("j")
		r.advance(10 * lease)
		r.reopen()
		r.sweep()
		r.Empty(r.renew(r1, g))
		r.complete(r1, g)
	}},
	{"refusals, waits and counts outlive a restart", store.Settings{}, func(r *rig) {
		r.needReopen()
		r.enqueue(siteA, "j")
		r.decline(siteA, r.grant(r1))
		r.release(r1, "refused", 0, r.grant(r1))
		r.release(r2, "pause", time.Hour, r.grant(r2))
		r.reopen()
		r.Equal(1, r.job(siteA, "j").Waits)
		r.Empty(r.claim(r1))
		r.Empty(r.claim(r2))
		r.Len(r.claim(r3), 1)
	}},
	{"presence is not kept", store.Settings{}, func(r *rig) {
		r.needReopen()
		r.attachSite(siteA, "s")
		r.reopen()
		r.present(siteParty, false)
	}},
}

// cancelLater keeps the queued job from being claimed by the lives made after it: it goes to a kind of nobody's.
func (r *rig) cancelLater() {
	r.t.Helper()
	r.release(r1, "refused", 0, r.grant(r1))
}

func (r *rig) needReopen() {
	r.t.Helper()
	if r.f.Reopen == nil {
		r.t.Skip("gap Reopen: this store keeps nothing")
	}
}

func (r *rig) reopen() {
	r.t.Helper()
	r.st = r.f.Reopen(r.t, r.st, r.set, r.clock)
}
