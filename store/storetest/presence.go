package storetest

import (
	"math/rand/v2"
	"time"

	"pushrelay/store"
	"pushrelay/wire"
)

var (
	runnerParty = store.Party{Role: store.RunnerRole, ID: r1}
	siteParty   = store.Party{Role: store.SiteRole, ID: siteA}
)

var presenceClauses = []clause{
	{"a new session's number is above all that the party had", store.Settings{}, func(r *rig) {
		var last uint64
		for _, s := range []string{"a", "b", "c"} {
			n := r.attach(r1, s)
			r.Greater(n, last)
			last = n
			r.NoError(r.st.Detach(r.ctx, runnerParty, s))
		}
		n := r.attach(r1, "a")
		r.Greater(n, last)
	}},
	{"numbers rise past those whose time ended, long ago too", store.Settings{}, func(r *rig) {
		a := r.attachFor(runnerParty, "a", time.Second)
		r.pass(time.Second)
		b := r.attachFor(runnerParty, "a", time.Second)
		r.Greater(b, a)
		r.jump(100 * time.Hour)
		r.Greater(r.attachFor(runnerParty, "a", time.Second), b)
	}},
	{"the same session keeps its number", store.Settings{}, func(r *rig) {
		n := r.attach(r1, "a")
		r.Equal(n, r.attach(r1, "a"))
		m := r.attach(r1, "b")
		r.Greater(m, n)
		r.Equal(n, r.attach(r1, "a"))
		r.Equal(m, r.attach(r1, "b"))
		r.enqueue(siteA, "j")
		r.Len(r.claim(r1, numbered(m)), 1, "a renewal of the older doesn't make it the newest")
	}},
	{"present as long as it has a session", store.Settings{}, func(r *rig) {
		r.present(siteParty, false)
		r.attachSite(siteA, "a")
		r.attachSite(siteA, "b")
		r.present(siteParty, true)
		r.present(store.Party{Role: store.SiteRole, ID: siteB}, false)
		r.present(store.Party{Role: store.RunnerRole, ID: siteA}, false)
		r.NoError(r.st.Detach(r.ctx, siteParty, "a"))
		r.present(siteParty, true)
		r.NoError(r.st.Detach(r.ctx, siteParty, "b"))
		r.present(siteParty, false)
	}},
	{"a session ends by itself unless it's renewed", store.Settings{}, func(r *rig) {
		r.attachFor(siteParty, "a", 30*time.Second)
		r.pass(20 * time.Second)
		r.attachFor(siteParty, "a", 30*time.Second)
		r.pass(30*time.Second - time.Millisecond)
		r.present(siteParty, true)
		r.pass(time.Millisecond)
		r.present(siteParty, false)
	}},
	{"an unknown session's end changes nothing", store.Settings{}, func(r *rig) {
		n := r.attach(r1, "a")
		r.NoError(r.st.Detach(r.ctx, runnerParty, "zz"))
		r.NoError(r.st.Detach(r.ctx, store.Party{Role: store.SiteRole, ID: r1}, "a"))
		r.NoError(r.st.Detach(r.ctx, store.Party{Role: store.RunnerRole, ID: r2}, "a"))
		r.present(runnerParty, true)
		r.enqueue(siteA, "j")
		r.Len(r.claim(r1, numbered(n)), 1)
	}},
	{"the older session's late end doesn't touch its successor", store.Settings{}, func(r *rig) {
		r.enqueueN(siteA, "j", 3)
		old := r.attach(r1, "old")
		a := r.grant(r1, numbered(old), offered)
		newest := r.attach(r1, "new")
		b := r.grant(r1, numbered(newest), offered)
		_, err := r.st.Abandon(r.ctx, r1, old)
		r.NoError(err)
		r.NoError(r.st.Detach(r.ctx, runnerParty, "old"))
		r.queuedAgain(a.JobID)
		r.Empty(r.accept(r1, b))
		r.Len(r.claim(r1, numbered(newest)), 1)
		r.present(runnerParty, true)
	}},
	{"the end of a session leaves leases alone", store.Settings{}, func(r *rig) {
		n := r.attach(r1, "a")
		r.enqueue(siteA, "j")
		g := r.grant(r1, numbered(n))
		r.NoError(r.st.Detach(r.ctx, runnerParty, "a"))
		r.seal(siteA, g, r1)
		r.take(r1, g)
		r.complete(r1, g)
	}},
	{"sessions are counted", store.Settings{}, func(r *rig) {
		base := r.stats().Sessions
		r.attach(r1, "a")
		r.attach(r1, "a")
		r.attach(r2, "a")
		r.attachSite(siteA, "a")
		r.Equal(base+3, r.stats().Sessions)
		r.NoError(r.st.Detach(r.ctx, runnerParty, "a"))
		r.Equal(base+2, r.stats().Sessions)
	}},
	{"sessions end in their turn, whoever left before", store.Settings{}, (*rig).endInTurn},
	{"seen is remembered, the last word counts, the store stamps it", store.Settings{}, func(r *rig) {
		s := store.Sighting{Runner: r1, Kinds: []string{chat, gen}, Slots: 3, Dialect: wire.Dialect2}
		r.NoError(r.st.Seen(r.ctx, store.Sighting{Runner: r1, Slots: 9}))
		s.At = time.Unix(1, 0)
		before := r.now()
		r.NoError(r.st.Seen(r.ctx, s))
		r.NoError(r.st.Seen(r.ctx, store.Sighting{Runner: r2, Paused: true}))
		all, err := r.st.Everyone(r.ctx)
		r.NoError(err)
		by := map[string]store.Sighting{}
		for _, s := range all {
			by[s.Runner] = s
		}
		got := by[r1]
		r.WithinRange(got.At, before, r.now())
		s.At = got.At
		r.Equal(s, got)
		r.True(by[r2].Paused)
	}},
}

// endInTurn attaches sessions with shuffled ends, detaches half of them in another order, and watches the rest end.
func (r *rig) endInTurn() {
	r.noStats()
	const n = 150
	for seed := range uint64(4) {
		shuffle := rand.New(rand.NewPCG(seed, 1))
		name := func(i int) store.Party { return store.Party{Role: store.RunnerRole, ID: "r-" + itoa(i)} }
		ends := map[int]int{}
		for i, at := range shuffle.Perm(n) {
			ends[i] = 1 + at
			r.attachFor(name(i), "s", time.Duration(ends[i])*time.Second)
		}
		for _, i := range shuffle.Perm(n)[:n/2] {
			r.NoError(r.st.Detach(r.ctx, name(i), "s"))
			delete(ends, i)
		}
		left := map[int]bool{}
		for _, at := range ends {
			left[at] = true
		}
		want := len(ends)
		for s := 1; s <= n; s++ {
			r.jump(time.Second)
			if left[s] {
				want--
			}
			r.Equal(want, r.stats().Sessions, "after %d s", s)
		}
	}
}

func (r *rig) attachFor(p store.Party, session string, d time.Duration) uint64 {
	r.t.Helper()
	n, err := r.st.Attach(r.ctx, p, session, d)
	r.NoError(err)
	return n
}

func (r *rig) present(p store.Party, want bool) {
	r.t.Helper()
	got, err := r.st.Present(r.ctx, p)
	r.NoError(err)
	r.Equal(want, got)
}
