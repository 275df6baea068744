package storetest

import (
	"time"

	"pgregory.net/rapid"

	"pushrelay/store"
	"pushrelay/wire"
)

// reopen closes the store and opens it again, after a while that may be none.
func (w *world) reopen(t *rapid.T) {
	d := time.Duration(pick(t, "closed", 0, 0, 1, 70)) * time.Second
	w.must(func(s *subject) string {
		s.sweep()
		s.checkEvents() // or they would go with their watcher
		s.rig.clock.Advance(d)
		s.m.now = s.m.now.Add(d)
		s.rig.st = s.rig.f.Reopen(s.t, s.rig.st, s.rig.set, s.rig.clock)
		s.tap = &tap{r: s.rig, w: s.rig.st.Watch(store.Interest{}), sites: modelSites}
		s.reopened()
		s.unswept = 0
		return ""
	})
}

// reopened lets the model forget what isn't kept, and follow the grace that leases and windows got.
func (s *subject) reopened() {
	for _, p := range s.m.parties {
		clear(p.sessions)
	}
	for _, j := range s.m.jobs {
		j.offer = moffer{id: j.offer.id}
		j.uncertainly = j.widened && j.awaits()
		if !j.held() {
			continue
		}
		got := s.rig.job(j.Site, j.Key.Job)
		s.rig.False(got.LeaseEnds.Before(j.LeaseEnds), "a reopened store took time off a lease")
		j.LeaseEnds = got.LeaseEnds
		if j.awaits() || j.State == store.AwaitingPayload && !j.Offered {
			s.rig.False(got.WindowEnds.Before(j.WindowEnds), "a reopened store took time off a window")
			j.WindowEnds = got.WindowEnds
		}
	}
	s.m.rememberTurns()
}

// rememberTurns leaves those turns certain that a record tells of: its last grant was the turn.
func (m *model) rememberTurns() {
	told := map[store.Route]int{}
	for _, j := range m.jobs {
		site := store.Route{Site: j.Site}
		told[site], told[j.queue.Route] = max(told[site], j.served), max(told[j.queue.Route], j.served)
	}
	for r, t := range m.turns {
		if t.at != told[r] {
			t.certain = false
		}
	}
}

// fail lets calls meet a medium that is away: each is refused or changes nothing, and what was done before stands.
func (w *world) fail(t *rapid.T) {
	calls := make([]func(s *subject) error, rapid.IntRange(1, 5).Draw(t, "calls"))
	for i := range calls {
		calls[i] = w.doomed(t)
	}
	w.must(func(s *subject) string {
		if s.rig.f.Fail == nil {
			return ""
		}
		if s.m.sessionDue() {
			s.sweep() // who is present isn't kept, so that a session ends without a medium as well
		}
		s.rig.f.Fail(s.t, s.rig.st, true)
		for _, call := range calls {
			if err := call(s); err != nil {
				_, refused := err.(*store.Refusal)
				s.rig.True(refused, "%v", err)
			}
		}
		s.rig.f.Fail(s.t, s.rig.st, false)
		return ""
	})
}

// sessionDue reports whether a session's time is over that no sweep has ended yet.
func (m *model) sessionDue() bool {
	for _, party := range m.parties {
		for _, s := range party.sessions {
			if !s.ends.After(m.now) {
				return true
			}
		}
	}
	return false
}

// doomed draws a call that may change what is kept; the model isn't told of it.
func (w *world) doomed(t *rapid.T) func(s *subject) error {
	places, runner := w.some(t, 3)
	site, name := pick(t, "site", modelSites...), w.someJob(t)
	env := payloadFor(runner, "doomed")
	stub := wire.Stub{ID: "doomed", Kind: chat, Owner: ann, Audience: "public", DeadlineAt: w.subs[0].rig.now().Add(time.Hour).UnixMilli()}
	calls := []func(s *subject) error{
		func(s *subject) error {
			_, err := s.rig.st.Enqueue(s.rig.ctx, site, wire.Dialect0, []wire.Stub{stub})
			return err
		},
		func(s *subject) error {
			_, err := s.rig.st.Claim(s.rig.ctx, ask(runner, upTo(4), along(append(routes(ann, modelSites...), routes(bob, modelSites...)...)...)))
			return err
		},
		func(s *subject) error { _, err := s.rig.st.Accept(s.rig.ctx, runner, s.named(places)); return err },
		func(s *subject) error {
			_, err := s.rig.st.Renew(s.rig.ctx, runner, s.named(places), time.Hour)
			return err
		},
		func(s *subject) error {
			_, err := s.rig.st.TakePayload(s.rig.ctx, runner, s.named(places)[0])
			return err
		},
		func(s *subject) error {
			_, err := s.rig.st.Complete(s.rig.ctx, runner, s.named(places)[0], resultFrom(runner, "doomed"), wire.DispositionError)
			return err
		},
		func(s *subject) error {
			_, err := s.rig.st.Release(s.rig.ctx, runner, s.named(places), wire.ReleaseRefused, time.Hour)
			return err
		},
		func(s *subject) error {
			_, err := s.rig.st.Resume(s.rig.ctx, runner, s.m.newest(runner), s.named(places), time.Hour)
			return err
		},
		func(s *subject) error { _, err := s.rig.st.Seal(s.rig.ctx, site, s.named(places)[0], env); return err },
		func(s *subject) error { _, err := s.rig.st.Sealing(s.rig.ctx, site, s.named(places)); return err },
		func(s *subject) error { _, err := s.rig.st.Decline(s.rig.ctx, site, s.named(places)); return err },
		func(s *subject) error { _, err := s.rig.st.Cancel(s.rig.ctx, site, []string{name}); return err },
		func(s *subject) error { return s.rig.st.Collect(s.rig.ctx, site, s.named(places)) },
		func(s *subject) error { _, err := s.rig.st.Sweep(s.rig.ctx); return err },
	}
	return calls[rapid.IntRange(0, len(calls)-1).Draw(t, "doomed")]
}
