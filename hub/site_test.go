package hub

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pushrelay/store"
	"pushrelay/wire"
)

func TestNoClaimsForAnAbsentSite(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site, d := w.site("shop"), w.daemon("d1", func(a *Arrival) { a.Hello.Paused = true })
		site.enqueue("j")
		site.close()
		require.Nil(t, d.ask(wire.TypeReady, wire.Ready{Capabilities: []byte(capabilities0), Slots: 4}).err)
		before := w.store.claims.Load()
		w.advance(time.Minute)
		require.Empty(t, d.claimed())
		require.Equal(t, before, w.store.claims.Load(), "not even asked")
		w.site("shop")
		require.Len(t, d.claimed(), 1)
	})
}

func TestASiteOnAnotherReplicaIsPresent(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site, d := w.site("shop"), w.daemon("d1", nil)
		site.close()
		shop := store.Party{Role: store.SiteRole, ID: "shop"}
		stub, err := wire.ParseStub(wire.Dialect0, w.stub("j", nil))
		require.NoError(t, err)
		_, err = w.store.Enqueue(t.Context(), "shop", wire.Dialect0, []wire.Stub{stub})
		require.NoError(t, err)
		synctest.Wait()
		require.Empty(t, d.claimed())
		_, err = w.store.Attach(t.Context(), shop, "elsewhere", time.Minute)
		require.NoError(t, err)
		require.Len(t, d.claimed(), 1)
		require.NoError(t, w.store.Detach(t.Context(), shop, "elsewhere"))
		_, err = w.store.Enqueue(t.Context(), "shop", wire.Dialect0, []wire.Stub{{
			ID: "k", Kind: "llm.generate", Owner: "ada",
			Audience: "self", DeadlineAt: stub.DeadlineAt, Raw: stub.Raw,
		}})
		require.NoError(t, err)
		require.Empty(t, d.claimed())
	})
}

func TestASiteThatNeverAnswersCountsAsAbsent(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		shop := store.Party{Role: store.SiteRole, ID: "shop"}
		site, d := w.site("shop"), w.daemon("d1", nil)
		site.enqueue("j")
		g := d.claimed()
		d.accept(g...)
		asked := site.sealRequests()
		require.Len(t, asked, 1)
		w.advance(2300 * time.Millisecond)
		there, err := w.store.Present(t.Context(), shop)
		require.NoError(t, err)
		require.False(t, there, "other replicas know")
		require.False(t, w.hub.Snapshot().Sites[0].Present)
		require.Equal(t, 1, w.obs.of(CountSilent))
		site.enqueue("k")
		require.Empty(t, d.claimed(), "absent")
		require.NotEmpty(t, site.sealRequests(), "it is still asked when nobody else answers")
		require.Nil(t, site.seal(g[0], "d1").err)
		require.Len(t, d.claimed(), 1, "it answered")
		there, err = w.store.Present(t.Context(), shop)
		require.NoError(t, err)
		require.True(t, there)
	})
}

func TestASilentSiteIsTriedAgain(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site, d := w.site("shop"), w.daemon("d1", nil)
		site.enqueue("j")
		d.accept(d.claimed()...)
		w.advance(15 * time.Second) // the window is over too
		require.Len(t, d.lost(wire.LostLapsed), 1)
		require.Empty(t, d.claimed())
		w.advance(40 * time.Second)
		require.NotEmpty(t, d.claimed())
	})
}

func TestSealRequestsMoveWhenASessionIsCut(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		a, b, d := w.site("shop"), w.site("shop"), w.daemon("d1", nil)
		a.enqueue("j")
		d.accept(d.claimed()...)
		asked, other := a, b
		first := a.sealRequests()
		if len(first) == 0 {
			asked, other = b, a
			first = b.sealRequests()
		}
		require.Len(t, first, 1)
		require.Empty(t, other.sealRequests(), "on offer to one")
		asked.close()
		require.Equal(t, first, other.sealRequests())
	})
}

func TestSealRequestsMoveWhenASessionIsSilent(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		a, b, d := w.site("shop"), w.site("shop"), w.daemon("d1", nil)
		a.enqueue("j")
		d.accept(d.claimed()...)
		asked, other := a, b
		if len(a.sealRequests()) == 0 {
			asked, other = b, a
			require.Len(t, b.sealRequests(), 1)
		}
		w.advance(1900 * time.Millisecond)
		require.Empty(t, other.sealRequests())
		w.advance(500 * time.Millisecond)
		moved := other.sealRequests()
		require.Len(t, moved, 1)
		require.Nil(t, other.seal(grantOf(moved[0]), "d1").err)
		for _, p := range take[wire.Payload](d, wire.TypePayload) {
			d.complete(wire.Grant{JobID: p.JobID, LeaseID: p.LeaseID})
		}
		for i := range 4 { // the silent one is passed by while the other answers
			other.enqueue(fmt.Sprintf("k%d", i))
			d.accept(d.claimed()...)
			require.Empty(t, asked.sealRequests())
			more := other.sealRequests()
			require.Len(t, more, 1)
			require.Nil(t, other.seal(grantOf(more[0]), "d1").err)
			p := take[wire.Payload](d, wire.TypePayload)
			require.Nil(t, d.complete(wire.Grant{JobID: p[0].JobID, LeaseID: p[0].LeaseID}).err)
		}
	})
}

// TestASiteThatFallsSilentWhileItIsRenewed: the renewal of its presence, which is under way, doesn't make it present again.
func TestASiteThatFallsSilentWhileItIsRenewed(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		begun, proceed := make(chan struct{}), make(chan struct{})
		var attached atomic.Int64
		w.store.onAttach = func(p store.Party) {
			if p.Role == store.SiteRole && attached.Add(1) == 2 { // the first is its arrival
				close(begun)
				<-proceed
			}
		}
		site, d := w.site("shop"), w.daemon("d1", nil)
		<-begun
		site.enqueue("j")
		d.accept(d.claimed()...)
		w.advance(2300 * time.Millisecond)
		require.Equal(t, 1, w.obs.of(CountSilent))
		close(proceed)
		synctest.Wait()
		there, err := w.store.Present(t.Context(), store.Party{Role: store.SiteRole, ID: "shop"})
		require.NoError(t, err)
		require.False(t, there)
	})
}

// TestTheLastSessionThatAnsweredGoes leaves a site with a session that is known to be silent: it counts as absent.
func TestTheLastSessionThatAnsweredGoes(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		a, b, d := w.site("shop"), w.site("shop"), w.daemon("d1", nil)
		a.enqueue("j")
		d.accept(d.claimed()...)
		silent, other := a, b
		if len(a.sealRequests()) == 0 {
			silent, other = b, a
		}
		w.advance(2300 * time.Millisecond)
		moved := other.sealRequests()
		require.Len(t, moved, 1)
		require.Nil(t, other.seal(grantOf(moved[0]), "d1").err)
		other.close()
		w.advance(300 * time.Millisecond)
		there, err := w.store.Present(t.Context(), store.Party{Role: store.SiteRole, ID: "shop"})
		require.NoError(t, err)
		require.False(t, there)
		silent.enqueue("k")
		require.Empty(t, d.claimed(), "nobody would seal it")
	})
}

func TestAnUploadIsNotSilence(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site, d := w.site("shop"), w.daemon("d1", nil)
		site.enqueue("j")
		d.accept(d.claimed()...)
		require.Len(t, site.sealRequests(), 1)
		site.mu.Lock()
		site.received += 400 << 10
		site.mu.Unlock()
		w.advance(2300 * time.Millisecond)
		require.Zero(t, w.obs.of(CountSilent))
		require.True(t, w.hub.Snapshot().Sites[0].Present)
	})
}

func TestSealingAndDecline(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site, d := w.site("shop"), w.daemon("d1", nil)
		site.enqueue("j")
		g := d.claimed()
		d.accept(g...)
		require.Nil(t, site.ask(wire.TypeSealing, wire.Grants{Grants: g}).err)
		w.advance(30 * time.Second)
		require.Empty(t, d.lost(""), "the window is a minute now")
		require.Nil(t, site.ask(wire.TypeDecline, wire.Grants{Grants: g}).err)
		require.Equal(t, g, d.lost(wire.LostWithdrawn))
		moved := site.notices(wire.TypeRequeued)
		require.Len(t, moved, 1)
		require.Equal(t, string(store.WhyDeclined), moved[0].Why)
	})
}

// finish brings a job to its result, which stays uncollected.
func finish(w *world, site, d *client, id string) wire.Grant {
	site.enqueue(id)
	g := d.claimed()
	require.Len(w.t, g, 1)
	d.accept(g...)
	for _, j := range site.sealRequests() {
		require.Nil(w.t, site.seal(grantOf(j), d.name).err)
	}
	take[wire.Payload](d, wire.TypePayload)
	require.Nil(w.t, d.complete(g[0]).err)
	return g[0]
}

func TestResultsAreOfferedAgainUntilCollected(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site, d := w.site("shop"), w.daemon("d1", nil)
		g := finish(w, site, d, "j")
		require.Len(t, site.results(), 1)
		w.advance(9 * time.Second)
		require.Empty(t, site.results())
		w.advance(2 * time.Second)
		require.Len(t, site.results(), 1)
		w.advance(18 * time.Second)
		require.Empty(t, site.results(), "the second offer lasts 20 s")
		w.advance(4 * time.Second)
		require.Len(t, site.results(), 1)
		site.collect(g)
		w.advance(10 * time.Minute)
		require.Empty(t, site.results())
	})
}

func TestResultsWaitForTheSite(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site, d := w.site("shop"), w.daemon("d1", nil)
		finish(w, site, d, "j")
		require.Len(t, site.results(), 1)
		site.close()
		w.advance(10 * time.Second)
		back := w.site("shop")
		require.Len(t, back.results(), 1)
	})
}

func TestTheWindowOfResultsIsBounded(t *testing.T) {
	inWorld(t, Settings{OfferEntries: 2}, func(w *world) {
		site, d := w.site("shop"), w.daemon("d1", nil)
		var all []wire.Grant
		for _, id := range []string{"a", "b", "c", "d", "e"} {
			all = append(all, finish(w, site, d, id))
		}
		first := site.results()
		require.Len(t, first, 2)
		site.collect(all[0])
		require.Len(t, site.results(), 1, "one place is free")
		site.collect(all[1], all[2])
		require.Len(t, site.results(), 2)
	})
}

func TestNoticesUntilCollected(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site := w.site("shop")
		site.enqueue("j")
		r := site.ask(wire.TypeCancel, wire.CancelJobs{JobIDs: []string{"j", "unknown"}})
		require.Contains(t, string(r.answer), `[true,false]`)
		n := site.notices(wire.TypeNotices)
		require.Len(t, n, 1)
		require.Equal(t, "cancelled", n[0].Why)
		w.advance(11 * time.Second)
		require.Len(t, site.notices(wire.TypeNotices), 1)
		site.collect(wire.Grant{JobID: "j", LeaseID: n[0].LeaseID})
		w.advance(time.Minute)
		require.Empty(t, site.notices(wire.TypeNotices))
	})
}

func TestUnsealedRouteWaitsForItsSeals(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site, d := w.site("shop"), w.daemon("d1", func(a *Arrival) { a.Hello.Slots = 16 })
		site.enqueue("a", "b", "c", "d", "e")
		first := d.claimed()
		require.Len(t, first, 4)
		d.accept(first...)
		require.Empty(t, d.claimed())
		seals := site.sealRequests()
		require.Len(t, seals, 4)
		require.Nil(t, site.seal(grantOf(seals[0]), "d1").err)
		require.Len(t, d.claimed(), 1)
	})
}

func TestCancelInEachState(t *testing.T) {
	cancel := func(site *client) { site.ask(wire.TypeCancel, wire.CancelJobs{JobIDs: []string{"j"}}) }
	t.Run("offered", func(t *testing.T) {
		inWorld(t, Settings{}, func(w *world) {
			site, d := w.site("shop"), w.daemon("d1", nil)
			site.enqueue("j")
			g := d.claimed()
			cancel(site)
			require.Equal(t, g, d.cancels())
			d.ask(wire.TypeRelease, wire.Release{Grants: g, Reason: wire.ReleaseRefused})
			require.Len(t, site.notices(wire.TypeNotices), 1)
		})
	})
	t.Run("awaiting", func(t *testing.T) {
		inWorld(t, Settings{}, func(w *world) {
			site, d := w.site("shop"), w.daemon("d1", nil)
			site.enqueue("j")
			g := d.claimed()
			d.accept(g...)
			cancel(site)
			require.Equal(t, g, d.cancels())
			v, err := wire.Decode[wire.HeartbeatReply](d.ask(wire.TypeHeartbeat, wire.Heartbeat{ActiveLeases: g}).answer)
			require.NoError(t, err)
			require.Equal(t, g, v.Cancel)
		})
	})
	t.Run("ready", func(t *testing.T) {
		inWorld(t, Settings{}, func(w *world) {
			site, d := w.site("shop"), w.daemon("d1", nil)
			d.held = true
			site.enqueue("j")
			g := d.claimed()
			d.accept(g...)
			require.Nil(t, site.seal(grantOf(site.sealRequests()[0]), "d1").err)
			cancel(site)
			require.Equal(t, g, d.cancels())
			for _, load := range d.bulk {
				d.load(load)
			}
			require.Empty(t, take[wire.Payload](d, wire.TypePayload), "withheld")
			require.Equal(t, wire.CodeTooLate, d.ask(wire.TypeFetch, wire.Fetch{Grant: g[0]}).err.Code)
		})
	})
	t.Run("running, while the daemon is away", func(t *testing.T) {
		inWorld(t, Settings{}, func(w *world) {
			site, d := w.site("shop"), w.daemon("d1", nil)
			site.enqueue("j")
			g := d.claimed()
			d.accept(g...)
			require.Nil(t, site.seal(grantOf(site.sealRequests()[0]), "d1").err)
			d.close()
			cancel(site)
			back := w.daemon("d1", func(a *Arrival) { a.Hello.ActiveLeases = g })
			require.Equal(t, g, back.welcome.Cancel)
			require.Nil(t, back.complete(g[0]).err)
			require.Len(t, site.results(), 1, "whichever result comes first counts")
		})
	})
	t.Run("done", func(t *testing.T) {
		inWorld(t, Settings{}, func(w *world) {
			site, d := w.site("shop"), w.daemon("d1", nil)
			finish(w, site, d, "j")
			cancel(site)
			require.Empty(t, d.cancels())
			require.Len(t, site.results(), 1)
		})
	})
}

func TestADeadlineEndsAGrant(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site, d := w.site("shop"), w.daemon("d1", nil)
		stub := w.stub("j", func(s *wire.Stub) { s.DeadlineAt = time.Now().Add(3 * time.Second).UnixMilli() })
		require.Nil(t, site.ask(wire.TypeEnqueue, wire.Enqueue{Stubs: []jsonValue{stub}}).err)
		g := d.claimed()
		d.accept(g...)
		w.advance(3100 * time.Millisecond)
		require.Equal(t, g, d.lost(wire.LostDeadline))
		n := site.notices(wire.TypeNotices)
		require.Len(t, n, 1)
		require.Equal(t, "deadline", n[0].Why)
		require.Empty(t, site.notices(wire.TypeRequeued), "it was dropped, not moved")
	})
}
