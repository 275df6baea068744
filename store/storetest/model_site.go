package storetest

import (
	"strings"
	"time"

	"pgregory.net/rapid"

	"pushrelay/store"
	"pushrelay/wire"
)

func (w *world) seal(t *rapid.T) {
	places, runner := w.some(t, 1)
	site := pick(t, "site", siteA, siteA, siteA, siteB)
	polled := rapid.IntRange(0, 3).Draw(t, "polled") == 0
	env := payloadFor(runner, strings.Repeat("p", rapid.IntRange(1, 9).Draw(t, "bytes")))
	w.must(func(s *subject) string {
		g := s.named(places)[0]
		if polled {
			g.LeaseID = ""
		}
		return s.sealOne(site, g, env)
	})
}

func (s *subject) sealOne(site string, g wire.Grant, env wire.Envelope) string {
	got, err := s.rig.st.Seal(s.rig.ctx, site, g, env)
	want, refused, vague := s.m.seal(site, g, env)
	if vague {
		return ""
	}
	s.rig.Equal(codeOf(refusal(refused)), codeOf(err))
	s.rig.Equal(want, got)
	return codeOf(err)
}

func (w *world) sealing(t *rapid.T) {
	places, _ := w.some(t, 3)
	site := pick(t, "site", modelSites...)
	w.must(func(s *subject) string {
		s.presweep()
		gs := s.named(places)
		got, err := s.rig.st.Sealing(s.rig.ctx, site, gs)
		return s.same(s.m.sealing(site, gs), got, err)
	})
}

func (w *world) decline(t *rapid.T) {
	places, _ := w.some(t, 2)
	site := pick(t, "site", modelSites...)
	w.must(func(s *subject) string {
		gs := s.named(places)
		got, err := s.rig.st.Decline(s.rig.ctx, site, gs)
		return s.same(s.m.decline(site, gs), got, err)
	})
}

func (w *world) cancel(t *rapid.T) {
	site := pick(t, "site", modelSites...)
	names := w.someJobs(t)[:1]
	w.must(func(s *subject) string {
		got, err := s.rig.st.Cancel(s.rig.ctx, site, names)
		s.rig.NoError(err)
		s.rig.Equal(s.m.cancel(site, names), got)
		return ""
	})
}

func (w *world) offer(t *rapid.T) {
	site, session := pick(t, "site", modelSites...), pick(t, "session", "s1", "s2")
	what := pick(t, "what", store.OfferSeals, store.OfferResults, store.OfferNotices)
	limit, bytes := rapid.IntRange(0, 4).Draw(t, "max"), pick(t, "bytes", int64(5), int64(12), int64(1000))
	w.may(func(s *subject) string {
		s.presweep()
		s.attachAs(store.Party{Role: store.SiteRole, ID: site}, session, w.span(30*time.Second))
		got, err := s.rig.st.Offer(s.rig.ctx, site, session, what, limit, bytes, w.span(8*time.Second))
		s.rig.NoError(err)
		s.rig.Empty(s.m.followOffer(site, session, what, limit, bytes, w.span(8*time.Second), got))
		return strings.Join(offeredIDs(got), ",")
	})
}

// collect names finished jobs by their grant and dropped ones by their notice's id, where one was seen.
func (w *world) collect(t *rapid.T) {
	site := pick(t, "site", modelSites...)
	names := w.someJobs(t)
	if rapid.Bool().Draw(t, "many") {
		names = append(names, w.names[max(0, len(w.names)-20):]...)
	}
	w.must(func(s *subject) string {
		gs := []wire.Grant{bogus(names[0])}
		for _, id := range names {
			if j := s.m.jobs[store.Key{Site: site, Job: id}]; j != nil {
				g := grantOfJob(j)
				if j.dropped != "" {
					g.LeaseID = j.offer.id
				}
				gs = append(gs, g)
			}
		}
		s.rig.NoError(s.rig.st.Collect(s.rig.ctx, site, gs))
		s.m.collect(site, gs)
		return ""
	})
}

func (w *world) party(t *rapid.T) store.Party {
	if rapid.Bool().Draw(t, "site") {
		return store.Party{Role: store.SiteRole, ID: pick(t, "id", modelSites...)}
	}
	return store.Party{Role: store.RunnerRole, ID: pick(t, "id", modelRunners...)}
}

func (w *world) attach(t *rapid.T) {
	p, session := w.party(t), pick(t, "session", "s1", "s2", "s3")
	d := w.span(pick(t, "for", 12*time.Second, 30*time.Second, 10*time.Minute))
	w.must(func(s *subject) string {
		s.presweep()
		s.attachAs(p, session, d)
		return ""
	})
}

// attachAs attaches and judges the number: kept by a session that stands, else above all before.
func (s *subject) attachAs(p store.Party, session string, d time.Duration) {
	n := s.rig.attachFor(p, session, d)
	party := s.m.parties[p]
	if party == nil {
		party = &mparty{sessions: map[string]*msession{}}
		s.m.parties[p] = party
	}
	if old := party.sessions[session]; old != nil {
		s.rig.Equal(old.number, n)
		old.ends = s.m.now.Add(d)
		return
	}
	s.rig.Greater(n, party.last)
	party.last = n
	party.sessions[session] = &msession{number: n, ends: s.m.now.Add(d)}
}

func (w *world) detach(t *rapid.T) {
	p, session := w.party(t), pick(t, "session", "s1", "s2", "s3")
	w.must(func(s *subject) string {
		s.presweep()
		s.rig.NoError(s.rig.st.Detach(s.rig.ctx, p, session))
		if party := s.m.parties[p]; party != nil && party.sessions[session] != nil {
			s.m.endSession(p, session)
		}
		party := s.m.parties[p]
		s.rig.present(p, party != nil && len(party.sessions) > 0)
		return ""
	})
}

// work takes the newest grants on towards their result, so that runs see whole lives.
func (w *world) work(t *rapid.T) {
	n := rapid.IntRange(1, 4).Draw(t, "n")
	finish := rapid.Bool().Draw(t, "finish")
	w.must(func(s *subject) string {
		out := ""
		for i := max(0, len(s.grants)-n); i < len(s.grants); i++ {
			g, runner := s.grants[i], s.runners[i]
			j := s.m.standing(runner, g)
			if j == nil {
				continue
			}
			s.same(s.m.acceptAll(runner, one(g)), s.rig.accept(runner, g), nil)
			out += s.sealOne(j.Site, g, payloadFor(runner, "pay")) + " "
			got, err := s.rig.st.TakePayload(s.rig.ctx, runner, g)
			want, refused := s.m.take(runner, g)
			s.rig.Equal(codeOf(refusal(refused)), codeOf(err))
			s.rig.Equal(want, got)
			if finish {
				c, err := s.rig.st.Complete(s.rig.ctx, runner, g, resultFrom(runner, "res"), wire.DispositionOK)
				want, refused := s.m.complete(runner, g, resultFrom(runner, "res"), wire.DispositionOK)
				s.rig.Equal(codeOf(refusal(refused)), codeOf(err))
				s.rig.Equal(want, c)
			}
		}
		return out
	})
}

// wait moves the clock without a sweep, never so far that a sweeper would count as away.
func (w *world) wait(t *rapid.T) {
	d := time.Duration(rapid.IntRange(1, 4).Draw(t, "seconds")) * time.Second
	w.must(func(s *subject) string {
		if s.unswept+d > store.SweeperAway {
			s.sweep()
		}
		s.unswept += d
		s.rig.clock.Advance(d)
		s.m.now = s.m.now.Add(d)
		return ""
	})
}

// pass lets time go by with a sweeper at work, or jumps far where nothing is held.
func (w *world) pass(t *rapid.T) {
	d := time.Duration(pick(t, "seconds", 4, 4, 8, 8, 16, 64)) * time.Second
	far := time.Duration(rapid.IntRange(0, 60).Draw(t, "hours")-54) * time.Hour
	w.must(func(s *subject) string {
		s.sweep()
		held := false
		for _, j := range s.m.jobs {
			held = held || j.held()
		}
		if far > 0 && !held {
			s.jump(far)
		} else {
			s.pass(d)
		}
		return ""
	})
}
