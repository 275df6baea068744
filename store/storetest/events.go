package storetest

import (
	"time"

	"pushrelay/store"
	"pushrelay/wire"
)

// base is what all events of ann's chat jobs at siteA share.
func base(typ store.EventType, job string) store.Event {
	return store.Event{
		Type: typ, Job: job,
		Queue: store.Queue{Route: store.Route{Site: siteA, Owner: ann}, Kind: chat, Dialect: wire.Dialect0},
	}
}

func granted(typ store.EventType, g wire.Grant) store.Event {
	e := base(typ, g.JobID)
	e.Lease, e.Runner = g.LeaseID, r1
	return e
}

func ended(g wire.Grant, why store.Why, accepted bool) store.Event {
	e := granted(store.EventEnded, g)
	e.Why, e.Accepted = why, accepted
	return e
}

func whyed(typ store.EventType, job string, why store.Why) store.Event {
	e := base(typ, job)
	e.Why = why
	return e
}

// same compares events by the fields that their type promises; more may be set.
func (r *rig) same(want []store.Event, got []store.Event) {
	r.t.Helper()
	r.Equal(types(want), types(got))
	for i, e := range got {
		w := want[i]
		if w.Lease == "" {
			e.Lease = ""
		}
		if w.Runner == "" {
			e.Runner = ""
		}
		if w.Number == 0 {
			e.Number = 0
		}
		if w.Type != store.EventEnded {
			e.Accepted = false
		}
		if w.Disposition == "" {
			e.Disposition = ""
		}
		if w.Age == 0 {
			e.Age = 0
		}
		r.Equal(w, e)
	}
}

var eventClauses = []clause{
	{"a life without trouble", store.Settings{}, func(r *rig) {
		n := r.attach(r1, "s")
		t := r.tap(store.Interest{})
		r.enqueue(siteA, "j")
		g := r.grant(r1, numbered(n), offered)
		r.accept(r1, g)
		r.accept(r1, g)
		r.seal(siteA, g, r1)
		r.take(r1, g)
		r.take(r1, g)
		r.complete(r1, g)
		r.collect(siteA, g)
		r.collect(siteA, g)
		offered := granted(store.EventOffered, g)
		offered.Number = n
		done := granted(store.EventDone, g)
		done.Disposition = wire.DispositionOK
		collected := base(store.EventCollected, "j")
		collected.Lease = g.LeaseID
		r.same([]store.Event{
			base(store.EventQueued, "j"), offered, granted(store.EventAwaiting, g), granted(store.EventReady, g),
			granted(store.EventRunning, g), done, collected,
		}, t.read())
	}},
	{"accepted at once: offered and awaiting", store.Settings{}, func(r *rig) {
		r.enqueue(siteA, "j")
		t := r.tap(store.Interest{})
		g := r.grant(r1)
		r.same([]store.Event{granted(store.EventOffered, g), granted(store.EventAwaiting, g)}, t.read())
	}},
	{"a queue's fields are the job's", store.Settings{}, func(r *rig) {
		t := r.tap(store.Interest{})
		_, err := r.st.Enqueue(r.ctx, siteB, wire.Dialect2, []wire.Stub{r.stub("j", ofKind(gen), ownedBy(bob), audience("private"))})
		r.NoError(err)
		r.Equal([]store.Event{{
			Type: store.EventQueued, Job: "j",
			Queue: store.Queue{Route: store.Route{Site: siteB, Owner: bob}, Kind: gen, Private: true, Dialect: wire.Dialect2},
		}}, t.read())
	}},
	{"releases: ended, then queued again, each reason with its why", store.Settings{}, func(r *rig) {
		for _, reason := range reasons {
			g := r.awaiting(reason)
			t := r.tap(store.Interest{})
			r.release(r1, reason, 0, g)
			why := store.WhyReleased
			switch reason {
			case wire.ReleaseRefused:
				why = store.WhyRefused
			case wire.ReleaseRevoked:
				why = store.WhyWithdrawn
			}
			r.same([]store.Event{ended(g, why, true), whyed(store.EventQueued, reason, why)}, t.read())
			r.cancel(siteA, reason)
		}
	}},
	{"unaccepted and cut: ended, not accepted", store.Settings{}, func(r *rig) {
		n := r.attach(r1, "s")
		r.enqueue(siteA, "j")
		g := r.grant(r1, numbered(n), offered)
		t := r.tap(store.Interest{})
		_, err := r.st.Abandon(r.ctx, r1, n)
		r.NoError(err)
		e := ended(g, store.WhyCut, false)
		e.Number = n
		r.same([]store.Event{e, whyed(store.EventQueued, "j", store.WhyCut)}, t.read())
		g = r.grant(r1, numbered(n), offered)
		t.read()
		r.pass(offer)
		e = ended(g, store.WhyUnaccepted, false)
		e.Number = n
		r.same([]store.Event{e, whyed(store.EventQueued, "j", store.WhyUnaccepted)}, t.read())
	}},
	{"window, decline, and the drop as unsealed", store.Settings{}, func(r *rig) {
		g := r.awaiting("j")
		t := r.tap(store.Interest{})
		r.pass(10 * time.Second)
		r.same([]store.Event{ended(g, store.WhyWindow, true), whyed(store.EventQueued, "j", store.WhyWindow)}, t.read())
		g = r.grant(r1)
		t.read()
		r.decline(siteA, g)
		r.same([]store.Event{ended(g, store.WhyDeclined, true), whyed(store.EventQueued, "j", store.WhyDeclined)}, t.read())
		g = r.grant(r1)
		t.read()
		r.decline(siteA, g)
		r.same([]store.Event{ended(g, store.WhyDeclined, true), whyed(store.EventDropped, "j", store.WhyUnsealed)}, t.read())
	}},
	{"a lapse, by time, by takes and by a return without it", store.Settings{}, func(r *rig) {
		g := r.running("j")
		t := r.tap(store.Interest{})
		r.pass(lease)
		r.same([]store.Event{ended(g, store.WhyLapsed, true), whyed(store.EventQueued, "j", store.WhyLapsed)}, t.read())
		g = r.grant(r1)
		r.seal(siteA, g, r1)
		for range store.MaxTakes {
			r.take(r1, g)
		}
		t.read()
		r.takeErr(r1, g, store.ErrStaleLease)
		r.same([]store.Event{ended(g, store.WhyLapsed, true), whyed(store.EventQueued, "j", store.WhyLapsed)}, t.read())
		g = r.grant(r1)
		n := r.attach(r1, "back")
		t.read()
		_, err := r.st.Resume(r.ctx, r1, n, nil, lease)
		r.NoError(err)
		r.same([]store.Event{ended(g, store.WhyAbandoned, true), whyed(store.EventQueued, "j", store.WhyAbandoned)}, t.read())
	}},
	{"the fifth lapse: ended, dropped as lapsed", store.Settings{}, func(r *rig) {
		r.enqueue(siteA, "j")
		for range store.MaxLapses - 1 {
			g := r.grant(r1)
			r.seal(siteA, g, r1)
			r.take(r1, g)
			r.pass(lease)
		}
		g := r.grant(r1)
		r.seal(siteA, g, r1)
		r.take(r1, g)
		t := r.tap(store.Interest{})
		r.pass(lease)
		r.same([]store.Event{ended(g, store.WhyLapsed, true), whyed(store.EventDropped, "j", store.WhyLapsed)}, t.read())
	}},
	{"a deadline: dropped, and ended before when it was held", store.Settings{}, func(r *rig) {
		r.enqueue(siteA, "queued", r.dueIn(10*time.Second))
		t := r.tap(store.Interest{})
		r.pass(10 * time.Second)
		r.same([]store.Event{whyed(store.EventDropped, "queued", store.WhyDeadline)}, t.read())
		g := r.running("held", r.dueIn(10*time.Second))
		t.read()
		r.pass(10 * time.Second)
		r.same([]store.Event{ended(g, store.WhyDeadline, true), whyed(store.EventDropped, "held", store.WhyDeadline)}, t.read())
	}},
	{"a cancel tells the holder, a queued one is dropped", store.Settings{}, func(r *rig) {
		t := r.tap(store.Interest{})
		r.enqueue(siteA, "queued")
		r.cancel(siteA, "queued")
		r.same([]store.Event{base(store.EventQueued, "queued"), whyed(store.EventDropped, "queued", store.WhyCancelled)}, t.read())
		g := r.running("held")
		t.read()
		r.cancel(siteA, "held")
		r.cancel(siteA, "held") // told once
		r.same([]store.Event{granted(store.EventCancel, g)}, t.read())
		r.release(r1, wire.ReleaseShutdown, 0, g)
		got := t.read()
		r.Equal([]store.EventType{store.EventEnded, store.EventDropped}, types(got))
		r.Equal(g, got[0].Grant())
		r.Contains([]store.Why{store.WhyReleased, store.WhyCancelled}, got[0].Why)
		r.Equal(store.WhyCancelled, got[1].Why)
	}},
	{"a collected notice tells its own id", store.Settings{}, func(r *rig) {
		r.enqueue(siteA, "j")
		r.cancel(siteA, "j")
		n := r.notices(siteA)["j"]
		t := r.tap(store.Interest{})
		r.collect(siteA, n.Grant)
		e := base(store.EventCollected, "j")
		e.Lease = n.Grant.LeaseID
		r.same([]store.Event{e}, t.read())
	}},
	{"a resume accepts what it names", store.Settings{}, func(r *rig) {
		g := r.offeredTo("j")
		n := r.attach(r1, "s")
		t := r.tap(store.Interest{})
		_, err := r.st.Resume(r.ctx, r1, n, one(g), lease)
		r.NoError(err)
		r.same([]store.Event{granted(store.EventAwaiting, g)}, t.read())
	}},
	{"sessions: attached once, detached once, by time too", store.Settings{}, func(r *rig) {
		t := r.tap(store.Interest{})
		n := r.attachFor(runnerParty, "s", 10*time.Second)
		r.attachFor(runnerParty, "s", 10*time.Second)
		r.NoError(r.st.Detach(r.ctx, runnerParty, "s"))
		r.NoError(r.st.Detach(r.ctx, runnerParty, "s"))
		m := r.attachFor(siteParty, "p", 10*time.Second)
		want := []store.Event{
			{Type: store.EventAttached, Party: runnerParty, Session: "s", Number: n},
			{Type: store.EventDetached, Party: runnerParty, Session: "s", Number: n},
			{Type: store.EventAttached, Party: siteParty, Session: "p", Number: m},
		}
		r.Equal(want, bare(t.read()))
		r.pass(10 * time.Second)
		r.Equal([]store.Event{{Type: store.EventDetached, Party: siteParty, Session: "p", Number: m}}, bare(t.read()))
	}},
	{"the order of a job's events is that of its moves", store.Settings{}, func(r *rig) {
		t := r.tap(store.Interest{})
		for range 3 {
			r.enqueueAll(siteA, r.stub("j"))
			g := r.grant(r1, offered)
			r.accept(r1, g)
			r.seal(siteA, g, r1)
			r.take(r1, g)
			r.release(r1, wire.ReleaseShutdown, 0, g)
		}
		cycle := []store.EventType{store.EventOffered, store.EventAwaiting, store.EventReady, store.EventRunning, store.EventEnded, store.EventQueued}
		want := []store.EventType{store.EventQueued}
		for range 3 {
			want = append(want, cycle...)
		}
		r.Equal(want, types(t.read()))
	}},
}

// bare drops what an event of a session may repeat of its party: the site, the runner.
func bare(es []store.Event) []store.Event {
	for i := range es {
		es[i].Queue, es[i].Runner = store.Queue{}, ""
	}
	return es
}
