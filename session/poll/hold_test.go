package poll_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pushrelay/hub"
	"pushrelay/session/poll"
	"pushrelay/wire"
)

// holding holds requests for longer than any test lasts.
func holding(_ *rig, _ *hub.Settings, opts *poll.Options) {
	opts.HoldClaim, opts.HoldFetch, opts.HoldPending = time.Hour, time.Hour, time.Hour
}

// flight is a request under way.
type flight struct {
	rig    *rig
	cancel context.CancelFunc
	done   chan struct{}
	answer answered
	err    error
}

// fly sends a call beside the test, which waits until it is held.
func (r *rig) fly(c *call, endpoint string) *flight {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	f := &flight{rig: r, cancel: cancel, done: make(chan struct{})}
	before := r.seen.of(endpoint, "waits")
	go func() {
		defer close(f.done)
		f.answer, f.err = r.try(ctx, c)
	}()
	r.t.Cleanup(func() {
		cancel()
		<-f.done
	})
	r.seen.await(r.t, endpoint, "waits", before+1)
	return f
}

// land waits for the answer.
func (f *flight) land() answered {
	f.rig.t.Helper()
	select {
	case <-f.done:
	case <-time.After(patience):
		f.rig.t.Fatal("a held request isn't let go")
	}
	require.NoError(f.rig.t, f.err)
	return f.answer
}

func TestAHeldClaimIsPushedTo(t *testing.T) {
	eachDialect(t, func(t *testing.T, dialect wire.Dialect) {
		r := newRig(t, holding)
		d, s := r.daemon("d1"), r.quiet("shop")
		d.dialect, s.dialect = dialect, dialect
		d.heartbeat()
		p := r.fly(s.pendingCall(), "pending")
		c := r.fly(d.claimCall(2), "claim")
		s.enqueue("job-1", "ada")
		jobs := d.claimed(c.land())
		require.Len(t, jobs, 1)
		f := r.fly(d.fetchCall(grantOf(jobs[0])), "fetch")
		seals := s.sealJobs(p.land())
		require.Len(t, seals, 1)
		p = r.fly(s.pendingCall(), "pending")
		s.seal(seals[0])
		a := f.land()
		require.Equal(t, http.StatusOK, a.status, a.body)
		_, err := wire.ParseFetchResponse([]byte(a.body))
		require.NoError(t, err)
		d.result(grantOf(jobs[0]), "shop")
		assert.Empty(t, s.sealJobs(p.land()), "a result lets a pending go")
		require.Len(t, s.results(), 1)
	})
}

func TestAHeldClaimTakesWhatWaited(t *testing.T) {
	r := newRig(t, holding)
	d, s := r.daemon("d1"), r.site("shop")
	s.enqueue("job-1", "ada")
	c := r.fly(d.claimCall(1), "claim")
	s.results() // only now there is somebody to seal
	require.Len(t, d.claimed(c.land()), 1)
}

func TestAClaimOfWhoHoldsALeaseIsNotHeld(t *testing.T) {
	r := newRig(t, holding)
	d, s := r.daemon("d1"), r.quiet("shop")
	r.fly(s.pendingCall(), "pending")
	s.enqueue("job-1", "ada")
	require.Len(t, d.claim(1), 1)
	assert.Empty(t, d.claim(1))
	s.enqueue("job-2", "ada")
	require.Len(t, d.claim(1), 1, "it gets what there is all the same")
}

func TestHoldsEndWithTheirTime(t *testing.T) {
	r := newRig(t, func(_ *rig, _ *hub.Settings, opts *poll.Options) {
		opts.HoldClaim, opts.HoldFetch, opts.HoldPending = 30*time.Millisecond, 30*time.Millisecond, 30*time.Millisecond
	})
	d, s := r.daemon("d1"), r.quiet("shop")
	began := time.Now()
	assert.Empty(t, s.pending())
	assert.Empty(t, d.claim(1))
	s.enqueue("job-1", "ada")
	jobs := d.claim(1)
	require.Len(t, jobs, 1)
	a := r.send(d.fetchCall(grantOf(jobs[0])))
	assert.Equal(t, http.StatusConflict, a.status)
	assert.GreaterOrEqual(t, time.Since(began), 90*time.Millisecond)
}

// A client that hangs up lets its request go at once, and what others would have been given meanwhile is theirs.
func TestHangingUpLetsGo(t *testing.T) {
	r := newRig(t, holding)
	d, other, s := r.daemon("d1"), r.daemon("d2"), r.quiet("shop")
	pending := r.fly(s.pendingCall(), "pending")
	gone := r.fly(d.claimCall(1), "claim")
	gone.cancel()
	<-gone.done
	r.seen.await(t, "claim", "gone", 1)
	s.enqueue("job-1", "ada")
	jobs := other.claim(1)
	require.Len(t, jobs, 1)
	require.Len(t, s.sealJobs(pending.land()), 1)

	fetch := r.fly(other.fetchCall(grantOf(jobs[0])), "fetch")
	fetch.cancel()
	<-fetch.done
	r.seen.await(t, "fetch", "gone", 1)
	pending = r.fly(s.pendingCall(), "pending")
	pending.cancel()
	<-pending.done
	r.seen.await(t, "pending", "gone", 1)
}

func TestRevocationLetsGo(t *testing.T) {
	r := newRig(t, holding)
	d, other, s, gone := r.daemon("d1"), r.daemon("d3"), r.quiet("shop"), r.quiet("blog")
	p, g := r.fly(s.pendingCall(), "pending"), r.fly(gone.pendingCall(), "pending")
	s.enqueue("job-1", "bob")
	jobs := other.claim(1)
	require.Len(t, jobs, 1)
	f := r.fly(other.fetchCall(grantOf(jobs[0])), "fetch")
	c := r.fly(d.claimCall(1), "claim")
	require.Len(t, s.sealJobs(p.land()), 1)
	e := r.parties("blog").Consent("ada", "shop").Consent("bob", "shop").MarkRevoked("d1", true).MarkRevoked("d3", true)
	r.replace(e)
	for _, held := range []*flight{c, f} {
		a := held.land()
		assert.Equal(t, http.StatusForbidden, a.status)
		assert.JSONEq(t, `{"error":"revoked","message":"this device was revoked; pair again to come back"}`, a.body)
	}
	a := g.land()
	assert.Equal(t, http.StatusUnauthorized, a.status)
	assert.JSONEq(t, `{"error":"unauthorized","message":"this caller or its key isn't known here any more"}`, a.body)
}

func TestADrainLetsGo(t *testing.T) {
	r := newRig(t, holding)
	d, other, s := r.daemon("d1"), r.daemon("d3"), r.quiet("shop")
	first := r.fly(s.pendingCall(), "pending")
	s.enqueue("job-1", "bob")
	jobs := other.claim(1)
	require.Len(t, jobs, 1)
	seals := s.sealJobs(first.land())
	p, c := r.fly(s.pendingCall(), "pending"), r.fly(d.claimCall(1), "claim")
	f := r.fly(other.fetchCall(grantOf(jobs[0])), "fetch")
	r.planes.Drain()
	r.hub.StopClaims()
	assert.Empty(t, d.claimed(c.land()))
	assert.Empty(t, s.sealJobs(p.land()))
	assert.Equal(t, http.StatusConflict, f.land().status)
	for _, refused := range []*call{d.claimCall(1), s.pendingCall()} {
		a := r.send(refused)
		assert.Equal(t, http.StatusServiceUnavailable, a.status)
		assert.Equal(t, "1", a.header.Get("Retry-After"))
		assert.JSONEq(t, `{"error":"server-error","message":"this relay is going away; ask again, another one answers","retryAfter":1}`, a.body)
	}
	// What is under way is served to the last moment.
	s.seal(seals[0])
	other.fetch(grantOf(jobs[0]))
	assert.Empty(t, other.heartbeat(grantOf(jobs[0])).Lost)
	other.result(grantOf(jobs[0]), "shop")
	require.Len(t, s.results(), 1)
}
