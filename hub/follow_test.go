package hub

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pushrelay/session"
)

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
