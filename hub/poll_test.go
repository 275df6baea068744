package hub

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pushrelay/hub/projection"
	"pushrelay/session"
	"pushrelay/store"
	"pushrelay/wire"
)

const long = time.Hour // a hold that only ends for a reason

func TestPolledClaimIsOfferedUntilWritten(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site := w.site("shop")
		c := w.claim("d1", long)
		require.False(t, c.over())
		site.enqueue("j")
		require.True(t, c.over(), "it is told at once")
		assert.Empty(t, site.sealRequests(), "its site isn't told before the client was")
		jobs := c.jobs(true)
		require.Len(t, jobs, 1)
		seals := site.sealRequests()
		require.Len(t, seals, 1, "what was written is accepted")
		assert.Equal(t, leaseOf(jobs[0]), grantOf(seals[0]))
		w.advance(6 * time.Second)
		assert.Zero(t, w.obs.ends(store.WhyUnaccepted))
	})
}

func TestPolledClaimOfAClientThatIsGone(t *testing.T) {
	points := map[string]func(w *world, site *client) (gone *polled){
		"while it is held": func(w *world, site *client) *polled {
			c := w.claim("d1", long)
			c.hangUp()
			synctest.Wait()
			site.enqueue("j")
			return c
		},
		"between the claim and its answer": func(w *world, site *client) *polled {
			var c *polled
			w.store.onClaim = func() { c.hangUp() }
			c = w.claim("d1", long)
			site.enqueue("j")
			w.store.onClaim = nil
			return c
		},
		"before the answer is written": func(w *world, site *client) *polled {
			c := w.claim("d1", long)
			site.enqueue("j")
			require.Len(w.t, c.jobs(false), 1)
			return nil
		},
	}
	for name, point := range points {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Settings{}, func(w *world) {
				site := w.site("shop")
				if c := point(w, site); c != nil {
					require.True(t, c.over())
					require.ErrorIs(t, c.err, context.Canceled)
				}
				assert.Empty(t, site.sealRequests(), "its site never hears of it")
				again := w.claim("d1", long)
				require.True(t, again.over(), "it goes back at once, to the same runner, too")
				require.Len(t, again.jobs(true), 1)
				require.Len(t, site.sealRequests(), 1)
			})
		})
	}
}

// A claim that somebody else sends again would keep jobs from others that its daemon never hears of.
func TestPolledClaimThatIsReplayed(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site := w.site("shop")
		call, r := w.call("d1", wire.Dialect0), &wire.ClaimRequest{RunnerID: "d1", Max: 1}
		var err error
		r.Capabilities, err = wire.ParseCapabilities(wire.Dialect0, []byte(capabilities0))
		require.NoError(t, err)
		claim := func(hold time.Duration) *polled {
			return w.poll(func(ctx context.Context) (session.Answer, error) { return w.hub.PollClaim(ctx, call, r, hold) })
		}
		site.enqueue("a", "b", "c")
		require.Len(t, claim(0).jobs(true), 1)
		require.Len(t, claim(0).jobs(true), 1, "a daemon may ask twice within a millisecond")
		for range 3 {
			w.advance(time.Minute)
			require.Empty(t, claim(long).jobs(true))
		}
		call.Signature = "another"
		require.Len(t, claim(0).jobs(true), 1)
	})
}

// Whatever is claimed for one held claim at the same time is in its one answer.
func TestPolledClaimTakesAllThatIsClaimedForIt(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		w.replace(w.basic().Site("blog", w.party("blog").identity).Consent("ada", "blog"))
		site := w.site("shop")
		c := w.claimIn(wire.Dialect0, "d1", 2, long)
		site.enqueue("a", "b", "c")
		assert.Len(t, c.jobs(true), 2, "as many as it asked for")
		d := w.claim("d2", 0)
		assert.Len(t, d.jobs(true), 1)
	})
}

func TestPolledClaimEndsWithItsTime(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		w.site("shop")
		c := w.claim("d1", 15*time.Second)
		w.advance(15*time.Second - time.Millisecond)
		require.False(t, c.over())
		w.advance(time.Millisecond)
		assert.Empty(t, c.jobs(true))
	})
}

// A daemon refuses the jobs of a site that it doesn't know for good, so it is told of a site before it gets any.
func TestPolledClaimsWaitForTheirSites(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		w.replace(w.basic().Pause("bob", "shop"))
		w.heartbeat("d1")
		c := w.claim("d1", long)
		w.replace(w.basic()) // nothing of it is about ada
		require.False(t, c.over())
		w.replace(w.basic().Site("blog", w.party("blog").identity).Consent("ada", "blog"))
		assert.Empty(t, c.jobs(true), "it is let go to be told")
		w.heartbeat("d1")
		c = w.claim("d1", long)
		require.False(t, c.over())

		w.replace(w.basic())
		assert.Empty(t, c.jobs(true))
		w.site("shop").enqueue("j")
		assert.Empty(t, w.claim("d1", long).jobs(true), "it wasn't told")
		assert.Len(t, w.claim("d1", long).jobs(true), 1, "who asks again was told elsewhere")
	})
}

func TestPolledGrantsFollowTheProjection(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		both := func() *projection.Example {
			return w.basic().Site("blog", w.party("blog").identity).Consent("ada", "blog")
		}
		w.replace(both())
		site := w.site("shop")
		c := w.claim("d1", long)
		w.store.onClaim = func() { require.NoError(t, w.hub.Replace(w.parse(both().Revoke("ada", "shop")))) }
		site.enqueue("j")
		w.store.onClaim = nil
		assert.Empty(t, c.jobs(true), "what no longer stands isn't told")
		assert.Equal(t, 1, w.obs.ends(store.WhyWithdrawn))
	})
}

func TestPolledClaimsSupersedeNobody(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site, d := w.site("shop"), w.daemon("d1", nil)
		c := w.claim("d1", time.Second)
		w.heartbeat("d1")
		assert.Empty(t, d.reason())
		w.advance(time.Second)
		require.True(t, c.over())
		site.enqueue("j")
		assert.Len(t, d.claimed(), 1, "the session goes on")
	})
}

// A site that only polls is there while a pending of it is held, and for 5 s after each poll.
func TestPollsMakeASitePresent(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		d := w.daemon("d1", nil)
		w.publish("a")
		assert.Empty(t, d.claimed(), "nobody would seal it")
		w.results(true)
		d.accept(d.claimed()...)
		w.advance(5*time.Second - time.Millisecond)
		w.publish("b")
		b := d.claimed()
		require.Len(t, b, 1)
		d.accept(b...)
		w.advance(time.Second)
		w.publish("c")
		assert.Empty(t, d.claimed())
		w.advance(10 * time.Second)
		p := w.pending(time.Second)
		assert.NotEmpty(t, d.claimed())
		w.advance(time.Second)
		require.True(t, p.over())
		w.advance(6 * time.Second)
		there, err := w.store.Present(w.t.Context(), store.Party{Role: store.SiteRole, ID: "shop"})
		require.NoError(t, err)
		assert.False(t, there, "other replicas know that it is gone")
	})
}

func TestPendingWaitsForSomethingToSeal(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		w.results(true)
		p := w.pending(5 * time.Second)
		c := w.claim("d1", long)
		w.publish("j")
		require.Len(t, c.jobs(true), 1)
		require.Len(t, p.seals(false), 1)
		p = w.pending(5 * time.Second)
		require.Len(t, p.seals(true), 1, "what a client that is gone wasn't told is told at once")
		p = w.pending(5 * time.Second)
		w.advance(2 * time.Second)
		require.False(t, p.over())
		w.advance(offersEvery)
		require.Len(t, p.seals(true), 1, "one that isn't answered in 2 s is told again")
		require.NoError(t, w.sealFor("j", "d1"))
	})
}

// One poll is told of one result, and whoever comes next isn't held when that one was gone.
func TestPendingIsToldOfResults(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		w.results(true)
		c := w.claim("d1", long)
		w.publish("j")
		g := leaseOf(c.jobs(true)[0])
		require.Len(t, w.pending(0).seals(true), 1)
		require.NoError(t, w.sealFor("j", "d1"))
		one, other := w.pending(long), w.pending(long)
		w.report("d1", g)
		require.True(t, one.over())
		require.False(t, other.over())
		assert.Empty(t, one.seals(false), "it hung up")
		require.True(t, other.over(), "so another one is told")
		assert.Empty(t, other.seals(true))
		other = w.pending(long)
		require.False(t, other.over(), "once")
		other.hangUp()

		require.Len(t, w.results(false), 1)
		require.Len(t, w.results(true), 1, "what wasn't written comes again at once")
		require.Empty(t, w.results(true))
		for _, after := range []time.Duration{5, 10, 20, 40, 80, 160, 300, 300} { // the second answer was the first that arrived
			w.advance(after*2*time.Second - time.Second)
			if after > 150 {
				break
			}
			require.Empty(t, w.results(true), "%d", after)
			w.advance(time.Second)
			require.Len(t, w.results(true), 1, "%d", after)
		}
	})
}

// Results beyond 16 MiB, and beyond 64, come with the next call; what is small is written together, what is large alone.
func TestResultsComeInPortions(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		w.results(true)
		portion := func(name string, n, bytes int, want ...int) {
			t.Helper()
			for i := range n {
				w.publish(name + strconv.Itoa(i))
				jobs := w.claim("d1", 0).jobs(true)
				require.Len(t, jobs, 1)
				w.reportSized("d1", leaseOf(jobs[0]), bytes)
			}
			for _, most := range want {
				assert.Equal(t, most, len(w.results(true)), name)
			}
		}
		portion("large", 5, 5<<20, 3, 2, 0)
		portion("many", 70, 100, 64, 6, 0)
		portion("middling", 3, 40<<10, 3, 0)
		portion("longer", 3, 70<<10, 3, 0)
	})
}

func TestFetchIsWokenByEverythingThatDecides(t *testing.T) {
	ends := map[string]func(w *world, site *client, g wire.Grant) string{
		"the seal": func(w *world, site *client, g wire.Grant) string {
			require.Nil(w.t, site.seal(g, "d1").err)
			return ""
		},
		"a cancel": func(w *world, site *client, g wire.Grant) string {
			site.ask(wire.TypeCancel, wire.CancelJobs{JobIDs: []string{g.JobID}})
			return "too-late"
		},
		"the window's end": func(w *world, site *client, _ wire.Grant) string {
			w.advance(10 * time.Second)
			return "not-found"
		},
		"its site's refusal": func(w *world, site *client, g wire.Grant) string {
			site.ask(wire.TypeDecline, wire.Grants{Grants: []wire.Grant{g}})
			return "not-found"
		},
		"a revocation": func(w *world, _ *client, _ wire.Grant) string {
			w.replace(w.basic().MarkRevoked("d1", true))
			return "revoked"
		},
		"a drain": func(w *world, _ *client, _ wire.Grant) string {
			w.hub.StopClaims()
			return "not-ready"
		},
		"a seal whose event was lost": func(w *world, site *client, g wire.Grant) string {
			w.store.swallow.Store(true)
			require.Nil(w.t, site.seal(g, "d1").err)
			w.advance(8 * time.Second)
			return ""
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Settings{}, func(w *world) {
				site := w.site("shop")
				c := w.claim("d1", long)
				site.enqueue("j")
				g := leaseOf(c.jobs(true)[0])
				site.sealRequests()
				f := w.fetch("d1", g, long)
				require.False(t, f.over())
				code := end(w, site, g)
				require.True(t, f.over())
				if code == "" {
					_, err := wire.ParseFetchResponse(f.text(true))
					require.NoError(t, err)
					return
				}
				assert.Equal(t, wire.ErrorCode(code), wire.AsError(f.err).Code)
			})
		})
	}
}

// A daemon asks for the next job while it still reports the last one.
func TestPolledClaimWaitsForTheResultUnderWay(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site := w.site("shop")
		c := w.claim("d1", long)
		site.enqueue("j")
		g := leaseOf(c.jobs(true)[0])
		over := w.hub.polls.reporting("d1")
		next := w.claim("d1", long)
		require.False(t, next.over())
		w.report("d1", g)
		over()
		require.False(t, next.over(), "it holds nothing any more, so it is held")
		site.enqueue("k")
		require.Len(t, next.jobs(true), 1)
	})
}

func TestHeldClaimsCarryGrants(t *testing.T) {
	inPlanned(t, Settings{}, func(w *world, p *plane) {
		p.decide = func(_, job string) string {
			if job == "no" {
				return wire.DeclinePermanent
			}
			return ""
		}
		site := w.site2()
		c := w.claimIn(wire.Dialect2, "d1", 1, long)
		site.publish("bob", "no")
		require.False(t, c.over(), "what is declined isn't told, and the claim is still held")
		assert.Equal(t, []string{"d1 no"}, p.questions())
		site.publish("bob", "yes")
		jobs := c.jobs(true)
		require.Len(t, jobs, 1)
		require.NotNil(t, jobs[0].Grant)
		require.NoError(t, jobs[0].Grant.Check(newParty(t, "control plane").key, jobs[0].Stub, "ada", time.Now().UnixMilli(), wire.GrantMaxAgeMs))

		p.hold = make(chan struct{})
		c = w.claimIn(wire.Dialect2, "d2", 1, long)
		site.publish("ada", "slow")
		c.hangUp()
		require.False(t, c.over(), "the question is out")
		close(p.hold)
		require.True(t, c.over())
		p.set(func() { p.hold = nil })
		require.Len(t, w.claimIn(wire.Dialect2, "d2", 1, long).jobs(true), 1, "and its answer is for the next")
	})
}

func TestAwaitPollsWaitsForTheirResults(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		require.NoError(t, w.hub.AwaitPolls(w.t.Context()))
		site := w.site("shop")
		c := w.claim("d1", long)
		site.enqueue("j")
		g := leaseOf(c.jobs(true)[0])
		w.hub.StopClaims()
		done := make(chan error, 1)
		go func() { done <- w.hub.AwaitPolls(w.t.Context()) }()
		synctest.Wait()
		require.Empty(t, done)
		require.Nil(t, site.seal(g, "d1").err)
		_, err := wire.ParseFetchResponse(w.fetch("d1", g, long).text(true))
		require.NoError(t, err)
		w.report("d1", g)
		require.NoError(t, <-done)

		ctx, cancel := context.WithCancel(w.t.Context())
		w.hub.polls.took("lease", "shop")
		cancel()
		require.ErrorIs(t, w.hub.AwaitPolls(ctx), context.Canceled)
	})
}
