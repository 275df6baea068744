package storetest

import (
	"context"
	"time"

	"pushrelay/store"
	"pushrelay/wire"
)

type pager func(context.Context, string, store.Cursor, int) (store.Page, error)

var readClauses = []clause{
	{"jobs come in pages, in the order of their enqueueing", store.Settings{}, func(r *rig) {
		r.enqueueN(siteA, "j", 25)
		r.enqueueN(siteB, "other", 5)
		for _, size := range []int{1, 7, 25, 1000} {
			got := r.pages(r.st.Jobs, siteA, size)
			r.Len(got, 25)
			for i, j := range got {
				r.Equal(r.job(siteA, j.Job), j)
				r.Equal(got[i].Job, "j-"+itoa(i))
			}
		}
	}},
	{"a page that ends with the list says so", store.Settings{}, func(r *rig) {
		r.enqueueN(siteA, "j", 4)
		p, err := r.st.Jobs(r.ctx, siteA, 0, 2)
		r.NoError(err)
		r.Len(p.Jobs, 2)
		r.NotZero(p.Next)
		r.Len(r.pages(r.st.Jobs, siteA, 2), 4)
		for _, size := range []int{4, 5} {
			p, err = r.st.Jobs(r.ctx, siteA, 0, size)
			r.NoError(err)
			r.Len(p.Jobs, 4)
			r.Zero(p.Next)
		}
		p, err = r.st.Jobs(r.ctx, siteB, 0, 2)
		r.NoError(err)
		r.Empty(p.Jobs)
		r.Zero(p.Next)
	}},
	{"a page goes on where it ended when jobs left meanwhile", store.Settings{}, func(r *rig) {
		r.enqueueN(siteA, "j", 6)
		p, err := r.st.Jobs(r.ctx, siteA, 0, 3)
		r.NoError(err)
		r.cancel(siteA, "j-0", "j-2", "j-3")
		r.enqueue(siteA, "new")
		p, err = r.st.Jobs(r.ctx, siteA, p.Next, 9)
		r.NoError(err)
		got := []string{}
		for _, j := range p.Jobs {
			got = append(got, j.Job)
		}
		r.Equal([]string{"j-4", "j-5", "new"}, got)
	}},
	{"awaiting: accepted, unsealed, not cancelled", store.Settings{}, func(r *rig) {
		r.awaiting("a")
		r.awaiting("b")
		r.offeredTo("offered")
		r.ready("ready")
		r.awaiting("cancelled")
		r.cancel(siteA, "cancelled")
		r.Equal([]string{"a", "b"}, jobIDs(r.pages(r.st.Awaiting, siteA, 1)))
		r.Empty(r.pages(r.st.Awaiting, siteB, 1))
	}},
	{"finished: done and uncollected", store.Settings{}, func(r *rig) {
		a := r.done("a")
		r.done("b")
		r.running("running")
		r.collect(siteA, r.done("collected"))
		r.enqueue(siteA, "dropped")
		r.cancel(siteA, "dropped")
		r.Equal([]string{"a", "b"}, jobIDs(r.pages(r.st.Finished, siteA, 1)))
		r.Empty(r.pages(r.st.Finished, siteB, 1))
		r.collect(siteA, a)
		r.Equal([]string{"b"}, jobIDs(r.pages(r.st.Finished, siteA, 9)))
	}},
	{"reads are scoped to the site", store.Settings{}, func(r *rig) {
		g := r.done("j")
		_, err := r.st.Job(r.ctx, siteB, "j")
		r.errIs(err, store.ErrNotFound)
		_, err = r.st.ResultEnvelope(r.ctx, siteB, g)
		r.errIs(err, store.ErrNotFound)
	}},
	{"a result's envelope by its grant only", store.Settings{}, func(r *rig) {
		g := r.done("j")
		h := r.running("k")
		for _, bad := range []wire.Grant{bogus("j"), {JobID: "j"}, {JobID: "k", LeaseID: g.LeaseID}, h, bogus("none")} {
			_, err := r.st.ResultEnvelope(r.ctx, siteA, bad)
			r.errIs(err, store.ErrNotFound)
		}
		for range 2 {
			env, err := r.st.ResultEnvelope(r.ctx, siteA, g)
			r.NoError(err)
			r.Equal("result of j", string(env.Raw))
		}
	}},
	{"backlog: queues that hold something, how much and since when", store.Settings{}, func(r *rig) {
		r.enqueue(siteA, "1")
		r.enqueue(siteA, "2")
		r.enqueue(siteA, "3", audience("self"))
		r.enqueue(siteA, "4", ofKind(gen))
		r.enqueue(siteA, "5", ownedBy(bob))
		r.enqueue(siteB, "6")
		_, err := r.st.Enqueue(r.ctx, siteA, wire.Dialect2, []wire.Stub{r.stub("7", audience("private"))})
		r.NoError(err)
		q := func(site, owner, kind string, private bool, d wire.Dialect) store.Queue {
			return store.Queue{Route: store.Route{Site: site, Owner: owner}, Kind: kind, Private: private, Dialect: d}
		}
		want := map[store.Queue]int{
			q(siteA, ann, chat, false, "0"): 2, q(siteA, ann, chat, true, "0"): 1, q(siteA, ann, gen, false, "0"): 1,
			q(siteA, bob, chat, false, "0"): 1, q(siteA, ann, chat, true, "2"): 1,
		}
		r.Equal(want, r.backlog(siteA))
		r.Equal(map[store.Queue]int{q(siteB, ann, chat, false, "0"): 1}, r.backlog(siteB))
		if !r.f.Gaps.SharedMemory {
			want[q(siteB, ann, chat, false, "0")] = 1
			r.Equal(want, r.backlog(""))
		}
	}},
	{"backlog follows claims, give-backs and drops", store.Settings{}, func(r *rig) {
		r.enqueueN(siteA, "j", 2)
		first := r.job(siteA, "j-0").EnqueuedAt
		if !r.f.Gaps.NoClock {
			r.advance(time.Second)
		}
		g := r.grant(r1)
		r.Equal(1, r.waiting())
		r.release(r1, wire.ReleaseShutdown, 0, g)
		r.Equal(2, r.waiting())
		got, err := r.st.Backlog(r.ctx, siteA)
		r.NoError(err)
		r.Equal(first, got[0].Oldest)
		r.cancel(siteA, "j-0", "j-1")
		r.Zero(r.waiting())
	}},
	{"stats are right in every state", store.Settings{}, func(r *rig) {
		for i, l := range lives {
			r.noStats()
			before := r.stats()
			g := l.make(r, l.name)
			after := r.stats()
			n := after.ByState[l.state] - before.ByState[l.state]
			if i < 6 {
				r.Equal(1, n, l.name)
			} else {
				r.Zero(n, l.name)
			}
			if l.held {
				r.release(r1, wire.ReleaseRefused, 0, g)
			}
			r.cancel(siteA, l.name)
			r.Zero(r.stats().ByState[store.Queued], l.name)
		}
		r.Equal(6, r.stats().Notices)
	}},
	{"now and epoch", store.Settings{}, func(r *rig) {
		a, err := r.st.Epoch(r.ctx)
		r.NoError(err)
		r.NotEmpty(a)
		b, err := r.st.Epoch(r.ctx)
		r.NoError(err)
		r.Equal(a, b)
		if !r.f.Gaps.NoClock {
			r.Equal(r.clock.Now(), r.now())
			r.advance(time.Second)
			r.Equal(r.clock.Now(), r.now())
		}
	}},
	{"another memory has another epoch", store.Settings{}, func(r *rig) {
		r.noStats()
		a, err := r.st.Epoch(r.ctx)
		r.NoError(err)
		b, err := newRig(r.t, r.f, r.set).st.Epoch(r.ctx)
		r.NoError(err)
		r.NotEqual(a, b)
	}},
	{"after close every call answers unavailable", store.Settings{}, func(r *rig) {
		g := r.running("j")
		r.NoError(r.st.Close())
		_, err := r.st.Enqueue(r.ctx, siteA, wire.Dialect0, []wire.Stub{{ID: "k", Kind: chat, Owner: ann}})
		r.errIs(err, store.ErrUnavailable)
		_, err = r.st.Claim(r.ctx, ask(r1))
		r.errIs(err, store.ErrUnavailable)
		_, err = r.st.Complete(r.ctx, r1, g, resultFrom(r1, "x"), wire.DispositionOK)
		r.errIs(err, store.ErrUnavailable)
		_, err = r.st.TakePayload(r.ctx, r1, g)
		r.errIs(err, store.ErrUnavailable)
		_, err = r.st.Job(r.ctx, siteA, "j")
		r.errIs(err, store.ErrUnavailable)
		_, err = r.st.Sweep(r.ctx)
		r.errIs(err, store.ErrUnavailable)
		_, err = r.st.Attach(r.ctx, siteParty, "s", time.Second)
		r.errIs(err, store.ErrUnavailable)
		_, err = r.st.Offer(r.ctx, siteA, "s", store.OfferSeals, 1, 1, time.Second)
		r.errIs(err, store.ErrUnavailable)
		_, err = r.st.Stats(r.ctx)
		r.errIs(err, store.ErrUnavailable)
		r.NoError(r.st.Close())
	}},
}

// noStats leaves a case out for a store whose medium others share.
func (r *rig) noStats() {
	r.t.Helper()
	if r.f.Gaps.SharedMemory {
		r.t.Skip("gap SharedMemory: totals and epochs are shared")
	}
}

func (r *rig) pages(read pager, site string, size int) []store.Job {
	r.t.Helper()
	var out []store.Job
	after := store.Cursor(0)
	for {
		p, err := read(r.ctx, site, after, size)
		r.NoError(err)
		r.LessOrEqual(len(p.Jobs), size)
		out = append(out, p.Jobs...)
		if p.Next == 0 {
			return out
		}
		after = p.Next
	}
}

func jobIDs(js []store.Job) []string {
	out := []string{}
	for _, j := range js {
		out = append(out, j.Job)
	}
	return out
}

func (r *rig) backlog(site string) map[store.Queue]int {
	r.t.Helper()
	got, err := r.st.Backlog(r.ctx, site)
	r.NoError(err)
	out := map[store.Queue]int{}
	for _, b := range got {
		if b.Waiting > 0 {
			out[b.Queue] += b.Waiting
		}
	}
	return out
}

func (r *rig) waiting() int {
	r.t.Helper()
	n := 0
	for _, w := range r.backlog(siteA) {
		n += w
	}
	return n
}
