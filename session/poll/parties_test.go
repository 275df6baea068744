package poll_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pushrelay/wire"
	"pushrelay/wire/seal"
)

// daemon speaks for a device in one dialect.
type daemon struct {
	*rig
	name    string
	dialect wire.Dialect
}

// site speaks for a site in one dialect.
type site struct {
	*rig
	name    string
	dialect wire.Dialect
}

func (r *rig) daemon(name string) *daemon { return &daemon{r, name, wire.Dialect0} }
func (r *rig) site(name string) *site     { return &site{r, name, wire.Dialect0} }

// quiet is a site whose first pending isn't answered at once, for results that might have come before the relay knew it.
func (r *rig) quiet(name string) *site {
	s := r.site(name)
	require.Empty(r.t, s.results())
	return s
}

func (d *daemon) capabilities() string {
	return string(wire.AppendCapabilities(nil, d.dialect, []wire.Capability{{
		Kind: "llm.generate", BackendID: "b", BackendClass: "http", Service: "s", Model: "m", OfferScope: d.dialect.Audiences()[0],
	}}))
}

func (d *daemon) claimCall(max int) *call {
	return d.daemonCall(d.name, "claim", fmt.Sprintf(`{"protocolVersion":%q,"runnerId":%q,"capabilities":%s,"max":%d}`,
		d.dialect, d.name, d.capabilities(), max))
}

func grantOf(j wire.ClaimedJob) wire.Grant {
	return wire.Grant{JobID: j.Stub.ID, LeaseID: j.Lease.ID}
}

func (d *daemon) claim(max int) []wire.ClaimedJob {
	d.t.Helper()
	a := d.send(d.claimCall(max))
	require.Equal(d.t, http.StatusOK, a.status, a.body)
	return d.claimed(a)
}

func (d *daemon) claimed(a answered) []wire.ClaimedJob {
	d.t.Helper()
	r, err := wire.ParseClaimResponse(d.dialect, []byte(a.body))
	require.NoError(d.t, err, a.body)
	require.EqualValues(d.t, 60_000, r.LeaseMs)
	out := make([]wire.ClaimedJob, len(r.Jobs))
	for i := range r.Jobs {
		out[i], err = wire.ParseClaimed(d.dialect, r.Jobs[i])
		require.NoError(d.t, err)
		require.Equal(d.t, d.name, out[i].Lease.RunnerID)
	}
	return out
}

func (d *daemon) fetchCall(g wire.Grant) *call {
	return d.daemonCall(d.name, "fetch", fmt.Sprintf(`{"protocolVersion":%q,"runnerId":%q,"jobId":%q,"leaseId":%q}`,
		d.dialect, d.name, g.JobID, g.LeaseID))
}

func (d *daemon) fetch(g wire.Grant) wire.Envelope {
	d.t.Helper()
	a := d.send(d.fetchCall(g))
	require.Equal(d.t, http.StatusOK, a.status, a.body)
	e, err := wire.ParseFetchResponse([]byte(a.body))
	require.NoError(d.t, err)
	return e
}

func (d *daemon) heartbeatCall(leases ...wire.Grant) *call {
	text, err := json.Marshal(leases)
	require.NoError(d.t, err)
	if leases == nil {
		text = []byte("[]")
	}
	paused := ""
	if d.dialect == wire.Dialect0 {
		paused = `,"paused":false`
	}
	return d.daemonCall(d.name, "heartbeat", fmt.Sprintf(
		`{"protocolVersion":%q,"runnerId":%q,"daemonVersion":"1","capabilities":%s,"activeLeases":%s%s}`,
		d.dialect, d.name, d.capabilities(), text, paused))
}

func (d *daemon) heartbeat(leases ...wire.Grant) wire.HeartbeatResponse {
	d.t.Helper()
	a := d.send(d.heartbeatCall(leases...))
	require.Equal(d.t, http.StatusOK, a.status, a.body)
	r, err := wire.ParseHeartbeatResponse(d.dialect, []byte(a.body))
	require.NoError(d.t, err, a.body)
	return r
}

// envelope is one that nobody could open; its ciphertext has about n bytes.
func envelope(from, to string, direction wire.Direction, n int) []byte {
	return wire.AppendEnvelope(nil, wire.Envelope{
		RecipientKeyID: to, SenderKeyID: from, Direction: direction, DeadlineAt: time.Now().Add(time.Hour).UnixMilli(),
	}, strings.Repeat("A", max(n, 4)))
}

func (d *daemon) resultCall(g wire.Grant, siteName, disposition string, n int) *call {
	env := envelope(d.key(d.name).KeyID(), d.key(siteName).KeyID(), wire.DirectionResult, n)
	return d.daemonCall(d.name, "result", fmt.Sprintf(
		`{"protocolVersion":%q,"runnerId":%q,"jobId":%q,"leaseId":%q,"envelope":%s,"disposition":%q}`,
		d.dialect, d.name, g.JobID, g.LeaseID, env, disposition))
}

func (d *daemon) result(g wire.Grant, siteName string) wire.ResultResponse {
	d.t.Helper()
	return ok[wire.ResultResponse](d.rig, d.resultCall(g, siteName, "ok", 100))
}

func (d *daemon) releaseCall(reason string, leases ...wire.Grant) *call {
	text, err := json.Marshal(leases)
	require.NoError(d.t, err)
	return d.daemonCall(d.name, "release", fmt.Sprintf(`{"protocolVersion":%q,"runnerId":%q,"leases":%s,"reason":%q}`,
		d.dialect, d.name, text, reason))
}

func (d *daemon) release(reason string, leases ...wire.Grant) []string {
	d.t.Helper()
	return ok[wire.ReleaseResponse](d.rig, d.releaseCall(reason, leases...)).Released
}

func (s *site) enqueueCall(id, owner string) *call {
	stub := wire.AppendStub(nil, wire.Stub{
		ID: id, Kind: "llm.generate", Owner: owner, Site: s.key(s.name).KeyID(), Audience: s.dialect.Audiences()[0], SizeClass: "small",
		DeadlineAt: time.Now().Add(time.Hour).UnixMilli(),
	})
	return s.siteCall(s.name, "enqueue", string(wire.AppendEnqueueRequest(nil, s.dialect, s.name, stub)))
}

func (s *site) enqueue(id, owner string) wire.EnqueueResponse {
	s.t.Helper()
	return ok[wire.EnqueueResponse](s.rig, s.enqueueCall(id, owner))
}

func (s *site) pendingCall() *call { return s.siteGet(s.name, "pending", string(s.dialect)) }

func (s *site) pending() []wire.SealJob {
	s.t.Helper()
	return s.sealJobs(s.send(s.pendingCall()))
}

func (s *site) sealJobs(a answered) []wire.SealJob {
	s.t.Helper()
	require.Equal(s.t, http.StatusOK, a.status, a.body)
	r, err := wire.ParsePendingResponse([]byte(a.body))
	require.NoError(s.t, err, a.body)
	for _, j := range r.Jobs {
		require.NoError(s.t, j.Device.Verify())
	}
	return r.Jobs
}

func (s *site) payloadCall(job string, device wire.PublicIdentity, n int) *call {
	to, err := device.KeyID()
	require.NoError(s.t, err)
	env := envelope(s.key(s.name).KeyID(), to, wire.DirectionPayload, n)
	return s.siteCall(s.name, "payload", string(wire.AppendPayloadRequest(nil, s.dialect, s.name, job, env)))
}

func (s *site) seal(j wire.SealJob) string {
	s.t.Helper()
	return ok[wire.StateResponse](s.rig, s.payloadCall(j.JobID, j.Device, 100)).State
}

func (s *site) cancelCall(job string) *call {
	return s.siteCall(s.name, "cancel", string(wire.AppendCancelRequest(nil, s.dialect, s.name, job)))
}

func (s *site) cancel(job string) bool {
	s.t.Helper()
	return ok[wire.CancelResponse](s.rig, s.cancelCall(job)).Cancelled
}

func (s *site) results() []wire.ResultJob {
	s.t.Helper()
	a := s.send(s.siteGet(s.name, "results", string(s.dialect)))
	require.Equal(s.t, http.StatusOK, a.status, a.body)
	r, err := wire.ParseResultsResponse([]byte(a.body))
	require.NoError(s.t, err, a.body)
	for _, j := range r.Jobs {
		require.NoError(s.t, j.Device.Verify())
	}
	return r.Jobs
}

func succession(t *testing.T, from *seal.Keys, to wire.PublicIdentity) wire.Succession {
	t.Helper()
	s, err := seal.SignSuccession(from, to)
	require.NoError(t, err)
	return s
}
