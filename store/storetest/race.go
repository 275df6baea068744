package storetest

import (
	"sync"
	"time"

	"pushrelay/store"
	"pushrelay/wire"
)

// together runs these at once and waits for all.
func together(fs ...func()) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for _, f := range fs {
		wg.Go(func() {
			<-start
			f()
		})
	}
	close(start)
	wg.Wait()
}

const rounds = 60

var raceClauses = []clause{
	{"many claim: one grant a job, slots never exceeded", store.Settings{UnsealedPerRoute: 1000}, func(r *rig) {
		const jobs, workers, room = 200, 16, 20
		r.enqueueN(siteA, "j", jobs)
		var mu sync.Mutex
		seen := map[string]int{}
		held := map[string]int{}
		var fs []func()
		for i := range workers {
			fs = append(fs, func() {
				runner := "runner-" + itoa(i%8) // two goroutines a runner
				for range 15 {
					got, err := r.st.Claim(r.ctx, ask(runner, upTo(3), slots(room)))
					mu.Lock()
					if err != nil {
						seen[err.Error()] += 2
					}
					for _, c := range got {
						seen[c.Stub.ID]++
						held[runner]++
					}
					mu.Unlock()
				}
			})
		}
		together(fs...)
		for id, n := range seen {
			r.Equal(1, n, id)
		}
		for runner, n := range held {
			r.LessOrEqual(n, room)
			all, err := r.st.Held(r.ctx, runner)
			r.NoError(err)
			r.Len(all, n)
		}
		r.Equal(min(jobs, 8*room), len(seen))
	}},
	{"many publish one key: one is new", store.Settings{}, func(r *rig) {
		for i := range rounds {
			s := r.stub("j-" + itoa(i))
			fresh := make([]int, 8)
			var fs []func()
			for w := range fresh {
				fs = append(fs, func() {
					got, err := r.st.Enqueue(r.ctx, siteA, wire.Dialect0, []wire.Stub{s})
					if err == nil && !got[0].Known {
						fresh[w] = 1
					}
				})
			}
			together(fs...)
			n := 0
			for _, f := range fresh {
				n += f
			}
			r.Equal(1, n)
		}
	}},
	{"many complete one grant: one is accepted, the others are duplicates", store.Settings{}, func(r *rig) {
		for i := range rounds {
			g := r.running("j-" + itoa(i))
			out := make([]store.Completion, 6)
			var fs []func()
			for w := range out {
				fs = append(fs, func() {
					out[w], _ = r.st.Complete(r.ctx, r1, g, resultFrom(r1, itoa(w)), wire.DispositionOK)
				})
			}
			together(fs...)
			won := -1
			for w, c := range out {
				if c.Accepted {
					r.Equal(-1, won)
					won = w
				} else {
					r.True(c.Duplicate)
				}
			}
			env, err := r.st.ResultEnvelope(r.ctx, siteA, g)
			r.NoError(err)
			r.Equal(itoa(won), string(env.Raw))
		}
	}},
	{"complete against a lapse: one wins and both hear the truth", store.Settings{}, func(r *rig) {
		for i := range rounds {
			g := r.running("j-" + itoa(i))
			r.pass(lease - time.Second)
			r.advance(time.Second)
			t := r.tap(store.Interest{})
			var c store.Completion
			var err error
			together(func() { c, err = r.st.Complete(r.ctx, r1, g, resultFrom(r1, "x"), wire.DispositionOK) },
				func() { _, _ = r.st.Sweep(r.ctx) })
			r.oneOf(t, g, c.Accepted, err, store.EventDone, store.EventEnded)
			r.sweep()
			if !c.Accepted {
				r.Equal(1, r.queuedAgain(g.JobID).Lapses)
				r.cancel(siteA, g.JobID)
			} else {
				r.Equal(store.Done, r.job(siteA, g.JobID).State)
			}
		}
	}},
	{"renew against a lapse: one wins and both hear the truth", store.Settings{}, func(r *rig) {
		for i := range rounds {
			g := r.running("j-" + itoa(i))
			r.pass(lease - time.Second)
			r.advance(time.Second)
			var lost []wire.Grant
			together(func() { lost, _ = r.st.Renew(r.ctx, r1, one(g), lease) }, func() { _, _ = r.st.Sweep(r.ctx) })
			j := r.job(siteA, g.JobID)
			if len(lost) == 0 {
				r.Equal(store.Running, j.State)
				r.release(r1, wire.ReleaseShutdown, 0, g)
			} else {
				r.Equal(store.Queued, j.State)
			}
			r.cancel(siteA, g.JobID)
		}
	}},
	{"cancel against complete: the result stands, the cancel is answered", store.Settings{}, func(r *rig) {
		for i := range rounds {
			g := r.running("j-" + itoa(i))
			var c store.Completion
			var ok []bool
			together(func() { c, _ = r.st.Complete(r.ctx, r1, g, resultFrom(r1, "x"), wire.DispositionOK) },
				func() { ok, _ = r.st.Cancel(r.ctx, siteA, []string{g.JobID}) })
			r.True(c.Accepted)
			r.Equal([]bool{true}, ok)
			r.Equal(store.Done, r.job(siteA, g.JobID).State)
			r.Empty(r.cancelRequests(r1))
		}
		r.Empty(r.notices(siteA))
	}},
	{"cancel against release: dropped, with one notice", store.Settings{}, func(r *rig) {
		for i := range rounds {
			g := r.running("j-" + itoa(i))
			together(func() { _, _ = r.st.Release(r.ctx, r1, one(g), wire.ReleaseShutdown, 0) },
				func() { _, _ = r.st.Cancel(r.ctx, siteA, []string{g.JobID}) })
			r.noticed(g.JobID, store.WhyCancelled)
		}
	}},
	{"seal against decline: one wins", store.Settings{}, func(r *rig) {
		for i := range rounds {
			g := r.awaiting("j-" + itoa(i))
			var st store.State
			var err error
			var back []wire.Grant
			together(func() { st, err = r.st.Seal(r.ctx, siteA, g, payloadFor(r1, "x")) },
				func() { back, _ = r.st.Decline(r.ctx, siteA, one(g)) })
			if err == nil {
				r.Equal(store.Ready, st)
				r.Empty(back)
				r.release(r1, wire.ReleaseShutdown, 0, g)
			} else {
				r.errIs(err, store.ErrTooLate)
				r.Equal(one(g), back)
			}
			r.Zero(r.siteBytes())
			r.cancel(siteA, g.JobID)
		}
	}},
	{"release against complete: one wins", store.Settings{}, func(r *rig) {
		for i := range rounds {
			g := r.running("j-" + itoa(i))
			var c store.Completion
			var err error
			var back []wire.Grant
			together(func() { c, err = r.st.Complete(r.ctx, r1, g, resultFrom(r1, "x"), wire.DispositionOK) },
				func() { back, _ = r.st.Release(r.ctx, r1, one(g), wire.ReleaseShutdown, 0) })
			r.Equal(c.Accepted, len(back) == 0)
			r.Equal(c.Accepted, err == nil)
			r.cancel(siteA, g.JobID)
		}
	}},
	{"accept against its offer's end: one wins", store.Settings{}, func(r *rig) {
		for i := range rounds {
			g := r.offeredTo("j-" + itoa(i))
			r.advance(4 * time.Second)
			r.sweep()
			r.advance(time.Second)
			var lost []wire.Grant
			together(func() { lost, _ = r.st.Accept(r.ctx, r1, one(g)) }, func() { _, _ = r.st.Sweep(r.ctx) })
			r.Equal(len(lost) == 0, r.job(siteA, g.JobID).State == store.AwaitingPayload)
			r.release(r1, wire.ReleaseShutdown, 0, g)
			r.cancel(siteA, g.JobID)
		}
	}},
	{"a new session against a claim of the old: no grant for the old after it", store.Settings{UnsealedPerRoute: 1000}, func(r *rig) {
		r.enqueueN(siteA, "j", rounds)
		old := r.attach(r1, "s-0")
		for i := range rounds {
			var err error
			var newest uint64
			together(func() { _, err = r.st.Claim(r.ctx, ask(r1, numbered(old))) },
				func() { newest, _ = r.st.Attach(r.ctx, runnerParty, "s-"+itoa(i+1), time.Hour) })
			if err != nil {
				r.errIs(err, store.ErrSuperseded)
			}
			_, err = r.st.Claim(r.ctx, ask(r1, numbered(old)))
			r.errIs(err, store.ErrSuperseded)
			old = newest
		}
	}},
	{"sessions of a site take offers: each entry goes to one", store.Settings{}, func(r *rig) {
		r.manyDone(40, "x")
		var mu sync.Mutex
		got := map[string]int{}
		var fs []func()
		for i := range 8 {
			s := "s-" + itoa(i)
			r.attachSite(siteA, s)
			fs = append(fs, func() {
				for n := range 6 {
					os, _ := r.st.Offer(r.ctx, siteA, s, store.OfferResults, 3*(n+1), 1<<20, time.Minute)
					mu.Lock()
					for _, o := range os {
						got[o.Grant.JobID]++
					}
					mu.Unlock()
				}
			})
		}
		together(fs...)
		r.Len(got, 40)
		for id, n := range got {
			r.Equal(1, n, id)
		}
	}},
	{"everything at once: totals agree and nothing is lost", store.Settings{UnsealedPerRoute: 1000}, (*rig).storm},
}

// oneOf expects that of two transitions exactly one shows in the events, the one that the caller was told.
func (r *rig) oneOf(t *tap, g wire.Grant, won bool, err error, win, lose store.EventType) {
	r.t.Helper()
	r.Equal(won, err == nil)
	n := map[store.EventType]int{}
	for _, e := range t.read() {
		if e.Lease == g.LeaseID {
			n[e.Type]++
		}
	}
	if won {
		r.Equal([]int{1, 0}, []int{n[win], n[lose]})
	} else {
		r.Equal([]int{0, 1}, []int{n[win], n[lose]})
	}
}

// storm lets runners work jobs down while sites publish, seal, cancel and sweep.
func (r *rig) storm() {
	const jobs = 300
	stubs := make([]wire.Stub, jobs)
	for i := range stubs {
		stubs[i] = r.stub("j-" + itoa(i))
	}
	var fs []func()
	for i := range 4 {
		fs = append(fs, func() {
			for _, s := range stubs[i*jobs/4 : (i+1)*jobs/4] {
				_, _ = r.st.Enqueue(r.ctx, siteA, wire.Dialect0, []wire.Stub{s})
			}
		})
	}
	for i := range 6 {
		fs = append(fs, func() { r.work("runner-" + itoa(i)) })
	}
	fs = append(fs, func() {
		for i := 0; i < jobs; i += 10 {
			_, _ = r.st.Cancel(r.ctx, siteA, []string{"j-" + itoa(i)})
			_, _ = r.st.Sweep(r.ctx)
			_, _ = r.st.Stats(r.ctx)
			_, _ = r.st.Jobs(r.ctx, siteA, 0, 50)
		}
	})
	together(fs...)
	r.work("last")
	r.Empty(r.claim("after"))
	ends := len(r.pages(r.st.Finished, siteA, 100)) + len(r.notices(siteA))
	r.Equal(jobs, ends)
	r.siteBytes()
}

// work claims, seals, takes and completes until an empty claim came three times in a row.
func (r *rig) work(runner string) {
	for empty := 0; empty < 3; {
		got, _ := r.st.Claim(r.ctx, ask(runner, upTo(4)))
		if len(got) == 0 {
			empty++
			continue
		}
		empty = 0
		for i, c := range got {
			g := grantOf(c)
			if i == 3 {
				_, _ = r.st.Release(r.ctx, runner, one(g), wire.ReleaseShutdown, 0)
				continue
			}
			_, _ = r.st.Seal(r.ctx, siteA, g, payloadFor(runner, "p"))
			_, _ = r.st.TakePayload(r.ctx, runner, g)
			_, _ = r.st.Complete(r.ctx, runner, g, resultFrom(runner, "res"), wire.DispositionOK)
		}
	}
}
