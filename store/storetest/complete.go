package storetest

import (
	"time"

	"pushrelay/store"
	"pushrelay/wire"
)

var completeClauses = []clause{
	{"records from every unfinished state", store.Settings{}, func(r *rig) {
		for _, l := range lives[1:5] {
			g := l.make(r, l.name)
			r.complete(r1, g)
			j := r.job(siteA, l.name)
			r.Equal(store.Done, j.State)
			r.False(j.Offered)
			r.Equal(g.LeaseID, j.Lease)
			r.Equal(r1, j.Runner)
			r.Equal(wire.DispositionOK, j.Disposition)
			r.Zero(j.Payload)
			r.EqualValues(len("result of "+l.name), j.Result)
			r.False(j.Collected)
			env, err := r.st.ResultEnvelope(r.ctx, siteA, g)
			r.NoError(err)
			r.Equal(resultFrom(r1, "result of "+l.name), env)
		}
	}},
	{"frees the slot and the lease", store.Settings{}, func(r *rig) {
		r.complete(r1, r.running("j"))
		held, err := r.st.Held(r.ctx, r1)
		r.NoError(err)
		r.Empty(held)
		r.enqueue(siteA, "k")
		r.Len(r.claim(r1, slots(1)), 1)
	}},
	{"a done job answers duplicate to the grant that finished it", store.Settings{}, func(r *rig) {
		g := r.running("j")
		r.complete(r1, g)
		for _, text := range []string{"result of j", "another"} {
			r.duplicate(r1, g, text)
		}
		r.collect(siteA, g)
		r.duplicate(r1, g, "result of j")
	}},
	{"a done job answers stale-lease to another grant of that runner", store.Settings{}, func(r *rig) {
		old := r.running("j")
		r.release(r1, wire.ReleaseShutdown, 0, old)
		g := r.grant(r1)
		r.complete(r1, g)
		r.completeErr(r1, old, store.ErrStaleLease)
		r.completeErr(r1, bogus("j"), store.ErrStaleLease)
	}},
	{"a success can't turn into a failure afterwards", store.Settings{}, func(r *rig) {
		g := r.running("j")
		r.complete(r1, g)
		c, err := r.st.Complete(r.ctx, r1, g, resultFrom(r1, "worse"), wire.DispositionError)
		r.NoError(err)
		r.Equal(store.Completion{Duplicate: true, State: store.Done}, c)
		r.Equal(wire.DispositionOK, r.job(siteA, "j").Disposition)
		env, err := r.st.ResultEnvelope(r.ctx, siteA, g)
		r.NoError(err)
		r.Equal("result of j", string(env.Raw))
	}},
	{"each disposition is kept as it was said", store.Settings{}, func(r *rig) {
		for _, d := range []string{wire.DispositionOK, wire.DispositionError, wire.DispositionCanceled} {
			g := r.running(d)
			_, err := r.st.Complete(r.ctx, r1, g, resultFrom(r1, "x"), d)
			r.NoError(err)
			r.Equal(d, r.job(siteA, d).Disposition)
		}
	}},
	{"the previous holder's late result is not the new one's", store.Settings{}, func(r *rig) {
		old := r.running("j")
		r.pass(lease)
		r.completeErr(r1, old, store.ErrNotFound)
		g := r.grant(r2)
		r.completeErr(r1, old, store.ErrNotFound)
		r.completeErr(r1, g, store.ErrNotHolder)
		r.complete(r2, g)
		r.completeErr(r1, old, store.ErrNotFound)
	}},
	{"the same runner's late result of an earlier grant is stale", store.Settings{}, func(r *rig) {
		old := r.running("j")
		r.release(r1, wire.ReleaseShutdown, 0, old)
		g := r.grant(r1)
		r.completeErr(r1, old, store.ErrStaleLease)
		r.Equal(g.LeaseID, r.job(siteA, "j").Lease)
		r.Equal(store.AwaitingPayload, r.job(siteA, "j").State)
	}},
	{"another runner's grant is not-holder, done or not", store.Settings{}, func(r *rig) {
		for _, l := range lives[1:6] {
			r.completeErr(r2, l.make(r, l.name), store.ErrNotHolder)
		}
	}},
	{"late work isn't thrown away: until its due time is fired the grant stands", store.Settings{}, func(r *rig) {
		g := r.running("lease")
		r.pass(lease - time.Second)
		r.advance(time.Second)
		r.complete(r1, g)
		h := r.running("deadline", r.dueIn(20*time.Second))
		r.pass(18 * time.Second)
		r.advance(2 * time.Second)
		r.complete(r1, h)
		k := r.awaiting("window")
		r.pass(8 * time.Second)
		r.advance(2 * time.Second)
		r.complete(r1, k)
		r.sweep()
		for _, id := range []string{"lease", "deadline", "window"} {
			r.Equal(wire.DispositionOK, r.job(siteA, id).Disposition)
		}
	}},
	{"a cancelled job completes with whichever result comes first", store.Settings{}, func(r *rig) {
		for _, l := range lives[1:5] {
			g := l.make(r, l.name)
			r.cancel(siteA, l.name)
			r.complete(r1, g)
			r.Equal(wire.DispositionOK, r.job(siteA, l.name).Disposition)
			r.Empty(r.notices(siteA))
		}
	}},
	{"nothing reopens a done job", store.Settings{}, func(r *rig) {
		g := r.done("j")
		before := r.job(siteA, "j")
		r.Empty(r.release(r1, wire.ReleaseShutdown, 0, g))
		r.Empty(r.release(r1, wire.ReleaseRefused, 0, g))
		r.takeErr(r1, g, store.ErrTerminal)
		r.Empty(r.renew(r1, g))
		r.Empty(r.decline(siteA, g))
		r.Empty(r.sealing(siteA, g))
		r.Equal([]bool{true}, r.cancel(siteA, "j"))
		_, err := r.st.Resume(r.ctx, r1, r.attach(r1, "s"), nil, lease)
		r.NoError(err)
		_, err = r.st.Abandon(r.ctx, r1, 0)
		r.NoError(err)
		_, _ = r.st.Seal(r.ctx, siteA, g, payloadFor(r1, "x"))
		_, _ = r.st.Seal(r.ctx, siteA, bogus("j"), payloadFor(r1, "x"))
		r.True(r.enqueueAll(siteA, r.stub("j"))[0].Known)
		if !r.f.Gaps.NoClock {
			r.pass(3 * time.Minute)
			r.jump(2 * time.Hour) // past its deadline
		}
		r.Empty(r.claim(r2))
		r.Equal(before, r.job(siteA, "j"))
		r.Empty(r.notices(siteA))
	}},
	{"a job's bytes are counted as they come and go", store.Settings{}, func(r *rig) {
		g := r.ready("j")
		r.EqualValues(len("payload of j"), r.siteBytes())
		r.release(r1, wire.ReleaseShutdown, 0, g)
		r.Zero(r.siteBytes())
		g = r.grant(r1)
		r.seal(siteA, g, r1)
		r.complete(r1, g)
		r.EqualValues(len("result of j"), r.siteBytes())
		r.collect(siteA, g)
		r.Zero(r.siteBytes())
	}},
}

// completeErr expects that a result is refused.
func (r *rig) completeErr(runner string, g wire.Grant, want *store.Refusal) {
	r.t.Helper()
	c, err := r.st.Complete(r.ctx, runner, g, resultFrom(runner, "late"), wire.DispositionOK)
	r.errIs(err, want)
	r.False(c.Accepted || c.Duplicate)
}

func (r *rig) duplicate(runner string, g wire.Grant, text string) {
	r.t.Helper()
	c, err := r.st.Complete(r.ctx, runner, g, resultFrom(runner, text), wire.DispositionOK)
	r.NoError(err)
	r.Equal(store.Completion{Duplicate: true, State: store.Done}, c)
}
