package poll_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pushrelay/wire"
)

// eachDialect runs a test in both vocabularies.
func eachDialect(t *testing.T, f func(t *testing.T, dialect wire.Dialect)) {
	for _, d := range []wire.Dialect{wire.Dialect0, wire.Dialect2} {
		t.Run("dialect "+string(d), func(t *testing.T) { f(t, d) })
	}
}

func TestALifeByPollsAlone(t *testing.T) {
	eachDialect(t, func(t *testing.T, dialect wire.Dialect) {
		r := newRig(t)
		d, s := r.daemon("d1"), r.site("shop")
		d.dialect, s.dialect = dialect, dialect
		d.heartbeat()
		assert.Empty(t, s.pending())
		assert.Equal(t, wire.EnqueueResponse{JobID: "job-1", State: "queued"}, s.enqueue("job-1", "ada"))
		jobs := d.claim(4)
		require.Len(t, jobs, 1)
		g := grantOf(jobs[0])
		assert.Equal(t, "job-1", g.JobID)
		assert.Equal(t, wire.EnqueueResponse{JobID: "job-1", State: "awaiting-payload"}, s.enqueue("job-1", "ada"))

		a := r.send(d.fetchCall(g))
		assert.Equal(t, http.StatusConflict, a.status)
		assert.JSONEq(t, `{"error":"not-ready","message":"the payload isn't sealed yet; ask again"}`, a.body)

		seals := s.pending()
		require.Len(t, seals, 1)
		assert.Equal(t, g, wire.Grant{JobID: seals[0].JobID, LeaseID: seals[0].LeaseID})
		assert.Equal(t, "d1", seals[0].RunnerID)
		assert.Equal(t, r.key("d1").Public(), seals[0].Device)
		assert.Equal(t, "ready", s.seal(seals[0]))

		env := d.fetch(g)
		assert.Equal(t, r.key("d1").KeyID(), env.RecipientKeyID)
		assert.Equal(t, "running", s.seal(seals[0]), "a second seal changes nothing")
		assert.Empty(t, d.heartbeat(g).Lost)
		assert.Equal(t, wire.ResultResponse{Accepted: true, State: "done"}, d.result(g, "shop"))
		assert.Equal(t, wire.ResultResponse{Duplicate: true, State: "done"}, d.result(g, "shop"))
		assert.Empty(t, d.heartbeat(g).Lost, "a done grant isn't lost")

		results := s.results()
		require.Len(t, results, 1)
		got := results[0]
		assert.Equal(t, g, wire.Grant{JobID: got.JobID, LeaseID: got.LeaseID})
		assert.Equal(t, []string{"ok", "d1", "ada"}, []string{got.Disposition, got.RunnerID, got.RunnerOwner})
		assert.Equal(t, r.key("d1").Public(), got.Device)
		assert.Empty(t, s.results(), "an answered one comes again after a while only")
		assert.Equal(t, "done", s.enqueue("job-1", "ada").State)
	})
}

func TestReleaseGivesBackExactlyWhatItNames(t *testing.T) {
	eachDialect(t, func(t *testing.T, dialect wire.Dialect) {
		r := newRig(t)
		d, other, s := r.daemon("d1"), r.daemon("d2"), r.quiet("shop")
		d.dialect, other.dialect, s.dialect = dialect, dialect, dialect
		s.enqueue("job-1", "ada")
		s.enqueue("job-2", "ada")
		jobs := d.claim(2)
		require.Len(t, jobs, 2)
		one, two := grantOf(jobs[0]), grantOf(jobs[1])
		assert.Empty(t, other.release("refused", one, two), "they aren't its own")
		stale := one
		stale.LeaseID = two.LeaseID
		assert.Empty(t, d.release("refused", stale))
		assert.Equal(t, []string{one.JobID}, d.release("refused", one))
		assert.Empty(t, d.release("refused", one), "once")
		assert.Empty(t, d.claim(2), "never to this device again")
		jobs = other.claim(2)
		require.Len(t, jobs, 1)
		assert.Equal(t, one.JobID, jobs[0].Stub.ID)
	})
}

// A polling daemon leaves out of its heartbeats what it hasn't the payload of, and what it is reporting.
func TestAHeartbeatGivesNothingBack(t *testing.T) {
	r := newRig(t)
	d, s := r.daemon("d1"), r.quiet("shop")
	s.enqueue("job-1", "ada")
	jobs := d.claim(1)
	require.Len(t, jobs, 1)
	for range 3 {
		h := d.heartbeat()
		assert.Empty(t, h.Lost)
		assert.Empty(t, d.claim(1), "the same runner's next claim gives nothing back either")
	}
	s.seal(s.pending()[0])
	d.fetch(grantOf(jobs[0]))
	d.heartbeat()
	assert.True(t, d.result(grantOf(jobs[0]), "shop").Accepted)
}

func TestCancelReachesItsHolder(t *testing.T) {
	r := newRig(t)
	d, s := r.daemon("d1"), r.quiet("shop")
	assert.False(t, s.cancel("job-1"), "there is no such job")
	s.enqueue("job-1", "ada")
	assert.True(t, s.cancel("job-1"))
	assert.Empty(t, d.claim(1), "it is gone")
	s.enqueue("job-2", "ada")
	jobs := d.claim(1)
	require.Len(t, jobs, 1)
	g := grantOf(jobs[0])
	assert.True(t, s.cancel("job-2"))
	assert.Empty(t, s.pending(), "there is nothing to seal any more")
	assert.Equal(t, []wire.Grant{g}, d.heartbeat(g).Cancel)
	a := r.send(d.fetchCall(g))
	assert.Equal(t, http.StatusConflict, a.status)
	assert.JSONEq(t, `{"error":"too-late","message":"it is too late for this; stop"}`, a.body)
	assert.True(t, ok[wire.ResultResponse](r, d.resultCall(g, "shop", "canceled", 100)).Accepted)
	assert.Equal(t, "canceled", s.results()[0].Disposition)
	assert.True(t, s.cancel("job-2"), "finished stays finished")
}
