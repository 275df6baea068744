package storetest

import (
	"time"

	"pushrelay/store"
	"pushrelay/wire"
)

var dueClauses = []clause{
	{"a queued job is dropped at its deadline", store.Settings{}, func(r *rig) {
		r.enqueue(siteA, "j", r.dueIn(time.Minute))
		r.jump(time.Minute - time.Millisecond)
		r.Equal(store.Queued, r.job(siteA, "j").State)
		r.jump(time.Millisecond)
		r.Zero(r.siteTotal(siteA))
		r.Empty(r.claim(r1))
		r.noticed("j", store.WhyDeadline)
	}},
	{"a granted job is dropped at its deadline, in every state", store.Settings{}, func(r *rig) {
		for _, l := range lives[1:5] {
			r.enqueue(siteA, l.name, r.dueIn(4*time.Second))
			g := r.grant(r1, offered)
			if l.name != "offered" {
				r.accept(r1, g)
			}
			if l.state >= store.Ready {
				r.seal(siteA, g, r1)
			}
			if l.state == store.Running {
				r.take(r1, g)
			}
			r.pass(4*time.Second - time.Millisecond)
			r.Equal(l.state, r.job(siteA, l.name).State)
			r.pass(time.Millisecond)
			r.noticed(l.name, store.WhyDeadline)
			r.completeErr(r1, g, store.ErrNotFound)
			r.Equal(one(g), r.renew(r1, g))
		}
		r.Zero(r.siteBytes())
		held, err := r.st.Held(r.ctx, r1)
		r.NoError(err)
		r.Empty(held)
	}},
	{"renewals don't outlive the deadline", store.Settings{}, func(r *rig) {
		g := r.running("j", r.dueIn(90*time.Second))
		for range 4 {
			r.pass(20 * time.Second)
			r.Empty(r.renew(r1, g))
		}
		r.pass(10 * time.Second)
		r.Equal(one(g), r.renew(r1, g))
		r.noticed("j", store.WhyDeadline)
	}},
	{"a lease lapses from ready without a count", store.Settings{}, func(r *rig) {
		r.ready("j")
		r.pass(lease - time.Millisecond)
		r.Equal(store.Ready, r.job(siteA, "j").State)
		r.pass(time.Millisecond)
		j := r.queuedAgain("j")
		r.Zero(j.Lapses + j.Waits)
		r.Zero(r.siteBytes())
	}},
	{"a lease lapses from running with a count", store.Settings{}, func(r *rig) {
		r.running("j")
		r.pass(lease - time.Millisecond)
		r.Equal(store.Running, r.job(siteA, "j").State)
		r.pass(time.Millisecond)
		j := r.queuedAgain("j")
		r.Equal(1, j.Lapses)
		r.Zero(j.Waits)
		r.Len(r.claim(r1), 1)
	}},
	{"five lapses after the payload was taken drop the job", store.Settings{}, func(r *rig) {
		r.enqueue(siteA, "j")
		for i := range store.MaxLapses {
			r.Equal(i, r.queuedAgain("j").Lapses)
			g := r.grant(r1)
			r.seal(siteA, g, r1)
			r.take(r1, g)
			r.pass(lease)
		}
		r.noticed("j", store.WhyLapsed)
	}},
	{"lapses before the payload was taken never drop it", store.Settings{}, func(r *rig) {
		r.enqueue(siteA, "j", r.dueIn(5*time.Hour))
		for range store.MaxLapses + 2 {
			r.seal(siteA, r.grant(r1), r1)
			r.pass(lease)
		}
		r.queuedAgain("j")
	}},
	{"before ready the window is judged and not the lease", store.Settings{}, func(r *rig) {
		r.enqueue(siteA, "j")
		g := r.grant(r1, leased(3*time.Second))
		r.sealing(siteA, g)
		r.pass(30 * time.Second)
		r.Equal(store.AwaitingPayload, r.job(siteA, "j").State)
		r.renew(r1, g)
		r.seal(siteA, g, r1)
		r.pass(5 * time.Second)
		r.Equal(store.Ready, r.job(siteA, "j").State)
	}},
	{"from ready on the lease is judged and not the window", store.Settings{}, func(r *rig) {
		r.ready("j")
		r.pass(30 * time.Second)
		r.Equal(store.Ready, r.job(siteA, "j").State)
	}},
	{"an accepted grant outlives its offer's time", store.Settings{PayloadWindow: 20 * time.Second}, func(r *rig) {
		r.accept(r1, r.offeredTo("j"))
		r.pass(2 * offer)
		r.Equal(store.AwaitingPayload, r.job(siteA, "j").State)
		r.pass(2 * offer)
		r.queuedAgain("j")
	}},
	{"due times of an earlier grant don't touch a later one", store.Settings{}, func(r *rig) {
		g := r.running("j")
		r.pass(lease - 2*time.Second)
		r.release(r1, wire.ReleaseShutdown, 0, g)
		h := r.grant(r1)
		r.pass(5 * time.Second)
		r.Equal(h.LeaseID, r.job(siteA, "j").Lease)
		r.release(r1, wire.ReleaseShutdown, 0, h)
		k := r.grant(r1, offered) // the window of h ends now, the offer of k not yet
		r.pass(4 * time.Second)
		r.accept(r1, k)
		r.pass(8 * time.Second)
		r.Equal(k.LeaseID, r.job(siteA, "j").Lease)
	}},
	{"earliest first: what came before the deadline counts before it", store.Settings{}, func(r *rig) {
		r.enqueue(siteA, "j", r.dueIn(13*time.Second))
		r.decline(siteA, r.grant(r1))
		r.decline(siteA, r.grant(r1))
		r.grant(r1)
		r.pass(8 * time.Second)
		r.advance(5 * time.Second)
		r.sweep()
		r.noticed("j", store.WhyUnsealed)
	}},
	{"a done job outlives its deadline", store.Settings{}, func(r *rig) {
		g := r.done("j", r.dueIn(time.Minute))
		r.jump(23 * time.Hour)
		env, err := r.st.ResultEnvelope(r.ctx, siteA, g)
		r.NoError(err)
		r.Equal("result of j", string(env.Raw))
		r.Empty(r.notices(siteA))
	}},
	{"an uncollected result stays for its retention, then its key is free", store.Settings{ResultRetention: time.Hour}, func(r *rig) {
		g := r.done("j")
		r.jump(time.Hour - time.Millisecond)
		r.Equal(store.Done, r.job(siteA, "j").State)
		r.jump(time.Millisecond)
		r.jobGone("j")
		r.Zero(r.siteBytes())
		r.Zero(r.stats().ByState[store.Done])
		r.completeErr(r1, g, store.ErrNotFound)
		r.Empty(r.offerTo(siteA, "s", store.OfferResults))
		r.enqueue(siteA, "j")
	}},
	{"the default retention is a day", store.Settings{}, func(r *rig) {
		r.done("j")
		r.jump(24*time.Hour - time.Second)
		r.job(siteA, "j")
		r.jump(time.Second)
		r.jobGone("j")
	}},
	{"a notice stays until the deadline, five minutes to the retention", store.Settings{}, func(r *rig) {
		for _, c := range []struct{ deadline, stays time.Duration }{
			{time.Minute, store.NoticeMin}, {3 * time.Hour, 3 * time.Hour}, {72 * time.Hour, 24 * time.Hour},
		} {
			r.enqueue(siteA, "j", r.dueIn(c.deadline))
			r.cancel(siteA, "j")
			r.jump(c.stays - time.Millisecond)
			r.Equal(store.Done, r.job(siteA, "j").State)
			r.Equal(1, r.stats().Notices)
			r.jump(time.Millisecond)
			r.jobGone("j")
			r.Zero(r.stats().Notices)
			r.Empty(r.notices(siteA))
			r.enqueue(siteA, "j")
			r.done2(siteA, "j")
		}
	}},
	{"a notice stays no longer than the retention that is set", store.Settings{ResultRetention: 10 * time.Minute}, func(r *rig) {
		r.enqueue(siteA, "j")
		r.cancel(siteA, "j")
		r.jump(10 * time.Minute)
		r.jobGone("j")
	}},
}

// done2 ends a queued job for good and frees its key.
func (r *rig) done2(site, id string) {
	r.t.Helper()
	r.cancel(site, id)
	r.jump(2 * time.Hour)
	r.jobGone(id)
}

func (r *rig) jobGone(id string) {
	r.t.Helper()
	_, err := r.st.Job(r.ctx, siteA, id)
	r.errIs(err, store.ErrNotFound)
}

var sweepClauses = []clause{
	{"an empty store has nothing due", store.Settings{}, func(r *rig) {
		s, err := r.st.Sweep(r.ctx)
		r.NoError(err)
		r.Zero(s.Fired)
		if !r.f.Gaps.SharedMemory {
			r.Negative(s.Next)
		}
	}},
	{"says when the next is due", store.Settings{}, func(r *rig) {
		r.enqueue(siteA, "j", r.dueIn(30*time.Second))
		s, err := r.st.Sweep(r.ctx)
		r.NoError(err)
		r.Zero(s.Fired)
		r.Positive(s.Next)
		r.LessOrEqual(s.Next, 30*time.Second)
		r.offeredTo("k")
		s, err = r.st.Sweep(r.ctx)
		r.NoError(err)
		r.LessOrEqual(s.Next, offer)
	}},
	{"each due time fires once", store.Settings{}, func(r *rig) {
		r.enqueueN(siteA, "j", 3, r.dueIn(time.Second))
		r.advance(time.Second)
		s, err := r.st.Sweep(r.ctx)
		r.NoError(err)
		r.Equal(3, s.Fired)
		s, err = r.st.Sweep(r.ctx)
		r.NoError(err)
		r.Zero(s.Fired)
	}},
	{"at most 256 a call, earliest first", store.Settings{}, func(r *rig) {
		r.enqueueN(siteA, "late", 10, r.dueIn(20*time.Second))
		r.enqueueN(siteA, "early", 250, r.dueIn(10*time.Second))
		r.advance(30 * time.Second)
		s, err := r.st.Sweep(r.ctx)
		r.NoError(err)
		r.Equal(store.MaxFired, s.Fired)
		r.Zero(s.Next)
		left, err := r.st.Jobs(r.ctx, siteA, 0, 100)
		r.NoError(err)
		r.Len(left.Jobs, 4)
		for _, j := range left.Jobs {
			r.Contains(j.Job, "late")
		}
		s, err = r.st.Sweep(r.ctx)
		r.NoError(err)
		r.Equal(4, s.Fired)
		r.NotZero(s.Next)
	}},
	{"each due time fires in its turn, whatever was taken out before", store.Settings{}, func(r *rig) {
		const n = 200
		for i := range n {
			r.enqueue(siteA, "j-"+itoa(i), r.dueIn(time.Duration(1+(i*73)%n)*time.Second), ofKind("none"))
		}
		left := map[int]bool{}
		for i := range n {
			if k := (i*37 + 5) % n; i%3 == 0 {
				r.cancel(siteA, "j-"+itoa(k))
			} else {
				left[1+(k*73)%n] = true
			}
		}
		before := r.stats().Notices
		for s := 1; s <= n; s++ {
			r.jump(time.Second)
			if left[s] {
				before++
			}
			r.Equal(before, r.stats().Notices, "after %d s", s)
		}
	}},
	{"a claim fires at most 256 too", store.Settings{}, func(r *rig) {
		r.enqueueN(siteA, "j", 300, r.dueIn(time.Second), ofKind(gen))
		r.advance(2 * time.Second)
		r.Empty(r.claim(r1, kinds(chat)))
		s, err := r.st.Sweep(r.ctx)
		r.NoError(err)
		r.Equal(300-store.MaxFired, s.Fired)
	}},
	{"after an absent sweeper leases get the gap as grace", store.Settings{}, func(r *rig) {
		for _, gap := range []time.Duration{lease + time.Second, 10 * lease} {
			g := r.running("j " + gap.String())
			r.sweep()
			r.advance(gap)
			r.sweep()
			r.Equal(store.Running, r.job(siteA, g.JobID).State)
			r.True(r.job(siteA, g.JobID).LeaseEnds.After(r.now()))
			r.pass(lease - 5*time.Second)
			r.Equal(store.Running, r.job(siteA, g.JobID).State)
			r.pass(gap + 2*lease)
			r.Equal(1, r.queuedAgain(g.JobID).Lapses)
			r.cancel(siteA, g.JobID)
		}
	}},
	{"the grace is at least one lease", store.Settings{}, func(r *rig) {
		g := r.running("j")
		r.pass(lease - 3*time.Second)
		r.advance(store.SweeperAway + time.Second)
		r.sweep()
		r.pass(lease - 10*time.Second)
		r.Equal(store.Running, r.job(siteA, "j").State)
		r.complete(r1, g)
	}},
	{"a sweeper that was away for just 5 s wasn't away", store.Settings{}, func(r *rig) {
		r.running("j")
		r.pass(lease - store.SweeperAway)
		r.advance(store.SweeperAway)
		r.sweep()
		r.queuedAgain("j")
	}},
	{"a claim gives the grace as well", store.Settings{}, func(r *rig) {
		r.running("j")
		r.sweep()
		r.advance(2 * lease)
		r.Empty(r.claim(r2))
		r.sweep()
		r.Equal(store.Running, r.job(siteA, "j").State)
	}},
	{"payload windows get the gap too, at least one window: it was no wait in vain", store.Settings{}, func(r *rig) {
		for _, gap := range []time.Duration{store.SweeperAway + time.Second, lease} {
			g := r.awaiting("j " + gap.String())
			r.sweep()
			r.advance(gap)
			r.sweep()
			j := r.job(siteA, g.JobID)
			r.Equal(store.AwaitingPayload, j.State)
			r.False(j.WindowEnds.Before(r.now().Add(payWindow)))
			r.pass(payWindow - 4*time.Second)
			r.Equal(store.AwaitingPayload, r.job(siteA, g.JobID).State)
			r.pass(gap + payWindow)
			r.Equal(1, r.queuedAgain(g.JobID).Waits)
			r.cancel(siteA, g.JobID)
		}
	}},
	{"offers and deadlines get no grace", store.Settings{}, func(r *rig) {
		r.offeredTo("offer")
		r.enqueue(siteA, "deadline", r.dueIn(30*time.Second), ofKind("none"))
		r.sweep()
		r.advance(lease)
		r.sweep()
		r.queuedAgain("offer")
		r.noticed("deadline", store.WhyDeadline)
	}},
}
