package endtoend

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pushrelay/hub"
	"pushrelay/session/internal/throttle"
	"pushrelay/session/site"
	"pushrelay/wire"
)

// slowResync keeps the hub from finding out by itself, in time for a test, what it wasn't told.
func slowResync() hub.Settings { return hub.Settings{ResyncEvery: time.Minute} }

// handheld is one device that is dialled by hand, and the site that it works for.
type handheld struct {
	*world
	shop *site.Site
	in   *inbox
	n    int
}

func newHandheld(t *testing.T) *handheld {
	t.Helper()
	h := &handheld{world: newWorld(t, slowResync())}
	h.shop, h.in, _ = h.site("shop")
	h.log.wait(t, 1, "shop", "connected", "")
	return h
}

// another submits one more job and answers its id.
func (h *handheld) another() string {
	h.t.Helper()
	h.n++
	id := fmt.Sprint("job-", h.n)
	h.submit(h.shop, "ada", map[string]string{id: "x"})
	return id
}

// lives has the runner live a whole job: offer, accept, payload, result.
func (h *handheld) lives(r *raw) {
	h.t.Helper()
	id := h.another()
	g := r.claims()
	require.Len(h.t, g, 1)
	require.Equal(h.t, id, g[0].JobID)
	h.accepts(r, g[0])
	h.finishes(r, g[0])
}

// accepts accepts an offer and waits for its payload.
func (h *handheld) accepts(r *raw, g wire.Grant) {
	h.t.Helper()
	assert.JSONEq(h.t, `[]`, lostOf(h.t, r.ask(wire.TypeAccept, grants("grants", g))))
	p, err := wire.Decode[wire.Payload](r.push(wire.TypePayload))
	require.NoError(h.t, err)
	assert.Equal(h.t, g, wire.Grant{JobID: p.JobID, LeaseID: p.LeaseID})
}

// finishes reports a result and sees the site get it.
func (h *handheld) finishes(r *raw, g wire.Grant) {
	h.t.Helper()
	j, ok := h.jobs.Load(g.JobID)
	require.True(h.t, ok)
	answer, err := wire.Decode[wire.ResultReply](r.report(h.world, "shop", g, j.(site.Job).Deadline.UnixMilli(), "done"))
	require.NoError(h.t, err)
	assert.True(h.t, answer.Accepted, "%+v", answer)
	got := next(h.world, h.in.results)
	assert.True(h.t, got.Verified, "%v", got.Err)
	assert.Equal(h.t, g, wire.Grant{JobID: got.JobID, LeaseID: got.LeaseID})
}

func lostOf(t *testing.T, frame []byte) string {
	t.Helper()
	a, err := wire.Decode[wire.AcceptReply](frame)
	require.NoError(t, err, "%s", frame)
	raw, err := wire.Encode(a.Lost)
	require.NoError(t, err)
	return string(raw)
}

func naming(list ...wire.Grant) func(b *wire.HelloBody) {
	return func(b *wire.HelloBody) { b.ActiveLeases = list }
}

// TestOpenThenClose opens the new session while the old one stands: the old one is told, and its clean-up, which comes
// later, takes neither the accepted grant nor what the new one is offered.
func TestOpenThenClose(t *testing.T) {
	t.Parallel()
	h := newHandheld(t)
	old := h.raw(wire.RoleDaemon, "d1", nil)
	for range 6 {
		h.another()
		kept := old.claims()[0]
		h.accepts(old, kept)
		h.another()
		left := old.claims()[0] // offered, never answered
		fresh := h.raw(wire.RoleDaemon, "d1", naming(kept))
		assert.Empty(t, fresh.welcome.Lost)
		e := old.end()
		assert.EqualValues(t, 4409, e.Code, e.Reason)
		again := fresh.claims()[0]
		assert.Equal(t, left.JobID, again.JobID, "what the old one was only offered is offered again")
		old.hangUp()
		h.accepts(fresh, again)
		h.finishes(fresh, kept)
		h.finishes(fresh, again)
		old = fresh
	}
	h.lives(old)
}

// TestKillAndBack kills the client without a word and dials again at once, again and again: each is welcome at once, what was accepted and is named stands, and what isn't named goes back at once.
func TestKillAndBack(t *testing.T) {
	t.Parallel()
	h := newHandheld(t)
	r := h.raw(wire.RoleDaemon, "d1", nil)
	for i := range 10 {
		h.another()
		g := r.claims()[0]
		h.accepts(r, g)
		r.hangUp()
		began := time.Now()
		if i%2 == 0 { // the process lost its memory
			r = h.raw(wire.RoleDaemon, "d1", nil)
			assert.Less(t, time.Since(began), soon)
			again := r.claims()[0]
			assert.Equal(t, g.JobID, again.JobID)
			assert.NotEqual(t, g.LeaseID, again.LeaseID)
			h.accepts(r, again)
			g = again
		} else {
			r = h.raw(wire.RoleDaemon, "d1", naming(g))
			assert.Less(t, time.Since(began), soon)
			assert.Empty(t, r.welcome.Lost)
		}
		h.finishes(r, g)
	}
}

// TestHalfOpenOldSession leaves the old connection open and silent, as a device that lost its network does. The new one is
// served meanwhile and afterwards as if there were no other.
func TestHalfOpenOldSession(t *testing.T) {
	t.Parallel()
	h := newHandheld(t)
	proxy, err := throttle.New(h.relay.addr, 0)
	require.NoError(t, err)
	defer proxy.Close()
	through := newDialer()
	through.via = proxy.Addr()
	old := h.rawOver(through, wire.RoleDaemon, "d1", nil)
	h.another()
	kept := old.claims()[0]
	h.accepts(old, kept)
	h.another()
	left := old.claims()[0]
	proxy.Stick()

	began := time.Now()
	fresh := h.raw(wire.RoleDaemon, "d1", naming(kept))
	assert.Less(t, time.Since(began), soon, "the old one is not waited for")
	again := fresh.claims()[0]
	assert.Equal(t, left.JobID, again.JobID)
	assert.Less(t, time.Since(began), soon, "an offer to the old one isn't waited for")
	h.accepts(fresh, again)
	h.lives(fresh)
	h.another()
	open := fresh.claims()[0] // unanswered while the old session goes
	h.accepts(fresh, open)
	h.log.until(t, "the old session is gone", func() bool { return len(h.relay.server.Sessions()) == 2 })
	hb, err := wire.Decode[wire.HeartbeatReply](fresh.ask(wire.TypeHeartbeat, grants("activeLeases", kept, again, open)))
	require.NoError(t, err)
	assert.Empty(t, hb.Lost, "the late clean-up took what isn't its own")
	for _, g := range []wire.Grant{kept, again, open} {
		h.finishes(fresh, g)
	}
	h.lives(fresh)
}

// TestCloseThenOpenRaces lets the end of the old session and the beginning of the new one meet, with an offer open:
// whichever comes first, the job is offered to the new one once, and stays with it.
func TestCloseThenOpenRaces(t *testing.T) {
	t.Parallel()
	h := newHandheld(t)
	r := h.raw(wire.RoleDaemon, "d1", nil)
	for range 12 {
		id := h.another()
		require.Equal(t, id, r.claims()[0].JobID)
		gone := make(chan struct{})
		go func(old *raw) {
			defer close(gone)
			old.hangUp()
		}(r)
		fresh := h.raw(wire.RoleDaemon, "d1", nil)
		<-gone
		g := fresh.claims()[0]
		require.Equal(t, id, g.JobID)
		h.accepts(fresh, g)
		h.finishes(fresh, g)
		r = fresh
	}
}

// TestTwoMachinesWithOneKey runs two daemons with one key: each takes the session over once, and the one that lost it waits
// rather than taking it back at once.
func TestTwoMachinesWithOneKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t, hub.Settings{})
	shop, in, _ := w.site("shop")
	w.daemon("d1", echo)
	w.log.wait(t, 1, "d1", "connected", "")
	w.daemon("d1", echo)
	w.log.wait(t, 2, "d1", "connected", "")
	w.log.wait(t, 1, "d1", "disconnected", "")
	want := prompts("job", 20)
	w.submit(shop, "ada", want)
	w.answers(in, want)
	assert.Equal(t, 2, w.log.count("d1", "connected", ""), "the first one must not fight for the session")
}
