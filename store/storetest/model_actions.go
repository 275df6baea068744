package storetest

import (
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"pushrelay/store"
	"pushrelay/wire"
)

func grantOfJob(j *mjob) wire.Grant { return wire.Grant{JobID: j.Key.Job, LeaseID: j.Lease} }

// actions are the operations of a random run.
func (w *world) actions() map[string]func(*rapid.T) {
	all := map[string]func(*rapid.T){
		"enqueue": w.enqueue, "enqueue more": w.enqueue, "claim": w.claim, "claim more": w.claim, "claim again": w.claim,
		"claim on": w.claim, "enqueue again": w.enqueue,
		"accept": w.accept, "take": w.take, "complete": w.complete, "release": w.release, "abandon": w.abandon,
		"renew": w.renew, "resume": w.resume, "seal": w.seal, "seal more": w.seal, "sealing": w.sealing,
		"decline": w.decline, "cancel": w.cancel, "offer": w.offer, "offer more": w.offer, "collect": w.collect,
		"attach": w.attach, "detach": w.detach, "work": w.work, "work more": w.work,
	}
	if w.clock {
		all["wait"], all["pass"], all["pass more"] = w.wait, w.pass, w.pass
	}
	if w.each(func(f Factory) bool { return f.Reopen != nil }) && w.clock {
		all["reopen"] = w.reopen
	}
	if !w.each(func(f Factory) bool { return f.Fail == nil }) {
		all["fail"] = w.fail
	}
	return all
}

// each reports whether something holds for all stores of the run.
func (w *world) each(holds func(Factory) bool) bool {
	return !slices.ContainsFunc(w.subs, func(s *subject) bool { return !holds(s.rig.f) })
}

// someJob draws a job that was published lately, or one that never was.
func (w *world) someJob(t *rapid.T) string {
	return rapid.SampledFrom(append([]string{"none"}, w.names[max(0, len(w.names)-10):]...)).Draw(t, "job")
}

// someJobs draws one to three of them.
func (w *world) someJobs(t *rapid.T) (out []string) {
	for range rapid.IntRange(1, 3).Draw(t, "n") {
		if id := w.someJob(t); !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}

func pick[T any](t *rapid.T, name string, from ...T) T { return rapid.SampledFrom(from).Draw(t, name) }

// span answers a time that counts, or one that never ends where time can't be moved.
func (w *world) span(d time.Duration) time.Duration {
	if !w.clock {
		return time.Hour
	}
	return d
}

func codeOf(err error) string {
	if err == nil {
		return "ok"
	}
	if ref, ok := err.(*store.Refusal); ok && ref != nil {
		return ref.Error()
	}
	return err.Error()
}

// refusal turns the model's typed answer into what codeOf reads.
func refusal(ref *store.Refusal) error {
	if ref == nil {
		return nil
	}
	return ref
}

// presweep fires what is due, so that it doesn't matter whether a store judges by the time or by what was fired.
func (s *subject) presweep() {
	if !s.m.still() {
		s.sweep()
	}
}

func (w *world) enqueue(t *rapid.T) {
	site, d := pick(t, "site", modelSites...), pick(t, "dialect", wire.Dialect0, wire.Dialect0, wire.Dialect0, wire.Dialect2)
	ends := []time.Duration{
		20 * time.Second, 90 * time.Second, 10 * time.Minute, 3 * time.Hour, 3 * time.Hour, 26 * time.Hour, -time.Second,
	}
	if !w.clock {
		ends = []time.Duration{3 * time.Hour}
	}
	var stubs []wire.Stub
	for range rapid.IntRange(1, 3).Draw(t, "n") {
		id := w.someJob(t)
		if rapid.IntRange(0, 4).Draw(t, "fresh") > 0 {
			id = "j" + itoa(len(w.names))
			w.names = append(w.names, id)
		}
		stubs = append(stubs, wire.Stub{
			ID: id, Kind: pick(t, "kind", chat, chat, gen), Owner: pick(t, "owner", ann, ann, bob),
			Audience:   pick(t, "audience", "public", "public", "team", "self", "private"),
			DeadlineAt: w.subs[0].rig.now().Add(pick(t, "deadline", ends...) + 700*time.Millisecond).UnixMilli(),
			Raw:        []byte("stub " + id),
		})
	}
	w.must(func(s *subject) string {
		got, err := s.rig.st.Enqueue(s.rig.ctx, site, d, stubs)
		s.rig.NoError(err)
		s.rig.Len(got, len(stubs))
		out := []string{}
		for i, stub := range stubs {
			k := store.Key{Site: site, Job: stub.ID}
			s.published[k] = true
			if s.m.jobs[k] == nil {
				delete(s.before, k)
			}
			want := s.m.enqueue(site, d, stub)
			s.rig.Equal(codeOf(want.Err), codeOf(got[i].Err))
			want.Err, got[i].Err = nil, nil
			s.rig.Equal(want, got[i])
			out = append(out, got[i].State.String())
		}
		return strings.Join(out, ",")
	})
}

func (w *world) claim(t *rapid.T) {
	runner := pick(t, "runner", modelRunners...)
	c := ask(runner, upTo(pick(t, "max", 1, 1, 2, 4, 0)), slots(pick(t, "slots", 4, 4, 8, 2, 0)),
		leased(w.span(lease)), speaking(pick(t, "dialect", wire.Dialect0, wire.Dialect0, wire.Dialect2)))
	c.Routes = nil
	mask := pick(t, "routes", 15, 15, 1, 3, 5, 9, 6, 14)
	for i, rt := range append(routes(ann, modelSites...), routes(bob, modelSites...)...) {
		if mask&(1<<i) != 0 {
			c.Routes = append(c.Routes, rt)
		}
	}
	c.Kinds = pick(t, "kinds", []string{chat, gen}, []string{chat, gen}, []string{gen}, []string{chat})
	if runner == r2 {
		c.Owner = bob
	}
	if rapid.Bool().Draw(t, "offered") {
		c.OfferFor = w.span(offer)
	}
	session := pick(t, "session", "poll", "poll", "newest", "old")
	w.may(func(s *subject) string { return s.claimAs(c, session) })
}

// claimAs claims with the number of a session and lets the model follow.
func (s *subject) claimAs(c store.Claim, session string) string {
	newest := s.m.newest(c.Runner)
	if session != "poll" {
		s.presweep()
		newest = s.m.newest(c.Runner)
		c.Number = newest
		if session == "old" || newest == 0 {
			c.Number = newest + 1000
		}
	}
	got, err := s.rig.st.Claim(s.rig.ctx, c)
	if c.Number != 0 && c.Number != newest {
		s.rig.ErrorIs(err, store.ErrSuperseded)
		return codeOf(err)
	}
	s.rig.NoError(err)
	s.m.fire()
	s.rig.Empty(s.m.follow(&c, got))
	out := []string{}
	for _, g := range got {
		s.grants, s.runners = append(s.grants, grantOf(g)), append(s.runners, c.Runner)
		out = append(out, g.Site+" "+g.Stub.ID)
	}
	return strings.Join(out, ",")
}

// some draws places of grants that were made, recent ones more often, and the runner who asks about them.
func (w *world) some(t *rapid.T, most int) (places []int, runner string) {
	n := len(w.subs[0].grants)
	runner = pick(t, "runner", modelRunners...)
	for range rapid.IntRange(1, most).Draw(t, "n") {
		at := -1 // a grant that never was
		if n > 0 && rapid.IntRange(0, 9).Draw(t, "bogus") > 0 {
			at = n - 1 - rapid.IntRange(0, min(n-1, 11)).Draw(t, "back")
		}
		if !slices.Contains(places, at) {
			places = append(places, at)
		}
	}
	if places[0] >= 0 && rapid.IntRange(0, 9).Draw(t, "other") > 0 {
		runner = w.subs[0].runners[places[0]]
	}
	return places, runner
}

func (s *subject) named(places []int) (out []wire.Grant) {
	for _, at := range places {
		if at < 0 || at >= len(s.grants) {
			out = append(out, bogus("a"))
		} else {
			out = append(out, s.grants[at])
		}
	}
	return out
}

func text(gs []wire.Grant) string { return strings.Join(ids(gs), ",") }

// same compares lists of grants in order and answers them as text.
func (s *subject) same(want, got []wire.Grant, err error) string {
	s.rig.NoError(err)
	s.rig.Equal(append([]wire.Grant{}, want...), append([]wire.Grant{}, got...))
	return text(got)
}

// alike compares lists of grants in any order.
func (s *subject) alike(want, got []wire.Grant) string {
	s.rig.ElementsMatch(want, got)
	names := ids(got)
	slices.Sort(names)
	return strings.Join(names, ",")
}

func (w *world) accept(t *rapid.T) {
	places, runner := w.some(t, 3)
	w.must(func(s *subject) string {
		gs := s.named(places)
		got, err := s.rig.st.Accept(s.rig.ctx, runner, gs)
		return s.same(s.m.acceptAll(runner, gs), got, err)
	})
}

func (w *world) renew(t *rapid.T) {
	places, runner := w.some(t, 3)
	d := w.span(pick(t, "for", lease, 20*time.Second))
	w.must(func(s *subject) string {
		gs := s.named(places)
		got, err := s.rig.st.Renew(s.rig.ctx, runner, gs, d)
		return s.same(s.m.renew(runner, gs, d), got, err)
	})
}

func (w *world) take(t *rapid.T) {
	places, runner := w.some(t, 1)
	times := pick(t, "times", 1, 1, 2, store.MaxTakes+1)
	w.must(func(s *subject) string {
		g := s.named(places)[0]
		out := ""
		for range times {
			got, err := s.rig.st.TakePayload(s.rig.ctx, runner, g)
			want, refused := s.m.take(runner, g)
			s.rig.Equal(codeOf(refusal(refused)), codeOf(err))
			s.rig.Equal(want, got)
			out += codeOf(err) + " "
		}
		return out
	})
}

func (w *world) complete(t *rapid.T) {
	places, runner := w.some(t, 1)
	env := resultFrom(runner, strings.Repeat("r", rapid.IntRange(1, 9).Draw(t, "bytes")))
	disposition := pick(t, "disposition", wire.DispositionOK, wire.DispositionError, wire.DispositionCanceled)
	w.must(func(s *subject) string {
		g := s.named(places)[0]
		got, err := s.rig.st.Complete(s.rig.ctx, runner, g, env, disposition)
		want, refused := s.m.complete(runner, g, env, disposition)
		s.rig.Equal(codeOf(refusal(refused)), codeOf(err))
		s.rig.Equal(want, got)
		return codeOf(err)
	})
}

func (w *world) release(t *rapid.T) {
	places, runner := w.some(t, 3)
	reason := pick(t, "reason", append(reasons, wire.ReleaseShutdown, wire.ReleaseShutdown)...)
	notFor := pick(t, "notFor", 0, 0, 30*time.Second)
	w.must(func(s *subject) string {
		gs := s.named(places)
		got, err := s.rig.st.Release(s.rig.ctx, runner, gs, reason, notFor)
		return s.same(s.m.release(runner, gs, reason, notFor), got, err)
	})
}

func (w *world) abandon(t *rapid.T) {
	runner := pick(t, "runner", modelRunners...)
	w.must(func(s *subject) string {
		s.presweep()
		number := s.m.newest(runner)
		if number == 0 {
			return "none"
		}
		got, err := s.rig.st.Abandon(s.rig.ctx, runner, number)
		s.rig.NoError(err)
		return s.alike(s.m.abandon(runner, number), got)
	})
}

func (w *world) resume(t *rapid.T) {
	places, runner := w.some(t, 4)
	old := rapid.IntRange(0, 5).Draw(t, "old") == 0
	w.must(func(s *subject) string {
		s.presweep()
		gs, number := s.named(places), s.m.newest(runner)
		if old || number == 0 {
			_, err := s.rig.st.Resume(s.rig.ctx, runner, number+1000, gs, lease)
			s.rig.ErrorIs(err, store.ErrSuperseded)
			return "superseded"
		}
		got, err := s.rig.st.Resume(s.rig.ctx, runner, number, gs, w.span(lease))
		s.rig.NoError(err)
		want := s.m.resume(runner, gs, w.span(lease))
		return s.alike(want.Kept, got.Kept) + "/" + s.alike(want.Lost, got.Lost) + "/" + s.alike(want.Returned, got.Returned)
	})
}
