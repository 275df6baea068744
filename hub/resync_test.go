package hub

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pushrelay/store"
	"pushrelay/wire"
)

// Everything completes when not one event arrives: each push can be derived again (rule 9).
func TestResyncReplacesEveryEvent(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		w.store.swallow.Store(true)
		site, d1, d2 := w.site("shop"), w.daemon("d1", nil), w.daemon("d2", nil)
		site.enqueue("a", "b", "c", "d", "e", "f")
		require.ElementsMatch(t, []string{"a", "b", "c", "d", "e", "f"}, w.liveFor(2*time.Minute, site, d1, d2))
		require.Zero(t, w.hub.Leases())
	})
}

func TestResyncFindsCancelsAndLosses(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site, d := w.site("shop"), w.daemon("d1", nil)
		site.enqueue("a", "b")
		g := d.claimed()
		d.accept(g...)
		w.store.swallow.Store(true)
		site.ask(wire.TypeCancel, wire.CancelJobs{JobIDs: []string{"a"}})
		require.Nil(t, site.ask(wire.TypeDecline, wire.Grants{Grants: g[1:]}).err)
		require.Empty(t, d.cancels())
		w.advance(7 * time.Second)
		require.Equal(t, g[:1], d.cancels())
		require.Contains(t, d.lost(wire.LostLapsed), g[1])
		w.advance(2 * time.Second)
		require.Empty(t, d.cancels(), "told once")
	})
}

func TestResyncWithdrawsWhatNoLongerStands(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site, d := w.site("shop"), w.daemon("d1", nil)
		site.enqueue("a")
		g := d.claimed()
		d.accept(g...)
		// A replica that missed the change granted along a route that this one's projection doesn't carry.
		changed, err := w.holder.Replace(w.parse(w.without()))
		require.NoError(t, err)
		require.True(t, changed)
		w.advance(7 * time.Second)
		require.Equal(t, g, d.lost(wire.LostWithdrawn))
	})
}

func TestCountsAreCorrected(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site := w.site("shop")
		site.enqueue("a")
		key := store.Route{Site: "shop", Owner: "ada"}
		require.Equal(t, int32(1), w.hub.routes.find(key).total.Load())
		site.ask(wire.TypeCancel, wire.CancelJobs{JobIDs: []string{"a"}})
		w.advance(7 * time.Second)
		require.Zero(t, w.hub.routes.find(key).total.Load(), "a drop isn't told from its event")
		w.advance(2 * time.Minute)
		require.Nil(t, w.hub.routes.find(key), "idle routes are forgotten")
		d := w.daemon("d1", nil)
		site.enqueue("b")
		require.Equal(t, []string{"b"}, w.live(site, d))
	})
}

func TestIdleDaemonsAskNothing(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		w.site("shop")
		w.daemon("d1", nil)
		w.daemon("d2", nil)
		w.advance(time.Minute)
		require.Zero(t, w.store.claims.Load())
	})
}

// On a shared store the replica that took the job claims at once, the others a moment later.
func TestOtherReplicasJobsAreLeftToThemForAMoment(t *testing.T) {
	inWorld(t, Settings{Shared: true}, func(w *world) {
		site, d := w.site("shop"), w.daemon("d1", nil)
		site.enqueue("ours")
		require.Len(t, d.claimed(), 1)
		stub, err := wire.ParseStub(wire.Dialect0, w.stub("theirs", nil))
		require.NoError(t, err)
		_, err = w.store.Enqueue(t.Context(), "shop", wire.Dialect0, []wire.Stub{stub})
		require.NoError(t, err)
		synctest.Wait()
		require.Empty(t, d.claimed())
		w.advance(150 * time.Millisecond)
		require.Len(t, d.claimed(), 1)
	})
}

func TestPayloadIsPushedOnceHoweverOftenResynced(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site, d := w.site("shop"), w.daemon("d1", nil)
		d.held = true
		site.enqueue("j")
		d.accept(d.claimed()...)
		require.Nil(t, site.seal(grantOf(site.sealRequests()[0]), "d1").err)
		w.advance(20 * time.Second)
		require.Len(t, d.bulk, 1, "it waits in the lane")
		d.load(d.bulk[0])
		require.Len(t, take[wire.Payload](d, wire.TypePayload), 1)
	})
}
