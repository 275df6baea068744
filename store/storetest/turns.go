package storetest

import (
	"strconv"
	"time"

	"pushrelay/store"
	"pushrelay/wire"
)

const siteC = "site-c"

var wide = store.Settings{UnsealedPerRoute: 1000}

var turnClauses = []clause{
	{"turns go round the sites within one claim", wide, func(r *rig) {
		r.enqueueN(siteA, "a", 6)
		r.enqueueN(siteB, "b", 2)
		r.enqueueN(siteC, "c", 4)
		got := r.claimSites(r1, upTo(9), along(routes(ann, siteA, siteB, siteC)...))
		r.ElementsMatch([]string{siteA, siteB, siteC}, got[:3])
		r.ElementsMatch([]string{siteA, siteB, siteC}, got[3:6])
		r.Equal(got[:2][0] == siteB, got[3] == siteB)
		r.NotContains(got[6:], siteB)
		r.NotEqual(got[6], got[7])
	}},
	{"the site served longest ago is next, over claims and runners", wide, func(r *rig) {
		for _, s := range []string{siteA, siteB, siteC} {
			r.enqueueN(s, "j", 5)
		}
		all := along(routes(ann, siteA, siteB, siteC)...)
		r.Equal([]string{siteB}, r.claimSites(r1, along(routes(ann, siteB)...)))
		r.Equal([]string{siteA}, r.claimSites(r2, along(routes(ann, siteA)...)))
		r.Equal([]string{siteC, siteB, siteA}, r.claimSites(r3, all, upTo(3)))
		r.Equal([]string{siteC}, r.claimSites(r1, all))
		r.Equal([]string{siteB}, r.claimSites(r2, all))
		r.Equal([]string{siteA}, r.claimSites(r1, all))
	}},
	{"within a site turns go round its owners", wide, func(r *rig) {
		r.enqueueN(siteA, "ann", 6)
		r.enqueueN(siteA, "bob", 2, ownedBy(bob))
		rs := append(routes(ann, siteA), routes(bob, siteA)...)
		got := r.claimIDs(r1, upTo(5), along(rs...))
		r.ElementsMatch([]string{"ann-0", "bob-0"}, got[:2])
		r.ElementsMatch([]string{"ann-1", "bob-1"}, got[2:4])
		r.Equal(got[0] == "ann-0", got[2] == "ann-1")
		r.Equal("ann-2", got[4])
	}},
	{"an owner's many don't take the turn of another site", wide, func(r *rig) {
		for i := range 5 {
			r.enqueueN(siteA, "o"+strconv.Itoa(i), 3, ownedBy("owner-"+strconv.Itoa(i)))
		}
		r.enqueueN(siteB, "b", 5)
		rs := routes(ann, siteB)
		for i := range 5 {
			rs = append(rs, store.Route{Site: siteA, Owner: "owner-" + strconv.Itoa(i)})
		}
		got := r.claimSites(r1, upTo(10), along(rs...))
		n := map[string]int{}
		for _, s := range got {
			n[s]++
		}
		r.Equal(map[string]int{siteA: 5, siteB: 5}, n)
	}},
	{"oldest first within an owner, whatever the kind and audience", wide, func(r *rig) {
		r.enqueue(siteA, "1")
		r.enqueue(siteA, "2", ofKind(gen))
		r.enqueue(siteA, "3", audience("self"))
		r.enqueue(siteA, "4", ofKind(gen), audience("self"))
		r.enqueue(siteA, "5")
		r.Equal([]string{"1", "2", "3", "4", "5"}, r.claimIDs(r1, upTo(9)))
	}},
	{"a long queue keeps its order through give-backs in any order", wide, func(r *rig) {
		const n = 400
		r.enqueueN(siteA, "j", n)
		got := r.claim(r1, upTo(n), slots(n))
		r.Len(got, n)
		for i := range n {
			r.release(r1, wire.ReleaseShutdown, 0, grantOf(got[(i*171+13)%n]))
		}
		for i, id := range r.claimIDs(r1, upTo(n), slots(n)) {
			r.Equal("j-"+strconv.Itoa(i), id)
		}
	}},
	{"a site that could not be served keeps its turn", store.Settings{UnsealedPerRoute: 1}, func(r *rig) {
		for _, s := range []string{siteA, siteB} {
			r.enqueueN(s, "j", 9)
		}
		a := r.grant(r1, along(routes(ann, siteA)...))
		b := r.grant(r1, along(routes(ann, siteB)...))
		r.seal(siteB, b, r1)
		r.Equal([]string{siteB}, r.claimSites(r1)) // siteA is full
		r.seal(siteA, a, r1)
		r.Equal([]string{siteA}, r.claimSites(r1, upTo(5)))
	}},
	{"an empty claim spends nobody's turn", wide, func(r *rig) {
		r.enqueueN(siteA, "j", 4)
		r.enqueueN(siteB, "j", 4)
		first := r.claimSites(r1)[0]
		r.Empty(r.claim(r1, kinds("none")))
		r.Empty(r.claim(r1, slots(0)))
		r.NotEqual(first, r.claimSites(r1)[0])
	}},
	{"a site that comes back later isn't ahead for ever", wide, func(r *rig) {
		r.enqueueN(siteA, "a", 20)
		r.Len(r.claim(r1, upTo(10)), 10)
		r.enqueueN(siteB, "b", 20)
		got := r.claimSites(r1, upTo(6))
		n := map[string]int{}
		for _, s := range got {
			n[s]++
		}
		r.Equal(map[string]int{siteA: 3, siteB: 3}, n)
	}},
}

// claimSites claims and answers the sites in the order of the grants.
func (r *rig) claimSites(runner string, change ...func(*store.Claim)) []string {
	r.t.Helper()
	out := []string{}
	for _, c := range r.claim(runner, change...) {
		out = append(out, c.Site)
	}
	return out
}

var skipClauses = []clause{
	{"16 refusals in a row of a queue silence it for the runner", wide, func(r *rig) {
		r.refuse(store.RefusalStreak-1, "a")
		r.enqueue(siteA, "last")
		g := r.grant(r1)
		r.release(r1, wire.ReleaseRefused, 0, g)
		r.enqueue(siteA, "fresh")
		r.Empty(r.claim(r1))
		r.Equal([]string{"a-0"}, r.claimIDs(r2))
	}},
	{"15 refusals don't", wide, func(r *rig) {
		r.refuse(store.RefusalStreak-1, "a")
		r.enqueue(siteA, "fresh")
		r.Equal([]string{"fresh"}, r.claimIDs(r1))
	}},
	{"only that queue: other kinds, audiences, owners, sites and dialects go on", wide, func(r *rig) {
		r.refuse(store.RefusalStreak, "a")
		r.enqueue(siteA, "fresh")
		r.enqueue(siteA, "kind", ofKind(gen))
		r.enqueue(siteA, "self", audience("self"))
		r.enqueue(siteA, "bobs", ownedBy(bob))
		r.enqueue(siteB, "site")
		_, err := r.st.Enqueue(r.ctx, siteA, wire.Dialect2, []wire.Stub{r.stub("two", audience("team"))})
		r.NoError(err)
		rs := append(routes(ann, siteA, siteB), routes(bob, siteA)...)
		r.ElementsMatch([]string{"kind", "self", "bobs", "site"}, r.claimIDs(r1, upTo(9), along(rs...)))
		r.Equal([]string{"two"}, r.claimIDs(r1, upTo(9), speaking(wire.Dialect2)))
	}},
	{"it lasts ten minutes, then doubles with each further streak", wide, func(r *rig) {
		long := r.dueIn(100 * time.Hour)
		wait := store.RefusalWait
		for i := range 3 {
			r.refuse(store.RefusalStreak, "s"+strconv.Itoa(i), long)
			r.enqueue(siteA, "probe"+strconv.Itoa(i), long)
			r.jump(wait - time.Millisecond)
			r.Empty(r.claim(r1), "streak %d", i)
			r.jump(time.Millisecond)
			g := r.grant(r1)
			r.release(r1, wire.ReleaseShutdown, 0, g)
			r.cancel(siteA, g.JobID)
			wait *= 2
		}
	}},
	{"it never lasts longer than a day", wide, func(r *rig) {
		long := r.dueIn(160 * time.Hour)
		for i := range 9 { // 10 min doubled eight times is over a day
			r.refuse(store.RefusalStreak, "s"+strconv.Itoa(i), long)
			if i < 8 {
				r.jump(min(24*time.Hour, store.RefusalWait<<i))
			}
			long = r.dueIn(160 * time.Hour)
		}
		r.jump(24*time.Hour - time.Second)
		r.enqueue(siteA, "probe", long)
		r.Empty(r.claim(r1))
		r.jump(time.Second)
		r.Len(r.claim(r1), 1)
	}},
	{"a result in between starts the row anew", wide, func(r *rig) {
		r.refuse(store.RefusalStreak-1, "a")
		r.done("good")
		r.refuse(store.RefusalStreak-1, "b")
		r.enqueue(siteA, "fresh")
		r.Equal([]string{"fresh"}, r.claimIDs(r1))
	}},
	{"give-backs of other kinds are no refusals", wide, func(r *rig) {
		r.enqueue(siteA, "j")
		for range 3 * store.RefusalStreak {
			r.release(r1, wire.ReleaseShutdown, 0, r.grant(r1))
		}
		r.Len(r.claim(r1), 1)
	}},
	{"refusals outlive every other turn of the job", wide, func(r *rig) {
		g := r.awaiting("j")
		r.release(r1, wire.ReleaseRefused, 0, g)
		for range 2 {
			g = r.grant(r2)
			r.seal(siteA, g, r2)
			r.take(r2, g)
			r.Empty(r.release(r1, wire.ReleaseShutdown, 0, g))
			r.release(r2, wire.ReleaseShutdown, 0, g)
			r.Empty(r.claim(r1))
		}
	}},
}

// refuse lets r1 claim and refuse n new jobs of siteA, one after another.
func (r *rig) refuse(n int, prefix string, change ...func(*wire.Stub)) {
	r.t.Helper()
	r.enqueueN(siteA, prefix, n, change...)
	for i := range n {
		g := r.grant(r1, along(routes(ann, siteA)...))
		r.Equal(prefix+"-"+strconv.Itoa(i), g.JobID)
		r.Len(r.release(r1, wire.ReleaseRefused, 0, g), 1)
	}
}
