package hub

import (
	"crypto/ed25519"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pushrelay/hub/projection"
	"pushrelay/session"
	"pushrelay/store"
	"pushrelay/wire"
)

func (w *world) replace(e *projection.Example) {
	w.t.Helper()
	require.NoError(w.t, w.hub.Replace(w.parse(e)))
	synctest.Wait()
}

// without is basic without the shop's consent.
func (w *world) without() *projection.Example {
	return new(projection.Example).Site("shop", w.party("shop").identity).
		Device("ada", "d1", w.party("d1").identity).Device("ada", "d2", w.party("d2").identity)
}

func TestConsentRevoked(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site, d := w.site("shop"), w.daemon("d1", nil)
		site.enqueue("j")
		g := d.claimed()
		d.accept(g...)
		w.replace(w.without())
		require.Equal(t, g, d.lost(wire.LostWithdrawn))
		sites := take[wire.Sites](d, wire.TypeSites)
		require.Len(t, sites, 1)
		require.Empty(t, sites[0].Sites)
		require.Empty(t, d.reason(), "the device stays")
		moved := site.notices(wire.TypeRequeued)
		require.Len(t, moved, 1)
		require.Equal(t, string(store.WhyWithdrawn), moved[0].Why)
		w.advance(10 * time.Second)
		require.Empty(t, d.claimed())
		w.replace(w.basic())
		require.Len(t, d.claimed(), 1, "it waits and goes out again")
	})
}

func TestConsentRevokedWhileTheDaemonIsAway(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site, d := w.site("shop"), w.daemon("d1", nil)
		site.enqueue("j")
		g := d.claimed()
		d.accept(g...)
		d.close()
		w.replace(w.without())
		held, err := w.store.Held(t.Context(), "d1")
		require.NoError(t, err)
		require.Empty(t, held)
		back := w.daemon("d1", func(a *Arrival) { a.Hello.ActiveLeases = g })
		require.Equal(t, g, back.welcome.Lost)
		_ = site
	})
}

func TestConsentPaused(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site, d := w.site("shop"), w.daemon("d1", nil)
		site.enqueue("j")
		g := d.claimed()
		d.accept(g...)
		w.replace(w.without().Pause("ada", "shop"))
		sites := take[wire.Sites](d, wire.TypeSites)
		require.Len(t, sites, 1)
		require.Equal(t, []string{w.party("shop").keyID}, sites[0].AwaitingConsent)
		require.Contains(t, sites[0].Sites, w.party("shop").keyID, "it keeps its pin")
		require.Empty(t, d.lost(""), "what is claimed runs to its end")
		require.Nil(t, site.seal(grantOf(site.sealRequests()[0]), "d1").err)
		require.Nil(t, d.complete(g[0]).err)
		site.enqueue("k")
		w.advance(10 * time.Second)
		require.Empty(t, d.claimed())
	})
}

func TestDeviceRevoked(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site, d, other := w.site("shop"), w.daemon("d1", nil), w.daemon("d2", func(a *Arrival) { a.Hello.Paused = true })
		site.enqueue("j")
		g := d.claimed()
		d.accept(g...)
		w.replace(w.basic().MarkRevoked("d1", true))
		require.Len(t, take[wire.Bare](d, wire.TypeRevoked), 1)
		require.Equal(t, session.ReasonRevoked, d.reason())
		require.Empty(t, other.reason(), "only that party's")
		held, err := w.store.Held(t.Context(), "d1")
		require.NoError(t, err)
		require.Empty(t, held)
	})
}

func TestPartiesThatAreGone(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site, d := w.site("shop"), w.daemon("d1", nil)
		w.replace(new(projection.Example))
		require.Equal(t, session.ReasonUnknown, site.reason())
		require.Equal(t, session.ReasonUnknown, d.reason(), "an empty projection is not a revocation")
		require.Empty(t, take[wire.Bare](d, wire.TypeRevoked))
	})
}

func TestDeviceWithAnotherKey(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		d := w.daemon("d1", nil)
		w.replace(new(projection.Example).Site("shop", w.party("shop").identity).
			Device("ada", "d1", w.party("d1 again").identity).Consent("ada", "shop"))
		require.Equal(t, session.ReasonUnknown, d.reason())
	})
}

func TestSiteKeyRotation(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site, d := w.site("shop"), w.daemon("d1", nil)
		next := w.party("shop, next")
		link := wire.Succession{Identity: w.party("shop").identity, Signature: wire.EncodeBase64(
			ed25519.Sign(w.party("shop").private, wire.SuccessionStatement(w.party("shop").keyID, next.keyID)))}
		until := time.Now().Add(time.Minute)
		w.replace(new(projection.Example).Rotated("shop", next.identity, []wire.Succession{link}, until.UnixMilli()).
			Device("ada", "d1", w.party("d1").identity).Consent("ada", "shop"))
		require.Empty(t, site.reason(), "its window is open")
		sites := take[wire.Sites](d, wire.TypeSites)
		require.Len(t, sites, 1)
		require.Equal(t, []wire.Succession{link}, sites[0].Successions[next.keyID])
		site.enqueue("j")
		require.Equal(t, []string{"j"}, w.live(site, d))
		fresh, err := w.admit(wire.RoleSite, "shop", func(a *Arrival) { a.Key = next.key })
		require.NoError(t, err)
		w.advance(59 * time.Second)
		require.Empty(t, site.reason())
		w.advance(2 * time.Second)
		require.Equal(t, session.ReasonUnknown, site.reason())
		require.Empty(t, fresh.reason())
		r := fresh.ask(wire.TypeEnqueue, wire.Enqueue{Stubs: []jsonValue{w.stub("k", nil)}})
		require.Contains(t, string(r.answer), "forbidden", "stubs of the old key aren't taken any more")
	})
}

func TestRosters(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		base := func() *projection.Example { return w.basic().Consent("bob", "shop") }
		w.replace(base())
		site, d := w.site("shop"), w.daemon("d1", nil)
		bobs := func(id, audience string) jsonValue {
			return w.stub(id, func(s *wire.Stub) { s.Owner, s.Audience = "bob", audience })
		}
		require.Nil(t, site.ask(wire.TypeEnqueue, wire.Enqueue{Stubs: []jsonValue{bobs("j", "public"), bobs("own", "self")}}).err)
		require.Empty(t, d.claimed(), "no roster binds them")
		w.replace(base().Roster("team", "ada", "bob"))
		g := d.claimed()
		require.Len(t, g, 1)
		require.Equal(t, "j", g[0].JobID)
		require.Len(t, take[wire.Sites](d, wire.TypeSites), 1)
		d.accept(g...)
		w.replace(base())
		require.Equal(t, g, d.lost(wire.LostWithdrawn), "the roster is gone")
		w.replace(w.basic().Roster("team", "ada", "bob"))
		require.Empty(t, d.claimed(), "bob didn't consent")
	})
}

func TestAClaimThatRacesWithAProjection(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site, d := w.site("shop"), w.daemon("d1", nil)
		changed := w.parse(w.without())
		w.store.onClaim = func() {
			w.store.onClaim = nil
			require.NoError(t, w.hub.Replace(changed))
		}
		site.enqueue("j")
		require.Empty(t, d.claimed(), "never sent")
		require.Equal(t, 1, w.obs.of(CountWithdrawn))
		held, err := w.store.Held(t.Context(), "d1")
		require.NoError(t, err)
		require.Empty(t, held)
	})
}

// TestRoutesThatWereChosenBeforeAProjection claims along a route that stood when it was chosen, and doesn't any more.
func TestRoutesThatWereChosenBeforeAProjection(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site, d := w.site("shop"), w.daemon("d1", nil)
		chosen := w.hub.proj.Current()
		w.replace(w.without())
		site.enqueue("j")
		peer := w.hub.reg.daemon("d1")
		require.Equal(t, 1, peer.reserve(1))
		granted, err := w.hub.claim(t.Context(), chosen, peer, []store.Route{{Site: "shop", Owner: "ada"}}, 1)
		require.NoError(t, err)
		require.Zero(t, granted)
		require.Empty(t, d.claimed())
	})
}

func TestVersionMustRise(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		w.replace(w.basic().Version(3))
		require.Error(t, w.hub.Replace(w.parse(w.without().Version(2))))
		require.Error(t, w.hub.Replace(w.parse(w.without())))
		require.NoError(t, w.hub.Replace(w.parse(w.basic().Version(3))), "the same again")
		d := w.daemon("d1", nil)
		require.Len(t, d.welcome.Sites, 1)
	})
}

func TestVersion2IsOfferedItsOwnersJobsOnly(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		w.replace(w.basic().Consent("bob", "shop").Roster("team", "ada", "bob"))
		two := func(a *Arrival) { a.Dialect, a.Hello.ProtocolVersion = wire.Dialect2, "2" }
		site, err := w.admit(wire.RoleSite, "shop", two)
		require.NoError(t, err)
		zero := w.daemon("d2", nil)
		d := w.daemon("d1", func(a *Arrival) { two(a); a.Hello.Capabilities = []byte(capabilities2) })
		team := func(id, owner string) jsonValue {
			return w.stub(id, func(s *wire.Stub) { s.Owner, s.Audience = owner, "team" })
		}
		require.Nil(t, site.ask(wire.TypeEnqueue, wire.Enqueue{Stubs: []jsonValue{team("his", "bob"), team("hers", "ada")}}).err)
		g := d.claimed()
		require.Len(t, g, 1)
		require.Equal(t, "hers", g[0].JobID)
		require.Empty(t, zero.claimed(), "another dialect")
	})
}

// TestConsentThatWasHardlyThere gives and takes a consent while an earlier projection is still being applied: what was
// granted under it is withdrawn, though nothing shows between the projections before and after.
func TestConsentThatWasHardlyThere(t *testing.T) {
	inWorld(t, Settings{ResyncEvery: time.Minute}, func(w *world) {
		site, d := w.site("shop"), w.daemon("d1", nil)
		bobs := func() *projection.Example { return w.without().Device("bob", "d3", newParty(t, "d3").identity) }
		w.replace(bobs())
		begun, proceed := make(chan struct{}), make(chan struct{})
		w.store.onHeld = func(runner string) {
			if runner == "d3" {
				close(begun)
				<-proceed
			}
		}
		w.replace(w.without()) // the device of bob is gone, and applying that takes long
		<-begun
		w.store.onHeld = nil
		w.replace(w.basic())
		site.enqueue("j")
		synctest.Wait()
		g := d.claimed()
		require.Len(t, g, 1)
		d.accept(g...)
		w.replace(w.without())
		close(proceed)
		w.advance(time.Second)
		require.Equal(t, g, d.lost(wire.LostWithdrawn))
	})
}

func TestResultOutlivesItsDevice(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site, d := w.site("shop"), w.daemon("d1", nil)
		site.enqueue("j")
		grants := d.claimed()
		d.accept(grants...)
		require.Nil(t, site.seal(grantOf(site.sealRequests()[0]), "d1").err)
		site.close()
		require.Nil(t, d.complete(grants[0]).err)
		w.replace(new(projection.Example).Site("shop", w.party("shop").identity).
			Device("ada", "d2", w.party("d2").identity).Consent("ada", "shop"))
		require.Equal(t, session.ReasonUnknown, d.reason())
		got := w.site("shop").results()
		require.Len(t, got, 1, "what was finished before is delivered")
		require.Equal(t, w.party("d1").identity, got[0].Device, "with the keys to verify it by")
	})
}

// TestSitesComeBeforeTheirJobs: who wasn't told of the projection in force is told first, whoever claims for it.
func TestSitesComeBeforeTheirJobs(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site, d := w.site("shop"), w.daemon("d1", nil)
		w.hub.reg.daemon("d1").told.Store(0)
		site.enqueue("j")
		synctest.Wait()
		d.mu.Lock()
		defer d.mu.Unlock()
		var order []wire.FrameType
		for _, f := range d.frames {
			h, err := wire.DecodeHead(f)
			require.NoError(t, err)
			order = append(order, h.Type)
		}
		require.Equal(t, []wire.FrameType{wire.TypeSites, wire.TypeClaimed}, order)
	})
}
