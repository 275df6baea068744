package storetest

import (
	"pushrelay/store"
	"pushrelay/wire"
)

// outageClauses hold for stores that keep things: without their medium they refuse what can't be kept and answer the rest.
var outageClauses = []clause{
	{"every change is refused, retryably, and nothing of it is seen", store.Settings{}, func(r *rig) {
		r.needFail()
		for _, l := range lives {
			l.make(r, l.name)
			if l.name == "queued" {
				r.cancelLater()
			}
		}
		before, stats, t := r.allJobs(), r.stats(), r.tap(store.Interest{})
		r.f.Fail(r.t, r.st, true)
		for name, change := range r.changes() {
			r.errIs(change(), store.ErrUnavailable)
			r.Equal(before, r.allJobs(), name)
			r.Equal(stats, r.stats(), name)
			r.Empty(t.read(), name)
		}
		r.f.Fail(r.t, r.st, false)
		r.Equal(before, r.allJobs())
		for name, change := range r.changes() {
			r.NoError(change(), name)
		}
	}},
	{"reads, presence and offers go on", store.Settings{}, func(r *rig) {
		r.needFail()
		g := r.done("done")
		r.f.Fail(r.t, r.st, true)
		_, err := r.st.Enqueue(r.ctx, siteA, wire.Dialect0, []wire.Stub{r.stub("j")})
		r.errIs(err, store.ErrUnavailable)
		env, err := r.st.ResultEnvelope(r.ctx, siteA, g)
		r.NoError(err)
		r.Equal("result of done", string(env.Raw))
		r.Positive(r.attach(r1, "new"))
		r.present(store.Party{Role: store.RunnerRole, ID: r1}, true)
		r.Len(r.offerTo(siteA, "s", store.OfferResults), 1)
		r.NoError(r.st.Detach(r.ctx, siteParty, "s"))
		r.Len(r.offerTo(siteA, "s2", store.OfferResults), 1)
	}},
	{"the medium says why, and that it is back", store.Settings{}, func(r *rig) {
		r.needFail()
		medium, ok := r.st.(store.Medium)
		r.True(ok)
		r.NoError(medium.Err())
		r.f.Fail(r.t, r.st, true)
		_, err := r.st.Enqueue(r.ctx, siteA, wire.Dialect0, []wire.Stub{r.stub("j")})
		r.errIs(err, store.ErrUnavailable)
		r.Error(medium.Err())
		r.f.Fail(r.t, r.st, false)
		r.enqueue(siteA, "j")
		r.NoError(medium.Err())
	}},
	{"no lease is lost over an outage", store.Settings{}, func(r *rig) {
		r.needFail()
		g := r.running("j")
		r.f.Fail(r.t, r.st, true)
		for range 20 {
			r.advance(lease / 4)
			_, err := r.st.Sweep(r.ctx)
			r.errIs(err, store.ErrUnavailable)
		}
		r.f.Fail(r.t, r.st, false)
		r.sweep()
		r.Empty(r.renew(r1, g))
		r.complete(r1, g)
	}},
}

func (r *rig) needFail() {
	r.t.Helper()
	if r.f.Fail == nil {
		r.t.Skip("gap Fail: this store has no medium that could be away")
	}
}

// allJobs reads each of the lives.
func (r *rig) allJobs() map[string]store.Job {
	out := map[string]store.Job{}
	for _, l := range lives {
		out[l.name] = r.job(siteA, l.name)
	}
	return out
}

// changes are calls that each change something kept, told as errors.
func (r *rig) changes() map[string]func() error {
	held := func(name string) wire.Grant { return wire.Grant{JobID: name, LeaseID: r.job(siteA, name).Lease} }
	return map[string]func() error{
		"Enqueue": func() error {
			_, err := r.st.Enqueue(r.ctx, siteA, wire.Dialect0, []wire.Stub{r.stub("fresh", ofKind("other"))})
			return err
		},
		"Cancel":  func() error { _, err := r.st.Cancel(r.ctx, siteA, []string{"queued"}); return err },
		"Sealing": func() error { _, err := r.st.Sealing(r.ctx, siteA, one(held("awaiting"))); return err },
		"Accept":  func() error { _, err := r.st.Accept(r.ctx, r1, one(held("offered"))); return err },
		"Renew":   func() error { _, err := r.st.Renew(r.ctx, r1, one(held("ready")), 2*lease); return err },
		"TakePayload": func() error {
			_, err := r.st.TakePayload(r.ctx, r1, held("ready"))
			return err
		},
		"Complete": func() error {
			_, err := r.st.Complete(r.ctx, r1, held("running"), resultFrom(r1, "x"), wire.DispositionOK)
			return err
		},
		"Collect": func() error { return r.st.Collect(r.ctx, siteA, one(held("done"))) },
	}
}
