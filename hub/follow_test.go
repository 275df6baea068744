package hub

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pushrelay/session"
	"pushrelay/wire"
)

// nosy is a link that asks the hub back whenever it is asked.
type nosy struct {
	Link
	w *world
}

func (n nosy) Received() int64 {
	n.w.hub.Snapshot()
	return n.Link.Received()
}

// TestSessionsAreAskedWithoutLocks: what a session does when it is asked can't stop the hub.
func TestSessionsAreAskedWithoutLocks(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site, err := w.admit(wire.RoleSite, "shop", func(a *Arrival) { a.Link = nosy{a.Link, w} })
		require.NoError(t, err)
		d := w.daemon("d1", nil)
		site.enqueue("j")
		d.accept(d.claimed()...)
		w.advance(2300 * time.Millisecond)
		require.Equal(t, 1, w.obs.of(CountSilent))
	})
}

// TestRevocationWhileAnEarlierProjectionIsApplied: what the store takes its time for doesn't keep a revoked device's session.
func TestRevocationWhileAnEarlierProjectionIsApplied(t *testing.T) {
	inWorld(t, Settings{ResyncEvery: time.Minute}, func(w *world) {
		site, d := w.site("shop"), w.daemon("d1", nil)
		site.enqueue("j")
		g := d.claimed()
		d.accept(g...)
		w.replace(w.basic().Device("bob", "d3", w.party("d3").identity))
		begun, proceed := make(chan struct{}), make(chan struct{})
		w.store.onHeld = func(runner string) {
			if runner == "d3" {
				close(begun)
				<-proceed
			}
		}
		w.replace(w.basic()) // the device of bob is gone
		<-begun
		w.store.onHeld = nil
		w.replace(w.basic().MarkRevoked("d1", true))
		require.Equal(t, session.ReasonRevoked, d.reason())
		d.close()
		close(proceed)
		synctest.Wait()
		held, err := w.store.Held(t.Context(), "d1")
		require.NoError(t, err)
		require.Empty(t, held, "what it ran goes to others")
	})
}
