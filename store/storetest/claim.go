package storetest

import (
	"strconv"
	"time"

	"pushrelay/store"
	"pushrelay/wire"
)

var claimClauses = []clause{
	{"a grant is a fresh UUID with the stub as it came", store.Settings{}, func(r *rig) {
		r.enqueueN(siteA, "j", 3)
		seen := map[string]bool{}
		for _, c := range r.claim(r1, upTo(3)) {
			r.Equal(siteA, c.Site)
			r.Equal(r.stub(c.Stub.ID).Raw, c.Stub.Raw)
			r.Regexp(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, c.Lease)
			seen[c.Lease] = true
			j := r.job(siteA, c.Stub.ID)
			r.Equal(c.Lease, j.Lease)
			r.Equal(r1, j.Runner)
			r.Equal(ann, j.RunnerOwner)
			r.Equal(device(r1), j.Device)
			r.True(c.ExpiresAt.Equal(j.LeaseEnds))
		}
		r.Len(seen, 3)
	}},
	{"the lease ends at now + leaseFor", store.Settings{}, func(r *rig) {
		r.enqueue(siteA, "j")
		before := r.now()
		got := r.claim(r1, leased(7*time.Second))
		r.WithinRange(got[0].ExpiresAt, before.Add(7*time.Second), r.now().Add(7*time.Second))
	}},
	{"offered shows as awaiting-payload, without a window", store.Settings{}, func(r *rig) {
		r.offeredTo("j")
		j := r.job(siteA, "j")
		r.Equal(store.AwaitingPayload, j.State)
		r.True(j.Offered)
		r.True(j.WindowEnds.IsZero())
	}},
	{"without an offer time it is accepted at once, with a window", store.Settings{PayloadWindow: 3 * time.Second}, func(r *rig) {
		before := r.now()
		r.awaiting("j")
		j := r.job(siteA, "j")
		r.False(j.Offered)
		r.WithinRange(j.WindowEnds, before.Add(3*time.Second), r.now().Add(3*time.Second))
	}},
	{"one grant a job", store.Settings{}, func(r *rig) {
		r.enqueue(siteA, "j")
		r.grant(r1)
		r.Empty(r.claim(r2))
		r.Empty(r.claim(r1))
	}},
	{"at most max", store.Settings{UnsealedPerRoute: 100}, func(r *rig) {
		r.enqueueN(siteA, "j", 5)
		r.Len(r.claim(r1, upTo(2)), 2)
		r.Len(r.claim(r1, upTo(0)), 0)
		r.Len(r.claim(r1, upTo(10)), 3)
	}},
	{"never beyond slots, counted inside", store.Settings{UnsealedPerRoute: 100}, func(r *rig) {
		r.enqueueN(siteA, "j", 8)
		first := r.claim(r1, upTo(8), slots(3), offered)
		r.Len(first, 3)
		r.Empty(r.claim(r1, upTo(8), slots(3)))
		r.Len(r.claim(r1, upTo(8), slots(4)), 1)
		r.Empty(r.claim(r1, upTo(8), slots(2)))
		r.accept(r1, grantOf(first[0]))
		r.Empty(r.claim(r1, slots(4)))
		r.complete(r1, grantOf(first[0]))
		r.Len(r.claim(r1, upTo(8), slots(4)), 1)
		r.release(r1, wire.ReleaseShutdown, time.Hour, grantOf(first[1]))
		r.Len(r.claim(r1, upTo(8), slots(4)), 1)
		r.Len(r.claim(r2, upTo(8), slots(1)), 1)
	}},
	{"only along the routes, which are pairs and no product", store.Settings{}, func(r *rig) {
		r.enqueue(siteA, "a-ann")
		r.enqueue(siteA, "a-bob", ownedBy(bob))
		r.enqueue(siteB, "b-ann")
		r.enqueue(siteB, "b-bob", ownedBy(bob))
		got := r.claimIDs(r1, upTo(9), along(store.Route{Site: siteA, Owner: ann}, store.Route{Site: siteB, Owner: bob}))
		r.ElementsMatch([]string{"a-ann", "b-bob"}, got)
		r.Empty(r.claim(r1, upTo(9), along()))
		r.Empty(r.claim(r1, upTo(9), along(routes("nobody", siteA, siteB)...)))
	}},
	{"a route named twice is one route", store.Settings{UnsealedPerRoute: 1}, func(r *rig) {
		r.enqueueN(siteA, "j", 3)
		r.Len(r.claim(r1, upTo(3), along(routes(ann, siteA, siteA, siteA)...)), 1)
	}},
	{"only of the kinds named", store.Settings{}, func(r *rig) {
		r.enqueue(siteA, "chat")
		r.enqueue(siteA, "gen", ofKind(gen))
		r.enqueue(siteA, "new", ofKind("audio.dub"))
		r.Equal([]string{"gen"}, r.claimIDs(r1, upTo(9), kinds(gen, "other")))
		r.Empty(r.claim(r1, upTo(9), kinds()))
		r.Equal([]string{"new"}, r.claimIDs(r1, upTo(9), kinds("audio.dub")))
	}},
	{"only of the device's dialect", store.Settings{}, func(r *rig) {
		r.enqueue(siteA, "zero")
		_, err := r.st.Enqueue(r.ctx, siteA, wire.Dialect2, []wire.Stub{r.stub("two", audience("team"))})
		r.NoError(err)
		r.Equal([]string{"two"}, r.claimIDs(r1, upTo(9), speaking(wire.Dialect2)))
		r.Equal([]string{"zero"}, r.claimIDs(r1, upTo(9)))
		r.Equal(wire.Dialect2, r.job(siteA, "two").Dialect)
	}},
	{"audience self and private go only to their owner's devices", wide, func(r *rig) {
		for _, a := range []string{"self", "named", "public"} {
			r.enqueue(siteA, a, audience(a))
		}
		_, err := r.st.Enqueue(r.ctx, siteA, wire.Dialect2, []wire.Stub{
			r.stub("private", audience("private")), r.stub("team", audience("team")),
		})
		r.NoError(err)
		two := speaking(wire.Dialect2)
		r.Equal([]string{"named", "public"}, r.claimIDs(r2, upTo(9), owner(bob)))
		r.Equal([]string{"team"}, r.claimIDs(r2, upTo(9), owner(bob), two))
		r.Equal([]string{"self"}, r.claimIDs(r1, upTo(9)))
		r.Equal([]string{"private"}, r.claimIDs(r1, upTo(9), two))
	}},
	{"nothing that this runner refused, others get it", store.Settings{}, func(r *rig) {
		g := r.awaiting("j")
		r.release(r1, wire.ReleaseRefused, 0, g)
		r.Empty(r.claim(r1))
		r.Len(r.claim(r2), 1)
	}},
	{"nothing that this runner must wait for, others get it", store.Settings{}, func(r *rig) {
		g := r.awaiting("j")
		r.release(r1, wire.ReleaseBackendDown, time.Hour, g)
		r.Empty(r.claim(r1))
		r.Len(r.claim(r2), 1)
	}},
	{"a wait ends on time", store.Settings{}, func(r *rig) {
		g := r.awaiting("j")
		r.release(r1, wire.ReleasePause, 30*time.Second, g)
		r.pass(30*time.Second - time.Millisecond)
		r.Empty(r.claim(r1))
		r.pass(time.Millisecond)
		r.Len(r.claim(r1), 1)
	}},
	{"a cancelled job is claimed by nobody", store.Settings{}, func(r *rig) {
		r.enqueue(siteA, "j")
		r.cancel(siteA, "j")
		r.Empty(r.claim(r1))
		g := r.awaiting("k")
		r.cancel(siteA, "k")
		r.release(r1, wire.ReleaseShutdown, 0, g)
		r.Empty(r.claim(r2))
	}},
	{"a route with UnsealedPerRoute grants waiting is left alone", store.Settings{}, func(r *rig) {
		r.enqueueN(siteA, "j", 9)
		r.enqueueN(siteA, "k", 9, ownedBy(bob))
		r.enqueueN(siteB, "l", 9)
		first := r.claim(r1, upTo(9), along(routes(ann, siteA)...))
		r.Len(first, 4)
		r.Empty(r.claim(r2, upTo(9), along(routes(ann, siteA)...)))
		r.Len(r.claim(r1, upTo(9), along(routes(bob, siteA)...)), 4)
		r.Len(r.claim(r1, upTo(9)), 4) // the other site's
		r.seal(siteA, grantOf(first[0]), r1)
		r.Len(r.claim(r2, upTo(9), along(routes(ann, siteA)...)), 1)
	}},
	{"offered grants count for UnsealedPerRoute, cancelled ones don't", store.Settings{UnsealedPerRoute: 2}, func(r *rig) {
		r.enqueueN(siteA, "j", 5)
		first := r.claim(r1, upTo(5), offered)
		r.Len(first, 2)
		r.Empty(r.claim(r2))
		r.cancel(siteA, first[0].Stub.ID)
		r.Len(r.claim(r2, upTo(5)), 1)
		r.release(r1, wire.ReleaseShutdown, 0, grantOf(first[0]))
		r.Empty(r.claim(r2, upTo(5)))
		r.release(r1, wire.ReleaseShutdown, time.Hour, grantOf(first[1]))
		r.Len(r.claim(r2, upTo(5)), 1)
	}},
	{"every way out of waiting makes room on the route", store.Settings{UnsealedPerRoute: 1}, func(r *rig) {
		r.enqueueN(siteA, "j", 20)
		g := r.grant(r1)
		r.complete(r1, g)
		g = r.grant(r1)
		r.Empty(r.claim(r2))
		_, err := r.st.Decline(r.ctx, siteA, one(g))
		r.NoError(err)
		g = r.grant(r1)
		r.Empty(r.claim(r2))
		r.seal(siteA, g, r1)
		r.release(r1, wire.ReleaseShutdown, 0, g)
		r.grant(r1)
		r.Empty(r.claim(r2))
	}},
	{"over its bytes nothing more of a site is claimed", store.Settings{BytesPerSite: 100}, func(r *rig) {
		big := make([]byte, 101)
		r.enqueue(siteA, "x")
		g := r.awaiting2("j")
		r.enqueue(siteB, "other")
		_, err := r.st.Seal(r.ctx, siteA, g, wire.Envelope{RecipientKeyID: device(r1), Raw: big})
		r.NoError(err)
		r.Equal([]string{"other"}, r.claimIDs(r2, upTo(9)))
		_, err = r.st.Complete(r.ctx, r1, g, wire.Envelope{Raw: append(big, big...)}, wire.DispositionOK)
		r.NoError(err, "a result is never refused for it")
		r.Empty(r.claim(r2, upTo(9)))
		r.collect(siteA, g)
		r.Len(r.claim(r2, upTo(9)), 1)
	}},
	{"at its bytes a site is still served", store.Settings{BytesPerSite: 100}, func(r *rig) {
		g := r.awaiting("j")
		_, err := r.st.Seal(r.ctx, siteA, g, wire.Envelope{RecipientKeyID: device(r1), Raw: make([]byte, 100)})
		r.NoError(err)
		r.enqueue(siteA, "x")
		r.Len(r.claim(r2), 1)
	}},
	{"only the newest session claims", store.Settings{}, func(r *rig) {
		r.enqueueN(siteA, "j", 4)
		old := r.attach(r1, "s1")
		r.Len(r.claim(r1, numbered(old)), 1)
		newest := r.attach(r1, "s2")
		r.attach(r2, "other")
		_, err := r.st.Claim(r.ctx, ask(r1, numbered(old)))
		r.errIs(err, store.ErrSuperseded)
		_, err = r.st.Claim(r.ctx, ask(r1, numbered(newest+1000)))
		r.errIs(err, store.ErrSuperseded)
		r.Len(r.claim(r1, numbered(newest)), 1)
		r.Len(r.claim(r1), 1) // a poll has no number
	}},
	{"a session that ended claims no more, nor does its elder", store.Settings{}, func(r *rig) {
		r.enqueueN(siteA, "j", 2)
		old, newest := r.attach(r1, "s1"), r.attach(r1, "s2")
		r.NoError(r.st.Detach(r.ctx, store.Party{Role: store.RunnerRole, ID: r1}, "s2"))
		for _, n := range []uint64{old, newest} {
			_, err := r.st.Claim(r.ctx, ask(r1, numbered(n)))
			r.errIs(err, store.ErrSuperseded)
		}
		r.Len(r.claim(r1), 1)
	}},
	{"fires what is due, so that a dead holder's job is had", store.Settings{}, func(r *rig) {
		r.offeredTo("j")
		r.advance(offer)
		r.Equal([]string{"j"}, r.claimIDs(r2))
	}},
	{"never grants a job past its deadline, however much is due", store.Settings{}, func(r *rig) {
		r.enqueueN(siteA, "j", 300, r.dueIn(time.Second))
		r.advance(time.Second)
		r.Empty(r.claim(r1, upTo(9)))
		r.Empty(r.claim(r1, upTo(9)))
		r.sweep()
		r.Len(r.notices(siteA), 300)
	}},
	{"a job that went back keeps its place", store.Settings{}, func(r *rig) {
		r.enqueueN(siteA, "j", 3)
		g := r.grant(r1)
		r.Equal("j-0", g.JobID)
		r.release(r1, wire.ReleaseShutdown, 0, g)
		r.Equal([]string{"j-0", "j-1", "j-2"}, r.claimIDs(r2, upTo(3)))
	}},
	{"a site with a great backlog costs others nothing", store.Settings{UnsealedPerRoute: 1000}, func(r *rig) {
		r.enqueueN(siteA, "flood", 2000)
		r.enqueue(siteB, "single")
		r.Contains(r.claimIDs(r1, upTo(2)), "single")
	}},
	{"256 passed over and the next one granted", store.Settings{UnsealedPerRoute: 1000}, func(r *rig) {
		r.enqueueN(siteA, "j", store.MaxSkipped+1)
		gs := []wire.Grant{}
		for _, c := range r.claim(r1, upTo(store.MaxSkipped), slots(1000)) {
			gs = append(gs, grantOf(c))
		}
		r.Len(r.release(r1, wire.ReleasePause, time.Hour, gs...), store.MaxSkipped)
		r.Equal([]string{"j-" + strconv.Itoa(store.MaxSkipped)}, r.claimIDs(r1))
	}},
}

// awaiting2 is awaiting for a case in which an older job waits too: it's claimed by its kind.
func (r *rig) awaiting2(id string) wire.Grant {
	r.t.Helper()
	r.enqueue(siteA, id, ofKind(gen))
	return r.grant(r1, kinds(gen))
}
