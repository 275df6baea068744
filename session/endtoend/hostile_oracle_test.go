package endtoend

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pushrelay/session/daemon"
	"pushrelay/session/site"
	"pushrelay/wire"
	"pushrelay/wire/seal"
)

// held is a job of shop that d1 is running, until it is let go.
func (s *siege) held() (shop *site.Site, in *inbox, grant wire.Grant, release func()) {
	s.t.Helper()
	shop, in, _ = s.site("shop")
	began, proceed := make(chan wire.Grant, 1), make(chan struct{})
	s.daemon("d1", func(ctx context.Context, job daemon.Job) (daemon.Answer, error) {
		if job.Grant.JobID != "secret" {
			return echo(ctx, job)
		}
		began <- job.Grant
		select {
		case <-proceed:
			return echo(ctx, job)
		case <-ctx.Done():
			return daemon.Answer{}, ctx.Err()
		}
	})
	s.submit(shop, "ada", map[string]string{"secret": "x"})
	return shop, in, next(s.world, began), func() { close(proceed) }
}

// equal asks for what exists and for what doesn't, and the answers must not differ in anything but the ids that were asked.
func equal(t *testing.T, r *raw, what wire.FrameType, members string, real, none wire.Grant) {
	t.Helper()
	fill := func(g wire.Grant) string {
		return strings.NewReplacer("JOB", g.JobID, "LEASE", g.LeaseID).Replace(members)
	}
	answers := map[bool]string{}
	for exists, g := range map[bool]wire.Grant{true: real, false: none} {
		answer := string(r.ask(what, fill(g)))
		answer = strings.ReplaceAll(answer, fmt.Sprint("q", r.next), "RE")
		answers[exists] = strings.NewReplacer(g.JobID, "JOB", g.LeaseID, "LEASE").Replace(answer)
	}
	assert.Equal(t, answers[false], answers[true], "%s tells what exists", what)
}

// TestNoOracle has strangers ask about a job that others are at: nothing tells it from a job that doesn't exist, and
// nothing that they send touches it.
func TestNoOracle(t *testing.T) {
	t.Parallel()
	s := besiege(t)
	_, in, grant, release := s.held()
	deadline := time.Now().Add(time.Hour).UnixMilli()
	guess := wire.Grant{JobID: grant.JobID, LeaseID: "00000000-0000-4000-8000-000000000000"}
	none := wire.Grant{JobID: "nobody", LeaseID: "00000000-0000-4000-8000-000000000001"}

	envelope := func(k *seal.Keys, to string, d wire.Direction) string {
		e, err := seal.Seal(k, s.keys[to].Public(), seal.Context{JobID: grant.JobID, Direction: d, DeadlineAt: deadline}, []byte("{}"))
		require.NoError(t, err)
		return string(e.Raw)
	}
	one := `[{"jobId":"JOB","leaseId":"LEASE"}]`
	for _, name := range []string{"d2", "d3"} { // of the same owner, and of another
		r := s.raw(wire.RoleDaemon, name, nil)
		equal(t, r, wire.TypeFetch, `"grant":{"jobId":"JOB","leaseId":"LEASE"}`, guess, none)
		equal(t, r, wire.TypeAccept, `"grants":`+one, guess, none)
		equal(t, r, wire.TypeRelease, `"reason":"shutdown","grants":`+one, guess, none)
		equal(t, r, wire.TypeResult, `"grant":{"jobId":"JOB","leaseId":"LEASE"},"disposition":"ok","envelope":`+
			envelope(s.keys[name], "shop", wire.DirectionResult), guess, none)
		hb := r.ask(wire.TypeHeartbeat, grants("activeLeases", guess, none, grant))
		f, err := wire.Decode[wire.HeartbeatReply](hb)
		require.NoError(t, err)
		assert.Equal(t, []wire.Grant{guess, none, grant}, f.Lost, "all are lost alike")
		for _, x := range []struct {
			what    wire.FrameType
			members string
		}{ // who knows the lease itself learns that it isn't theirs, and can do nothing with it
			{wire.TypeFetch, `"grant":{"jobId":"JOB","leaseId":"LEASE"}`},
			{wire.TypeResult, `"grant":{"jobId":"JOB","leaseId":"LEASE"},"disposition":"ok","envelope":` + envelope(s.keys[name], "shop", wire.DirectionResult)},
		} {
			answer := r.ask(x.what, strings.NewReplacer("JOB", grant.JobID, "LEASE", grant.LeaseID).Replace(x.members))
			assert.Equal(t, wire.CodeForbidden, code(answer), "%s: %s", x.what, answer)
		}
		released, err := wire.Decode[wire.ReleaseReply](r.ask(wire.TypeRelease, `"reason":"shutdown",`+grants("grants", grant)))
		require.NoError(t, err)
		assert.Empty(t, released.Released, "nobody gives back what another holds")
		r.hangUp()
	}

	r := s.raw(wire.RoleSite, "blog", nil)
	equal(t, r, wire.TypeSeal, `"jobId":"JOB","leaseId":"LEASE","envelope":`+envelope(s.keys["blog"], "d1", wire.DirectionPayload), grant, none)
	for _, what := range []wire.FrameType{wire.TypeSealing, wire.TypeDecline, wire.TypeCollected} {
		equal(t, r, what, `"grants":`+one, grant, none)
	}
	equal(t, r, wire.TypeCancel, `"jobIds":["JOB"]`, grant, none)
	r.hangUp()

	release()
	s.answers(in, map[string]string{"secret": "x"})
	s.log.wait(t, 1, "shop", "collected", "secret")
	s.stands()
}

// TestForgedResult has the holder itself send results that aren't what they must be; the true one is taken afterwards.
func TestForgedResult(t *testing.T) {
	t.Parallel()
	s := besiege(t)
	shop, in, _ := s.site("shop")
	r := s.raw(wire.RoleDaemon, "d3", nil)
	s.submit(shop, "bob", map[string]string{"job": "x"})
	g := r.claims()[0]
	assert.Equal(t, "[]", lostOf(t, r.ask(wire.TypeAccept, grants("grants", g))))
	r.push(wire.TypePayload)
	j, _ := s.jobs.Load("job")
	deadline := j.(site.Job).Deadline.UnixMilli()
	for _, forged := range []struct {
		as, to    string
		direction wire.Direction
	}{
		{"d3", "blog", wire.DirectionResult}, // to another site
		{"d3", "d3", wire.DirectionResult},   // to itself
		{"d2", "shop", wire.DirectionResult}, // by another device
		{"d3", "shop", wire.DirectionPayload},
	} {
		e, err := seal.Seal(s.keys[forged.as], s.keys[forged.to].Public(), seal.Context{
			JobID: "job", Direction: forged.direction, DeadlineAt: deadline,
		}, []byte("{}"))
		require.NoError(t, err)
		answer := r.ask(wire.TypeResult, fmt.Sprintf(`"grant":{"jobId":"job","leaseId":%q},"disposition":"ok","envelope":%s`, g.LeaseID, e.Raw))
		assert.Equal(t, wire.CodeBadRequest, code(answer), "%+v: %s", forged, answer)
	}
	answer, err := wire.Decode[wire.ResultReply](r.report(s.world, "shop", g, deadline, "true"))
	require.NoError(t, err)
	assert.True(t, answer.Accepted)
	s.answers(in, map[string]string{"job": "true"})
	r.hangUp()
	s.log.wait(t, 1, "shop", "collected", "job")
	s.stands()
}
