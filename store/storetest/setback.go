package storetest

import (
	"time"

	"pushrelay/store"
	"pushrelay/wire"
)

// ahead is how far the clock was before it is set right: what was stamped with it would end that much too late.
const ahead = 10 * time.Hour

// setBack sets the clock right, and sweeps.
func (r *rig) setBack() {
	r.t.Helper()
	r.sweep()
	r.advance(-ahead)
	r.sweep()
}

// far is a deadline that a clock which is set back leaves in range.
func (r *rig) far() func(*wire.Stub) { return r.dueIn(30 * time.Minute) }

var setBackClauses = []clause{
	{"a lease lasts no longer than a whole one from now", store.Settings{}, func(r *rig) {
		g := r.running("gone", r.far())
		ready := r.ready("ready", r.far())
		r.setBack()
		r.pass(lease - step)
		r.Equal(store.Running, r.job(siteA, g.JobID).State)
		r.Equal(store.Ready, r.job(siteA, ready.JobID).State)
		r.pass(2 * step)
		r.Equal(1, r.queuedAgain(g.JobID).Lapses)
		r.queuedAgain(ready.JobID)
	}},
	{"one that is renewed goes on", store.Settings{}, func(r *rig) {
		g := r.running("j", r.far())
		r.sweep()
		r.advance(-ahead)
		r.Empty(r.renew(r1, g))
		r.sweep()
		r.Equal(store.Running, r.job(siteA, g.JobID).State)
		r.True(r.job(siteA, g.JobID).LeaseEnds.Equal(r.now().Add(lease)))
		r.complete(r1, g)
	}},
	{"windows and offers end", store.Settings{}, func(r *rig) {
		awaiting := r.awaiting("awaiting", r.far())
		slow := r.awaiting("slow", r.far())
		told, err := r.st.Sealing(r.ctx, siteA, []wire.Grant{slow})
		r.NoError(err)
		r.Len(told, 1)
		r.offeredTo("offered")
		r.setBack()
		r.pass(payWindow + step)
		r.Equal(1, r.queuedAgain(awaiting.JobID).Waits)
		r.Equal(store.AwaitingPayload, r.job(siteA, slow.JobID).State)
		r.pass(store.SealingWindow)
		r.Equal(1, r.queuedAgain(slow.JobID).Waits)
		r.queuedAgain("offered")
	}},
	{"results and notices are offered again", store.Settings{}, func(r *rig) {
		r.done("j", r.far())
		r.enqueue(siteA, "dropped", r.far())
		r.cancel(siteA, "dropped")
		r.Len(r.offerTo(siteA, "first", store.OfferResults), 1)
		r.Len(r.offerTo(siteA, "first", store.OfferNotices), 1)
		r.setBack()
		r.pass(store.MaxOffer)
		r.Len(r.offerTo(siteA, "first", store.OfferResults), 1)
		r.Len(r.offerTo(siteA, "first", store.OfferNotices), 1)
	}},
	{"whoever gave a job back for a while may have it, whoever refused it may not", store.Settings{}, func(r *rig) {
		back, refused := r.awaiting("back", r.far()), r.awaiting("refused", r.far())
		r.release(r1, wire.ReleaseShutdown, 30*time.Second, back)
		r.release(r1, wire.ReleaseRefused, 0, refused)
		r.Empty(r.claimIDs(r1))
		r.setBack()
		r.Equal([]store.Bar{{Runner: r1}}, r.barred("refused", r1))
		r.Empty(r.barred("back", r1))
		r.Equal([]string{"back"}, r.claimIDs(r1))
	}},
	{"a silenced queue is heard again", wide, func(r *rig) {
		r.refuse(store.RefusalStreak, "a")
		r.enqueue(siteA, "fresh")
		r.Empty(r.claim(r1))
		r.setBack()
		r.Empty(r.barred("fresh", r1))
		r.Equal([]string{"fresh"}, r.claimIDs(r1))
	}},
	{"a job that was published before ends with an age of nothing", store.Settings{}, func(r *rig) {
		g := r.running("j", r.far())
		r.setBack()
		t := r.tap(store.Interest{}, siteA)
		r.complete(r1, g)
		for _, e := range t.read() {
			r.False(e.Age < 0, "%v", e)
		}
	}},
	{"a second hardly counts", store.Settings{}, func(r *rig) {
		g := r.awaiting("j")
		r.sweep()
		before := r.job(siteA, g.JobID)
		r.advance(-time.Second / 2)
		r.sweep()
		r.Equal(before, r.job(siteA, g.JobID))
	}},
}
