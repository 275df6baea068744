package hub

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pushrelay/hub/grants"
	"pushrelay/hub/projection"
	"pushrelay/store"
	"pushrelay/wire"
)

// plane is a control plane: it signs, unless decide says otherwise.
type plane struct {
	private ed25519.PrivateKey

	mu     sync.Mutex
	asked  []string // "runner job" of each question
	calls  int
	hold   chan struct{} // not nil: answers wait for it
	err    error
	decide func(runner, job string) string // a decline, or ""
	told   map[grants.Outcome]int
}

func (p *plane) Ask(ctx context.Context, runners []*wire.GrantRunner) ([]wire.GrantAnswer, error) {
	p.mu.Lock()
	p.calls++
	var out []wire.GrantAnswer
	for _, r := range runners {
		for i := range r.Jobs {
			j := &r.Jobs[i]
			p.asked = append(p.asked, r.RunnerID+" "+j.Stub.ID)
			a := wire.GrantAnswer{LeaseID: j.LeaseID}
			if p.decide != nil {
				a.Decline = p.decide(r.RunnerID, j.Stub.ID)
			}
			if a.Decline == "" {
				a.Grant = &wire.SignedGrant{
					GrantID: fmt.Sprint("g", len(p.asked)), JobID: j.Stub.ID, Site: j.Stub.Site, User: j.Stub.Owner, Owner: r.Owner,
					Purpose: wire.DefaultPurpose, Kind: j.Stub.Kind, Service: r.Capabilities[0].Service, IssuedAt: time.Now().UnixMilli(),
				}
				a.Grant.Signature = wire.EncodeBase64(ed25519.Sign(p.private, a.Grant.Statement()))
			}
			out = append(out, a)
		}
	}
	hold, err := p.hold, p.err
	p.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return out, err
}

func (p *plane) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

func (p *plane) questions() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string{}, p.asked...)
}

func (p *plane) outcome(o grants.Outcome) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.told[o]
}

func (p *plane) requests() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls
}

// inPlanned is a world whose hub asks a control plane. Its devices are ada's d1 and d2; ada shares them with bob.
func inPlanned(t *testing.T, set Settings, f func(w *world, p *plane)) {
	t.Helper()
	var p *plane
	inWorldFor(t, func(cfg *Config) {
		party := newParty(t, "control plane")
		p = &plane{private: party.private, told: map[grants.Outcome]int{}}
		cfg.Settings = set
		cfg.Grants = &GrantConfig{Endpoint: p, Key: party.key, Told: func(o grants.Outcome, n int) { p.set(func() { p.told[o] += n }) }}
	}, func(w *world) {
		w.replace(w.basic().Consent("bob", "shop").Roster("team", "ada", "bob"))
		f(w, p)
	})
}

func (w *world) site2() *client {
	w.t.Helper()
	c, err := w.admit(wire.RoleSite, "shop", func(a *Arrival) { a.Dialect, a.Hello.ProtocolVersion = wire.Dialect2, "2" })
	require.NoError(w.t, err)
	return c
}

func (w *world) daemon2(name string) *client {
	w.t.Helper()
	return w.daemon(name, func(a *Arrival) {
		a.Dialect, a.Hello.ProtocolVersion, a.Hello.Capabilities = wire.Dialect2, "2", []byte(capabilities2)
	})
}

// publish enqueues jobs of an owner for a team.
func (c *client) publish(owner string, ids ...string) {
	c.w.t.Helper()
	var f wire.Enqueue
	for _, id := range ids {
		f.Stubs = append(f.Stubs, c.w.stub(id, func(s *wire.Stub) { s.Owner, s.Audience = owner, "team" }))
	}
	require.Nil(c.w.t, c.ask(wire.TypeEnqueue, f).err)
	synctest.Wait()
}

// offers answers the unread claimed jobs.
func (c *client) offers() []wire.ClaimedJob {
	c.w.t.Helper()
	var out []wire.ClaimedJob
	for _, f := range take[wire.Claimed](c, wire.TypeClaimed) {
		for _, raw := range f.Jobs {
			j, err := wire.ParseClaimed(wire.Dialect2, raw)
			require.NoError(c.w.t, err)
			out = append(out, j)
		}
	}
	return out
}

func leaseOf(j wire.ClaimedJob) wire.Grant { return wire.Grant{JobID: j.Stub.ID, LeaseID: j.Lease.ID} }

func TestGrantsAreCarried(t *testing.T) {
	inPlanned(t, Settings{}, func(w *world, p *plane) {
		site, d := w.site2(), w.daemon2("d1")
		site.publish("ada", "hers")
		site.publish("bob", "his")
		jobs := d.offers()
		require.Len(t, jobs, 2, "with grants other owners' jobs come, too")
		for _, j := range jobs {
			require.NotNil(t, j.Grant)
			assert.NoError(t, j.Grant.Check(newParty(t, "control plane").key, j.Stub, "ada", time.Now().UnixMilli(), wire.GrantMaxAgeMs))
			assert.Empty(t, d.accept(leaseOf(j)))
		}
		for _, r := range site.sealRequests() {
			require.Nil(t, site.seal(grantOf(r), "d1").err)
		}
		payloads := take[wire.Payload](d, wire.TypePayload)
		require.Len(t, payloads, 2)
		for _, j := range payloads {
			require.Nil(t, d.complete(wire.Grant{JobID: j.JobID, LeaseID: j.LeaseID}).err)
		}
		assert.Len(t, site.results(), 2)
		assert.Equal(t, 2, p.outcome(grants.Signed))
	})
}

// Without grants in its dialect a daemon is served as ever, and nobody is asked.
func TestOtherDialectsAskNobody(t *testing.T) {
	inPlanned(t, Settings{}, func(w *world, p *plane) {
		site, d := w.site("shop"), w.daemon("d1", nil)
		site.enqueue("j")
		assert.Len(t, d.claimed(), 1)
		assert.Empty(t, p.questions())
	})
}

func TestDeclinedJobsGoElsewhere(t *testing.T) {
	for _, word := range []string{wire.DeclineTemporary, wire.DeclinePermanent} {
		t.Run(word, func(t *testing.T) {
			inPlanned(t, Settings{}, func(w *world, p *plane) {
				p.decide = func(runner, _ string) string {
					if runner == "d1" {
						return word
					}
					return ""
				}
				site, one := w.site2(), w.daemon2("d1")
				site.publish("bob", "j")
				assert.Equal(t, []string{"d1 j"}, p.questions())
				assert.Empty(t, one.offers(), "the daemon never hears of it")
				assert.Empty(t, site.sealRequests(), "nor does the site")
				assert.Empty(t, site.notices(wire.TypeRequeued))
				w.advance(29 * time.Second)
				assert.Len(t, p.questions(), 1, "not for 30 s")
				w.advance(10 * time.Second)
				if word == wire.DeclinePermanent {
					assert.Len(t, p.questions(), 1, "never again")
				} else {
					assert.Greater(t, len(p.questions()), 1)
				}
				two := w.daemon2("d2")
				w.advance(10 * time.Second)
				jobs := two.offers()
				require.Len(t, jobs, 1, "another device may have it")
				assert.NotNil(t, jobs[0].Grant)
			})
		})
	}
}

// An endpoint that says nothing costs those who need it, and nobody else: not their slots for good, not their standing.
func TestASilentControlPlane(t *testing.T) {
	inPlanned(t, Settings{}, func(w *world, p *plane) {
		p.hold = make(chan struct{})
		site, zero := w.site2(), w.site("shop")
		d, plain := w.daemon2("d1"), w.daemon("d2", nil)
		site.publish("ada", "a", "b", "c")
		for i := range 20 {
			id := fmt.Sprint("plain", i)
			zero.enqueue(id)
			g := plain.claimed()
			require.Len(t, g, 1, "dialect 0 doesn't wait")
			plain.accept(g...)
			for _, r := range append(zero.sealRequests(), site.sealRequests()...) {
				require.Nil(t, zero.seal(grantOf(r), "d2").err)
			}
			require.Nil(t, plain.complete(g[0]).err)
		}
		assert.Empty(t, d.offers())
		w.advance(4 * time.Second)
		assert.Empty(t, d.offers())
		assert.Equal(t, 3, p.outcome(grants.Failed))
		w.advance(time.Minute)
		p.set(func() { close(p.hold); p.hold = nil })
		n := 0
		for range 60 {
			if n == 3 {
				break
			}
			w.advance(time.Second)
			for _, j := range d.offers() {
				n++
				assert.Empty(t, d.accept(leaseOf(j)))
			}
		}
		assert.Equal(t, 3, n, "it isn't deaf: it was never asked")
		assert.Zero(t, w.obs.ends(store.WhyUnaccepted))
		assert.Empty(t, d.lost(wire.LostUnaccepted))
	})
}

// However late the answer, the daemon has its own 5 s.
func TestASlowControlPlaneTakesNothingFromTheDaemon(t *testing.T) {
	inPlanned(t, Settings{}, func(w *world, p *plane) {
		p.hold = make(chan struct{})
		site, d := w.site2(), w.daemon2("d1")
		site.publish("ada", "j")
		w.advance(1900 * time.Millisecond)
		p.set(func() { close(p.hold) })
		synctest.Wait()
		jobs := d.offers()
		require.Len(t, jobs, 1)
		w.advance(5 * time.Second)
		assert.Empty(t, d.accept(leaseOf(jobs[0])))
		assert.Len(t, site.sealRequests(), 1)
	})
}

func TestWhatHappensWhileAsking(t *testing.T) {
	// The question is open when happen runs, and is answered with a grant afterwards.
	asking := func(t *testing.T, happen func(w *world, p *plane, site, d *client), then func(w *world, p *plane, site, d *client)) {
		t.Helper()
		inPlanned(t, Settings{}, func(w *world, p *plane) {
			p.hold = make(chan struct{})
			site, d := w.site2(), w.daemon2("d1")
			site.publish("bob", "j")
			require.Equal(t, []string{"d1 j"}, p.questions())
			happen(w, p, site, d)
			synctest.Wait()
			p.set(func() { close(p.hold); p.hold = nil })
			synctest.Wait()
			then(w, p, site, d)
		})
	}
	nothing := func(t *testing.T, d *client) {
		t.Helper()
		assert.Empty(t, d.offers())
		assert.Empty(t, take[wire.GrantsPush](d, wire.TypeLost), "the daemon was never told of it")
		assert.Empty(t, d.cancels())
	}
	t.Run("the site cancels", func(t *testing.T) {
		asking(t, func(_ *world, _ *plane, site, _ *client) {
			require.Nil(t, site.ask(wire.TypeCancel, wire.CancelJobs{JobIDs: []string{"j"}}).err)
		}, func(_ *world, _ *plane, site, d *client) {
			nothing(t, d)
			n := site.notices(wire.TypeNotices)
			require.Len(t, n, 1)
			assert.Equal(t, string(store.WhyCancelled), n[0].Why)
		})
	})
	t.Run("the session is cut", func(t *testing.T) {
		asking(t, func(w *world, p *plane, _, d *client) {
			d.close()
			two := w.daemon2("d2")
			require.Len(t, p.questions(), 2, "another device may have it at once")
			_ = two
		}, func(_ *world, _ *plane, _, d *client) { nothing(t, d) })
	})
	t.Run("the daemon comes back", func(t *testing.T) {
		var again *client
		asking(t, func(w *world, _ *plane, _, _ *client) { again = w.daemon2("d1") }, func(_ *world, p *plane, _, d *client) {
			nothing(t, d)
			assert.Len(t, again.offers(), 1, "the new session is asked for anew")
			assert.Len(t, p.questions(), 2)
		})
	})
	t.Run("consent ends", func(t *testing.T) {
		asking(t, func(w *world, _ *plane, _, _ *client) { w.replace(w.basic().Roster("team", "ada", "bob")) },
			func(w *world, _ *plane, _, d *client) {
				nothing(t, d)
				held, err := w.store.Held(t.Context(), "d1")
				require.NoError(t, err)
				assert.Empty(t, held)
			})
	})
	t.Run("the roster ends", func(t *testing.T) {
		asking(t, func(w *world, _ *plane, _, _ *client) { w.replace(w.basic().Consent("bob", "shop")) },
			func(_ *world, _ *plane, _, d *client) { nothing(t, d) })
	})
	t.Run("consent is paused", func(t *testing.T) {
		asking(t, func(w *world, _ *plane, _, _ *client) {
			w.replace(w.basic().Pause("bob", "shop").Roster("team", "ada", "bob"))
		}, func(_ *world, _ *plane, _, d *client) { nothing(t, d) })
	})
	t.Run("the device is revoked", func(t *testing.T) {
		asking(t, func(w *world, _ *plane, _, d *client) {
			w.replace(w.basic().MarkRevoked("d1", true).Consent("bob", "shop").Roster("team", "ada", "bob"))
			d.close()
		}, func(_ *world, _ *plane, _, d *client) { assert.Empty(t, d.offers()) })
	})
	t.Run("the relay drains", func(t *testing.T) {
		asking(t, func(w *world, _ *plane, _, _ *client) { w.hub.StopClaims() }, func(w *world, _ *plane, _, d *client) {
			nothing(t, d)
			held, err := w.store.Held(t.Context(), "d1")
			require.NoError(t, err)
			assert.Empty(t, held, "others have it at once")
		})
	})
}

// A deep queue of jobs that are declined isn't walked through again and again, and doesn't hold up another route.
func TestDeclinesDontSpin(t *testing.T) {
	inPlanned(t, Settings{}, func(w *world, p *plane) {
		p.decide = func(_, job string) string {
			if job[0] == 'b' {
				return wire.DeclineTemporary
			}
			return ""
		}
		site, d := w.site2(), w.daemon2("d1")
		var ids []string
		for i := range 200 {
			ids = append(ids, fmt.Sprint("b", i))
		}
		site.publish("bob", ids...)
		w.advance(time.Minute)
		n := len(p.questions())
		assert.Less(t, n, 200, "questions in a minute")
		site.publish("ada", "hers")
		synctest.Wait()
		require.Len(t, d.offers(), 1, "another route is served at once")
	})
}

func TestAFailingControlPlaneIsLeftAlone(t *testing.T) {
	inPlanned(t, Settings{}, func(w *world, p *plane) {
		p.err = errors.New("down")
		site := w.site2()
		one, two := w.daemon2("d1"), w.daemon2("d2")
		var ids []string
		for i := range 200 {
			ids = append(ids, fmt.Sprint("j", i))
		}
		site.publish("ada", ids...)
		w.advance(5 * time.Minute)
		assert.Less(t, p.requests(), 60, "requests in five minutes")
		assert.Empty(t, append(one.offers(), two.offers()...))
		p.set(func() { p.err = nil })
		w.advance(time.Minute)
		assert.NotEmpty(t, append(one.offers(), two.offers()...))
	})
}

// A claim whose question is out when the hub ends isn't left waiting for its answer.
func TestTheEndAnswersHeldClaims(t *testing.T) {
	inPlanned(t, Settings{}, func(w *world, p *plane) {
		p.hold = make(chan struct{})
		site := w.site2()
		c := w.claimIn(wire.Dialect2, "d1", 1, time.Hour)
		site.publish("ada", "j")
		c.hangUp()
		require.False(t, c.over(), "the question is out")
		w.stop()
		require.True(t, c.over())
	})
}

func TestGrantConfigIsChecked(t *testing.T) {
	key := newParty(t, "control plane").key
	for name, c := range map[string]struct {
		set Settings
		cfg GrantConfig
	}{
		"no endpoint":         {Settings{}, GrantConfig{Key: key}},
		"no key":              {Settings{}, GrantConfig{Endpoint: &plane{}}},
		"longer than a lease": {Settings{LeaseFor: 9 * time.Second}, GrantConfig{Endpoint: &plane{}, Key: key}},
	} {
		_, err := New(Config{Store: &switchStore{}, Projection: projection.NewHolder(nil), Settings: c.set, Grants: &c.cfg})
		assert.Error(t, err, name)
	}
}
