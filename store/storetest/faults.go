package storetest

import (
	"time"

	"pushrelay/store"
	"pushrelay/wire"
)

// faultClauses are the faults of leases and deliveries that other systems suffered from, as whole stories.
var faultClauses = []clause{
	{"a lapsed holder's every late call misses the new holder's grant", store.Settings{}, func(r *rig) {
		old := r.running("j")
		r.pass(lease)
		g := r.grant(r1) // the same runner again: only the lease differs
		before := r.job(siteA, "j")
		r.completeErr(r1, old, store.ErrStaleLease)
		r.takeErr(r1, old, store.ErrStaleLease)
		r.Equal(one(old), r.renew(r1, old))
		r.Empty(r.release(r1, wire.ReleaseShutdown, 0, old))
		r.Equal(one(old), r.accept(r1, old))
		r.tooLate(old, payloadFor(r1, "for the old one"), store.AwaitingPayload)
		r.Empty(r.sealing(siteA, old))
		r.Empty(r.decline(siteA, old))
		r.collect(siteA, old)
		r.Equal(before, r.job(siteA, "j"))
		r.seal(siteA, g, r1)
		r.complete(r1, g)
	}},
	{"an answer lost after the commit: each resend gets the same answer", store.Settings{}, func(r *rig) {
		g := r.running("j")
		r.complete(r1, g)
		for range 5 {
			r.duplicate(r1, g, "result of j")
		}
		r.EqualValues(len("result of j"), r.siteBytes())
		r.Len(r.offerTo(siteA, "s", store.OfferResults), 1)
	}},
	{"a push into a dying session is pushed to another", store.Settings{}, func(r *rig) {
		r.oneOfEach("")
		for i, what := range []store.OfferKind{store.OfferSeals, store.OfferResults, store.OfferNotices} {
			s := "dying-" + itoa(i)
			r.Len(r.offerTo(siteA, s, what), 1)
			r.NoError(r.st.Detach(r.ctx, siteParty, s))
			r.Len(r.offerTo(siteA, "alive", what), 1)
		}
	}},
	{"an offer into a dying session is back in the queue at once", store.Settings{}, func(r *rig) {
		n := r.attach(r1, "dying")
		r.enqueue(siteA, "j")
		r.grant(r1, numbered(n), offered)
		_, err := r.st.Abandon(r.ctx, r1, n)
		r.NoError(err)
		r.Len(r.claim(r2), 1)
	}},
	{"prefetched work never runs past its deadline", store.Settings{}, func(r *rig) {
		r.enqueueN(siteA, "j", 3, r.dueIn(30*time.Second))
		r.Len(r.claim(r1, upTo(9), slots(1)), 1)
		r.jump(30 * time.Second)
		r.Empty(r.claim(r2, upTo(9)))
		r.Len(r.notices(siteA), 3)
	}},
	{"a job that kills its runner is bounded; restarts, drains and declines don't add up", store.Settings{}, func(r *rig) {
		r.enqueue(siteA, "j", r.dueIn(10*time.Hour))
		kills := 0
		for i := range 40 {
			g := r.grant(r1)
			if i%4 == 0 {
				r.decline(siteA, g)
				g = r.grant(r1)
			}
			r.seal(siteA, g, r1)
			switch i % 4 {
			case 0:
				r.resume(r1) // restarted before it had the payload
			case 1:
				r.take(r1, g)
				r.release(r1, wire.ReleaseShutdown, 0, g)
			case 2:
				r.pass(lease) // lapsed before it had the payload
			case 3:
				r.take(r1, g)
				r.resume(r1)
				kills++
			}
			if kills == store.MaxLapses {
				r.noticed("j", store.WhyLapsed)
				return
			}
		}
		r.FailNow("the job comes round for ever")
	}},
	{"no state without a timer: left alone, every job ends with word to its site", store.Settings{}, func(r *rig) {
		for _, l := range lives[1:5] {
			l.make(r, l.name)
			l.make(r, "cancelled "+l.name)
			r.cancel(siteA, "cancelled "+l.name)
		}
		r.enqueue(siteA, "queued")
		r.sealing(siteA, wire.Grant{JobID: "awaiting", LeaseID: r.job(siteA, "awaiting").Lease})
		r.pass(3 * time.Minute)
		r.Len(r.notices(siteA), 4)
		r.jump(time.Hour)
		r.Len(r.notices(siteA), 5)
		r.Zero(r.siteTotal(siteA))
		r.Zero(r.siteBytes())
		r.jump(48 * time.Hour)
		for _, l := range lives[:5] {
			r.jobGone(l.name)
		}
		if !r.f.Gaps.SharedMemory {
			r.Zero(r.stats().Sites, "a site of which nothing is left")
		}
	}},
	{"a crash between any two calls of a life leaves nothing stuck", store.Settings{}, func(r *rig) {
		for n := range 5 {
			id := "j-" + itoa(n)
			g := lives[n].make(r, id)
			r.pass(lease + time.Second)
			j := r.queuedAgain(id)
			r.LessOrEqual(j.Waits+j.Lapses, 1)
			g = r.grant(r2)
			r.Equal(id, g.JobID)
			r.seal(siteA, g, r2)
			r.take(r2, g)
			r.complete(r2, g)
		}
	}},
	{"one tenant's flood doesn't starve another's single job", store.Settings{}, func(r *rig) {
		r.enqueueN(siteA, "flood", 3000)
		r.enqueueN(siteA, "flood-bob", 3000, ownedBy(bob))
		r.enqueue(siteB, "single")
		rs := append(routes(ann, siteA, siteB), routes(bob, siteA)...)
		r.Contains(r.claimIDs(r1, upTo(2), along(rs...)), "single")
	}},
	{"several replicas sweep: each thing is told once", store.Settings{}, func(r *rig) {
		r.running("lapse")
		r.awaiting("window")
		r.enqueue(siteA, "deadline", r.dueIn(lease), ofKind("none"))
		t := r.tap(store.Interest{})
		r.pass(lease - time.Second)
		r.advance(time.Second)
		for range 4 {
			r.sweep()
		}
		n := map[store.Why]int{}
		for _, e := range t.read() {
			if e.Type == store.EventEnded || e.Type == store.EventDropped {
				n[e.Why]++
			}
		}
		r.Equal(map[store.Why]int{store.WhyLapsed: 1, store.WhyWindow: 1, store.WhyDeadline: 1}, n)
	}},
	{"a cancel in every state has one outcome, repeatable", store.Settings{}, func(r *rig) {
		for _, l := range lives {
			g := l.make(r, l.name)
			for range 3 {
				r.Equal([]bool{true}, r.cancel(siteA, l.name))
			}
			if l.held {
				r.Contains(r.cancelRequests(r1), g)
				r.release(r1, wire.ReleaseShutdown, 0, g)
				r.Equal(store.WhyCancelled, r.notices(siteA)[l.name].Why)
			}
		}
		r.Empty(r.cancelRequests(r1))
		r.Empty(r.claim(r2))
	}},
}
