package storetest

import (
	"time"

	"pushrelay/store"
	"pushrelay/wire"
)

// needClock leaves a case out for a store whose clock can't be moved.
func (r *rig) needClock() {
	r.t.Helper()
	if r.f.Gaps.NoClock {
		r.t.Skip("gap NoClock: this store's time can't be moved")
	}
}

// sweep fires all that is due and answers how much that was.
func (r *rig) sweep() int {
	r.t.Helper()
	for n := 0; ; {
		s, err := r.st.Sweep(r.ctx)
		r.NoError(err)
		n += s.Fired
		if s.Next != 0 {
			return n
		}
		r.NotZero(s.Fired, "Next says that more is due, but nothing was fired")
	}
}

// advance moves the clock and sweeps nothing.
func (r *rig) advance(d time.Duration) {
	r.t.Helper()
	r.needClock()
	r.clock.Advance(d)
}

// pass lets time go by with a sweeper at work.
func (r *rig) pass(d time.Duration) {
	r.t.Helper()
	r.needClock()
	r.sweep()
	for d > 0 {
		n := min(d, step)
		r.clock.Advance(n)
		r.sweep()
		d -= n
	}
}

// jump lets a long time go by at once and then sweeps; only for cases in which no lease is held.
func (r *rig) jump(d time.Duration) {
	r.t.Helper()
	r.advance(d)
	r.sweep()
}

// awaiting brings a new job of siteA to runner r1, accepted.
func (r *rig) awaiting(id string, change ...func(*wire.Stub)) wire.Grant {
	r.t.Helper()
	r.enqueue(siteA, id, change...)
	g := r.grant(r1, along(routes(ann, siteA)...))
	r.Equal(id, g.JobID)
	return g
}

// offeredTo brings a new job of siteA to r1, not yet accepted.
func (r *rig) offeredTo(id string) wire.Grant {
	r.t.Helper()
	r.enqueue(siteA, id)
	return r.grant(r1, offered)
}

func (r *rig) ready(id string, change ...func(*wire.Stub)) wire.Grant {
	r.t.Helper()
	g := r.awaiting(id, change...)
	r.seal(siteA, g, r1)
	return g
}

func (r *rig) running(id string, change ...func(*wire.Stub)) wire.Grant {
	r.t.Helper()
	g := r.ready(id, change...)
	r.take(r1, g)
	return g
}

func (r *rig) done(id string, change ...func(*wire.Stub)) wire.Grant {
	r.t.Helper()
	g := r.running(id, change...)
	r.complete(r1, g)
	return g
}

// life is a way to bring a job of siteA, held by r1, to a state.
type life struct {
	name  string
	state store.State
	held  bool
	make  func(r *rig, id string) wire.Grant
}

// lives are all states that a job can be in, offered, collected and dropped ones too.
var lives = []life{
	{"queued", store.Queued, false, func(r *rig, id string) wire.Grant { r.enqueue(siteA, id); return bogus(id) }},
	{"offered", store.AwaitingPayload, true, (*rig).offeredTo},
	{"awaiting", store.AwaitingPayload, true, func(r *rig, id string) wire.Grant { return r.awaiting(id) }},
	{"ready", store.Ready, true, func(r *rig, id string) wire.Grant { return r.ready(id) }},
	{"running", store.Running, true, func(r *rig, id string) wire.Grant { return r.running(id) }},
	{"done", store.Done, false, func(r *rig, id string) wire.Grant { return r.done(id) }},
	{"collected", store.Done, false, func(r *rig, id string) wire.Grant {
		g := r.done(id)
		r.collect(siteA, g)
		return g
	}},
	{"dropped", store.Done, false, func(r *rig, id string) wire.Grant {
		r.enqueue(siteA, id)
		r.cancel(siteA, id)
		return bogus(id)
	}},
}

// notices answers all notices of a site that nobody was offered yet, by job.
func (r *rig) notices(site string) map[string]store.Offered {
	r.t.Helper()
	r.attachSite(site, "notice-reader")
	got, err := r.st.Offer(r.ctx, site, "notice-reader", store.OfferNotices, 1000, 1<<30, time.Second)
	r.NoError(err)
	r.NoError(r.st.Detach(r.ctx, store.Party{Role: store.SiteRole, ID: site}, "notice-reader"))
	out := map[string]store.Offered{}
	for _, o := range got {
		out[o.Grant.JobID] = o
	}
	return out
}

// noticed expects exactly one notice, of this job and why, and collects it.
func (r *rig) noticed(id string, why store.Why) {
	r.t.Helper()
	got := r.notices(siteA)
	r.Len(got, 1)
	r.Equal(why, got[id].Why)
	r.collect(siteA, got[id].Grant)
}

// queuedAgain expects a job of siteA back in the queue, without claim, window or payload.
func (r *rig) queuedAgain(id string) store.Job {
	r.t.Helper()
	j := r.job(siteA, id)
	r.Equal(store.Queued, j.State)
	r.False(j.Offered || j.Cancelled)
	r.Empty(j.Lease)
	r.Empty(j.Runner)
	r.Empty(j.Device)
	r.True(j.WindowEnds.IsZero() && j.LeaseEnds.IsZero())
	r.Zero(j.Payload)
	r.Zero(j.Takes)
	return j
}

func ids(gs []wire.Grant) []string {
	out := []string{}
	for _, g := range gs {
		out = append(out, g.JobID)
	}
	return out
}
