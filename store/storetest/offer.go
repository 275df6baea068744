package storetest

import (
	"time"

	"pushrelay/store"
	"pushrelay/wire"
)

const span = 10 * time.Second

var offerClauses = []clause{
	{"seals: what a device accepted, with all a site must know", store.Settings{}, func(r *rig) {
		g := r.awaiting("j")
		j := r.job(siteA, "j")
		got := r.offerTo(siteA, "s", store.OfferSeals)
		r.Len(got, 1)
		o := got[0]
		r.WithinRange(o.OfferEnds, r.now().Add(span-time.Minute), r.now().Add(span))
		o.OfferEnds = time.Time{}
		r.Equal(store.Offered{
			Grant: g, Owner: ann, Runner: r1, RunnerOwner: ann, Device: device(r1), Identity: identity(r1), Attempt: 1,
			WindowEnds: j.WindowEnds, LeaseEnds: j.LeaseEnds,
		}, o)
	}},
	{"results: what is done and uncollected", store.Settings{}, func(r *rig) {
		r.enqueue(siteA, "j")
		g := r.grant(r2, owner(bob))
		_, err := r.st.Complete(r.ctx, r2, g, resultFrom(r2, "12345"), wire.DispositionError)
		r.NoError(err)
		got := r.offerTo(siteA, "s", store.OfferResults)
		r.Len(got, 1)
		o := got[0]
		r.Equal(g, o.Grant)
		r.Equal([]string{ann, r2, bob, device(r2)}, []string{o.Owner, o.Runner, o.RunnerOwner, o.Device})
		r.Equal(wire.DispositionError, o.Disposition)
		r.EqualValues(5, o.Bytes)
		r.Equal(1, o.Attempt)
	}},
	{"a result keeps its device's identity as it was at the claim, until it is collected", store.Settings{}, func(r *rig) {
		old, now := identity(r1), identity(r1)
		now.Encryption = "another"
		r.enqueue(siteA, "old")
		g := r.grant(r1)
		r.enqueue(siteA, "new")
		r.grant(r1, func(c *store.Claim) { c.Identity = now })
		r.complete(r1, g)
		r.complete(r1, wire.Grant{JobID: "new", LeaseID: r.job(siteA, "new").Lease})
		for _, o := range r.offerTo(siteA, "s", store.OfferResults) {
			want := map[string]wire.PublicIdentity{"old": old, "new": now}[o.Grant.JobID]
			r.Equal(want, o.Identity)
			r.Equal(want, r.job(siteA, o.Grant.JobID).Identity)
		}
		r.collect(siteA, g)
		r.Zero(r.job(siteA, "old").Identity)
		r.enqueue(siteA, "queued")
		r.release(r1, wire.ReleaseShutdown, 0, r.grant(r1))
		r.Zero(r.job(siteA, "queued").Identity)
	}},
	{"notices: a fresh id each, why and whose", store.Settings{}, func(r *rig) {
		r.enqueueN(siteA, "j", 2)
		r.cancel(siteA, "j-0", "j-1")
		got := r.offerTo(siteA, "s", store.OfferNotices)
		r.Equal([]string{"j-0", "j-1"}, offeredIDs(got))
		for _, o := range got {
			r.NotEmpty(o.Grant.LeaseID)
			r.Equal(store.WhyCancelled, o.Why)
			r.Equal(ann, o.Owner)
		}
		r.NotEqual(got[0].Grant.LeaseID, got[1].Grant.LeaseID)
	}},
	{"each kind apart, each site apart", store.Settings{}, func(r *rig) {
		r.oneOfEach("")
		r.Empty(r.offerTo(siteB, "s", store.OfferSeals))
		r.Empty(r.offerTo(siteB, "s", store.OfferResults))
		r.Empty(r.offerTo(siteB, "s", store.OfferNotices))
		r.Equal([]string{"seal"}, offeredIDs(r.offerTo(siteA, "s", store.OfferSeals)))
		r.Equal([]string{"result"}, offeredIDs(r.offerTo(siteA, "s", store.OfferResults)))
		r.Equal([]string{"notice"}, offeredIDs(r.offerTo(siteA, "s", store.OfferNotices)))
	}},
	{"nothing offered, ready or running awaits a seal", store.Settings{}, func(r *rig) {
		r.offeredTo("offered")
		r.ready("ready")
		r.running("running")
		r.Empty(r.offerTo(siteA, "s", store.OfferSeals))
		r.Empty(r.offerTo(siteA, "s", store.OfferResults))
	}},
	{"one session has it: nobody else gets it meanwhile", store.Settings{}, func(r *rig) {
		r.oneOfEach("")
		for _, what := range []store.OfferKind{store.OfferSeals, store.OfferResults, store.OfferNotices} {
			r.Len(r.offerTo(siteA, "s1", what), 1)
			r.Empty(r.offerTo(siteA, "s2", what))
			r.Empty(r.offerTo(siteA, "s1", what))
		}
	}},
	{"unanswered, it goes to another when its time is over", store.Settings{PayloadWindow: time.Minute}, func(r *rig) {
		r.oneOfEach("")
		for _, what := range []store.OfferKind{store.OfferSeals, store.OfferResults, store.OfferNotices} {
			first := r.offerTo(siteA, "s1", what)
			r.pass(span - time.Millisecond)
			r.Empty(r.offerTo(siteA, "s2", what))
			r.pass(time.Millisecond)
			got := r.offerTo(siteA, "s2", what)
			r.Len(got, 1)
			r.Equal(2, got[0].Attempt)
			r.Equal(first[0].Grant, got[0].Grant)
		}
	}},
	{"results and notices: the time doubles, to five minutes; seals: not", store.Settings{PayloadWindow: time.Hour}, func(r *rig) {
		r.oneOfEach("")
		for _, what := range []store.OfferKind{store.OfferResults, store.OfferNotices, store.OfferSeals} {
			wait := span
			for i := range 8 {
				got := r.offerTo(siteA, "s", what)
				r.Len(got, 1)
				r.Equal(i+1, got[0].Attempt)
				r.Equal(r.now().Add(wait), got[0].OfferEnds)
				r.pass(wait - time.Millisecond)
				r.Empty(r.offerTo(siteA, "s", what))
				r.pass(time.Millisecond)
				if what != store.OfferSeals {
					wait = min(2*wait, store.MaxOffer)
				}
			}
		}
	}},
	{"a session's end puts its offers back at once", store.Settings{}, func(r *rig) {
		r.oneOfEach("")
		for _, what := range []store.OfferKind{store.OfferSeals, store.OfferResults, store.OfferNotices} {
			r.Len(r.offerTo(siteA, "s1", what), 1)
		}
		r.attachSite(siteA, "s2")
		r.NoError(r.st.Detach(r.ctx, store.Party{Role: store.SiteRole, ID: siteA}, "s2"))
		r.Empty(r.offerTo(siteA, "s3", store.OfferSeals))
		r.NoError(r.st.Detach(r.ctx, store.Party{Role: store.SiteRole, ID: siteB}, "s1"))
		r.Empty(r.offerTo(siteA, "s3", store.OfferSeals))
		r.NoError(r.st.Detach(r.ctx, store.Party{Role: store.SiteRole, ID: siteA}, "s1"))
		for _, what := range []store.OfferKind{store.OfferSeals, store.OfferResults, store.OfferNotices} {
			got := r.offerTo(siteA, "s3", what)
			r.Len(got, 1)
			r.Equal(2, got[0].Attempt)
		}
	}},
	{"a session that ends by time puts its offers back as well", store.Settings{}, func(r *rig) {
		r.done("j")
		_, err := r.st.Attach(r.ctx, store.Party{Role: store.SiteRole, ID: siteA}, "s1", 6*time.Second)
		r.NoError(err)
		got, err := r.st.Offer(r.ctx, siteA, "s1", store.OfferResults, 9, 1<<20, time.Minute)
		r.NoError(err)
		r.Len(got, 1)
		r.pass(6 * time.Second)
		r.Len(r.offerTo(siteA, "s2", store.OfferResults), 1)
	}},
	{"at most max entries open for a session", store.Settings{}, func(r *rig) {
		gs := r.manyDone(5, "12345")
		r.Equal([]string{"j-0", "j-1"}, r.offerMax("s1", 2, 1<<20))
		r.Empty(r.offerMax("s1", 2, 1<<20))
		r.Equal([]string{"j-2"}, r.offerMax("s1", 3, 1<<20))
		r.Equal([]string{"j-3"}, r.offerMax("s2", 1, 1<<20))
		r.collect(siteA, gs[0])
		r.Equal([]string{"j-4"}, r.offerMax("s1", 3, 1<<20))
		r.Empty(r.offerMax("s1", 0, 1<<20))
	}},
	{"at most so many bytes open for a session, but one always fits", store.Settings{}, func(r *rig) {
		gs := r.manyDone(4, "0123456789")
		r.Equal([]string{"j-0", "j-1"}, r.offerMax("s1", 9, 20))
		r.Empty(r.offerMax("s1", 9, 29))
		r.Equal([]string{"j-2"}, r.offerMax("s2", 9, 1))
		r.Empty(r.offerMax("s2", 9, 1))
		r.collect(siteA, gs[0])
		r.Empty(r.offerMax("s1", 9, 19))
		r.Equal([]string{"j-3"}, r.offerMax("s1", 9, 20))
	}},
	{"unanswered ones leave the window when their offer ends", store.Settings{}, func(r *rig) {
		r.manyDone(3, "x")
		r.Equal([]string{"j-0"}, r.offerMax("s1", 1, 1<<20))
		r.pass(span)
		r.Equal([]string{"j-1"}, r.offerMax("s1", 1, 1<<20))
		r.pass(span)
		r.Equal([]string{"j-2"}, r.offerMax("s1", 1, 1<<20))
	}},
	{"never offered goes before offered again, each oldest first", store.Settings{}, func(r *rig) {
		r.manyDone(3, "x")
		r.Equal([]string{"j-0", "j-1", "j-2"}, r.offerMax("s1", 9, 1<<20))
		r.pass(span)
		g := r.done("new")
		r.Equal([]string{"new", "j-0"}, r.offerMax("s2", 2, 1<<20))
		r.Equal([]string{"j-1", "j-2"}, r.offerMax("s3", 2, 1<<20))
		r.collect(siteA, g)
	}},
	{"a seal answers its offer", store.Settings{}, func(r *rig) {
		g := r.awaiting("j")
		h := r.awaiting("k")
		r.Len(r.offerTo(siteA, "s", store.OfferSeals), 2)
		r.seal(siteA, g, r1)
		r.decline(siteA, h)
		r.NoError(r.st.Detach(r.ctx, store.Party{Role: store.SiteRole, ID: siteA}, "s"))
		r.Empty(r.offerTo(siteA, "s2", store.OfferSeals))
	}},
	{"an answered offer makes room in the window", store.Settings{}, func(r *rig) {
		g, h, i := r.awaiting("g"), r.awaiting("h"), r.awaiting("i")
		max1 := func() []string {
			got, err := r.st.Offer(r.ctx, siteA, "s", store.OfferSeals, 1, 1<<20, time.Minute)
			r.NoError(err)
			return offeredIDs(got)
		}
		r.attachSite(siteA, "s")
		r.Equal([]string{"g"}, max1())
		r.Empty(max1())
		r.seal(siteA, g, r1)
		r.Equal([]string{"h"}, max1())
		r.decline(siteA, h)
		r.Equal([]string{"i"}, max1())
		r.sealing(siteA, i)
		r.accept(r1, r.grant(r1))
		r.Equal([]string{"h"}, max1())
		r.cancel(siteA, "h")
		r.awaiting("k")
		r.Equal([]string{"k"}, max1())
	}},
	{"a sealing keeps it with its session until the window ends", store.Settings{}, func(r *rig) {
		g := r.awaiting("j")
		r.Len(r.offerTo(siteA, "s1", store.OfferSeals), 1)
		r.sealing(siteA, g)
		r.pass(5 * span)
		r.Empty(r.offerTo(siteA, "s2", store.OfferSeals))
		r.NoError(r.st.Detach(r.ctx, store.Party{Role: store.SiteRole, ID: siteA}, "s1"))
		got := r.offerTo(siteA, "s2", store.OfferSeals)
		r.Len(got, 1)
		r.Equal(r.job(siteA, "j").WindowEnds, got[0].WindowEnds)
	}},
	{"a grant that ended is off the list, the next one is new", store.Settings{}, func(r *rig) {
		g := r.awaiting("j")
		r.Len(r.offerTo(siteA, "s", store.OfferSeals), 1)
		r.release(r1, wire.ReleaseShutdown, 0, g)
		r.Empty(r.offerTo(siteA, "s2", store.OfferSeals))
		h := r.grant(r1)
		got := r.offerTo(siteA, "s2", store.OfferSeals)
		r.Len(got, 1)
		r.Equal(h, got[0].Grant)
		r.Equal(1, got[0].Attempt)
	}},
	{"a job finished unsealed moves from seals to results", store.Settings{}, func(r *rig) {
		g := r.awaiting("j")
		r.Len(r.offerTo(siteA, "s", store.OfferSeals), 1)
		r.complete(r1, g)
		got := r.offerTo(siteA, "s", store.OfferResults)
		r.Len(got, 1)
		r.Equal(1, got[0].Attempt)
		r.Empty(r.offerTo(siteA, "s2", store.OfferSeals))
	}},
	{"a result is offered again until its retention ends", store.Settings{ResultRetention: time.Hour}, func(r *rig) {
		r.done("j")
		for n := 0; ; n++ {
			r.jump(store.MaxOffer)
			if _, err := r.st.Job(r.ctx, siteA, "j"); err != nil {
				r.Equal(11, n)
				return
			}
			r.Len(r.offerTo(siteA, "s", store.OfferResults), 1)
		}
	}},
}

// oneOfEach leaves siteA with one entry of each kind: seal, result and notice.
func (r *rig) oneOfEach(prefix string) {
	r.t.Helper()
	r.done(prefix + "result")
	r.enqueue(siteA, prefix+"notice")
	r.cancel(siteA, prefix+"notice")
	r.awaiting(prefix + "seal")
}

// manyDone finishes n jobs of siteA, j-0 first, each with this result.
func (r *rig) manyDone(n int, result string) []wire.Grant {
	r.t.Helper()
	r.enqueueN(siteA, "j", n)
	out := []wire.Grant{}
	for range n {
		g := r.grant(r1)
		_, err := r.st.Complete(r.ctx, r1, g, resultFrom(r1, result), wire.DispositionOK)
		r.NoError(err)
		if !r.f.Gaps.NoClock {
			r.advance(time.Millisecond)
		}
		out = append(out, g)
	}
	return out
}

// offerTo takes all of a kind for a session, for span.
func (r *rig) offerTo(site, session string, what store.OfferKind) []store.Offered {
	r.t.Helper()
	r.attachSite(site, session)
	got, err := r.st.Offer(r.ctx, site, session, what, 1000, 1<<40, span)
	r.NoError(err)
	return got
}

// offerMax takes results of siteA for a session within a window.
func (r *rig) offerMax(session string, n int, bytes int64) []string {
	r.t.Helper()
	r.attachSite(siteA, session)
	got, err := r.st.Offer(r.ctx, siteA, session, store.OfferResults, n, bytes, span)
	r.NoError(err)
	return offeredIDs(got)
}

func offeredIDs(os []store.Offered) []string {
	out := []string{}
	for _, o := range os {
		out = append(out, o.Grant.JobID)
	}
	return out
}
