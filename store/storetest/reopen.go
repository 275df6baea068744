package storetest

import (
	"time"

	"pushrelay/store"
	"pushrelay/wire"
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
			r.False(got.WindowEnds.Before(want.WindowEnds))
			got.LeaseEnds, got.WindowEnds = want.LeaseEnds, want.WindowEnds // a grace may have been given
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
	{"a payload window gets a grace too: a restart is no wait in vain", store.Settings{}, func(r *rig) {
		r.needReopen()
		g := r.awaiting("j")
		for range store.MaxWaits {
			r.advance(lease)
			r.reopen()
			r.sweep()
		}
		r.Zero(r.job(siteA, "j").Waits)
		r.seal(siteA, g, r1)
	}},
	{"a restart in quick succession with others takes nobody's lease away", store.Settings{}, func(r *rig) {
		r.needReopen()
		g := r.running("j")
		r.advance(10 * lease)
		for range 5 {
			r.reopen()
			r.sweep()
			r.advance(time.Second)
		}
		r.Empty(r.renew(r1, g))
	}},
	{"the deadline passes while the store is closed", store.Settings{}, func(r *rig) {
		r.needReopen()
		r.enqueue(siteA, "queued", r.dueIn(time.Minute))
		r.release(r1, "refused", 0, r.grant(r1))
		r.running("running", r.dueIn(2*time.Minute))
		r.advance(time.Hour)
		r.reopen()
		r.sweep()
		for _, id := range []string{"queued", "running"} {
			r.Equal(store.WhyDeadline, r.notices(siteA)[id].Why)
		}
	}},
	{"session numbers and the order of jobs go on above all earlier ones", store.Settings{}, func(r *rig) {
		r.needReopen()
		r.enqueueN(siteA, "old", 2)
		before := r.attach(r1, "s")
		for range 3 {
			r.reopen()
			_, err := r.st.Claim(r.ctx, ask(r1, numbered(before)))
			r.errIs(err, store.ErrSuperseded)
			n := r.attach(r1, "s")
			r.Greater(n, before)
			before = n
		}
		r.enqueue(siteA, "new")
		r.Equal([]string{"old-0", "old-1", "new"}, jobIDs(r.pages(r.st.Jobs, siteA, 2)))
		r.Equal([]string{"old-0", "old-1", "new"}, r.claimIDs(r1, upTo(3)))
	}},
	{"a key that was used and freed again is free", store.Settings{}, func(r *rig) {
		r.needReopen()
		g := r.done("j")
		r.collect(siteA, g)
		r.jump(25 * time.Hour)
		r.reopen()
		r.jobGone("j")
		r.enqueue(siteA, "j")
		r.reopen()
		r.Equal(store.Queued, r.job(siteA, "j").State)
	}},
	{"a notice keeps its id, and a tombstone what it answers", store.Settings{}, func(r *rig) {
		r.needReopen()
		r.enqueue(siteA, "dropped")
		r.cancel(siteA, "dropped")
		n := r.notices(siteA)["dropped"]
		g := r.done("collected")
		r.collect(siteA, g)
		r.reopen()
		r.Equal(n.Grant, r.notices(siteA)["dropped"].Grant)
		r.collect(siteA, n.Grant)
		r.Empty(r.notices(siteA))
		r.duplicate(r1, g, "again")
		r.completeErr(r1, bogus("collected"), store.ErrStaleLease)
	}},
	{"a result is offered with its device's identity", store.Settings{}, func(r *rig) {
		r.needReopen()
		g := r.done("j")
		r.Len(r.offerTo(siteA, "s", store.OfferResults), 1)
		r.reopen()
		got := r.offerTo(siteA, "s", store.OfferResults)
		r.Len(got, 1, "a session that ended holds no offer")
		r.Equal(g, got[0].Grant)
		r.Equal(identity(r1), got[0].Identity)
		r.EqualValues(len("result of j"), got[0].Bytes)
	}},
	{"turns and refusal streaks outlive a restart", store.Settings{UnsealedPerRoute: 100}, func(r *rig) {
		r.needReopen()
		r.enqueueN(siteA, "a", 2)
		r.enqueueN(siteB, "b", 2)
		r.Equal([]string{"a-0"}, r.claimIDs(r1))
		r.reopen()
		r.Equal([]string{"b-0"}, r.claimIDs(r1))
		r.reopen()
		r.Equal([]string{"a-1"}, r.claimIDs(r1))
		r.enqueueN(siteA, "no", store.RefusalStreak, ofKind(gen))
		for range store.RefusalStreak {
			r.reopen()
			r.release(r2, wire.ReleaseRefused, 0, r.grant(r2, kinds(gen)))
		}
		r.enqueue(siteA, "after", ofKind(gen))
		r.reopen()
		r.Empty(r.claim(r2, kinds(gen)))
		r.Len(r.claim(r3, kinds(gen), upTo(99)), store.RefusalStreak+1)
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
