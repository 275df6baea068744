package poll_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A caller that opens very many requests takes the places of nobody else.
func TestACallerHasItsShareOfWhatIsHeld(t *testing.T) {
	r := newRig(t, holding)
	d, other, s := r.daemon("d1"), r.daemon("d3"), r.quiet("shop")
	var held []*flight
	for i := range 128 {
		held = append(held, r.fly(d.claimCall(1+i%64), "claim"))
	}
	for range 3 {
		assert.Empty(t, d.claim(1), "it is answered at once")
	}
	p := r.fly(s.pendingCall(), "pending")
	c := r.fly(other.claimCall(1), "claim")
	held[0].cancel()
	r.seen.await(t, "claim", "gone", 1)
	held = append(held[1:], r.fly(d.claimCall(1), "claim")) // there is a place again
	s.enqueue("job", "bob")
	require.Len(t, other.claimed(c.land()), 1, "the other one is held, and pushed to")
	require.Len(t, s.sealJobs(p.land()), 1)
	r.planes.Drain()
	r.hub.StopClaims()
	for _, f := range held {
		assert.Empty(t, d.claimed(f.land()))
	}
}

// A drain can wait until all that it let go was answered, and for nothing that comes then.
func TestADrainWaitsForItsAnswers(t *testing.T) {
	r := newRig(t, holding)
	d := r.daemon("d1")
	var held []*flight
	for range 20 {
		held = append(held, r.fly(d.claimCall(1), "claim"))
	}
	r.planes.Drain()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, r.planes.Answered(ctx), context.DeadlineExceeded)
	assert.Equal(t, 503, r.send(d.claimCall(1)).status)
	r.hub.StopClaims()
	require.NoError(t, r.planes.Answered(t.Context()))
	for _, f := range held {
		assert.Empty(t, d.claimed(f.land()))
	}
	r.planes.Drain()
	require.NoError(t, r.planes.Answered(t.Context()))
}
