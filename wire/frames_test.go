package wire_test

import (
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pushrelay/wire"
)

// odd is a string that has to be escaped, and to come back.
const odd = "a\"b\\c\n\x01<>&\u2028é"

func decoded[T any](t *testing.T, frame []byte) T {
	t.Helper()
	require.True(t, jsontext.Value(frame).IsValid(), "%s", frame)
	assert.NotContains(t, string(frame), "null")
	v, err := wire.Decode[T](frame)
	require.NoError(t, err, "%s", frame)
	return v
}

var (
	grant1 = wire.Grant{JobID: odd, LeaseID: "lease_1"}
	grant2 = wire.Grant{JobID: "job_2", LeaseID: odd}
	device = wire.PublicIdentity{Identity: "i", Encryption: "e", EncryptionSig: odd}
)

func TestRelayAppendersReadBack(t *testing.T) {
	sealed := jsontext.Value(sealedOf(64))
	grants := []wire.Grant{grant1, grant2}

	assert.Equal(t, wire.OKReply{Type: wire.TypeReply, Re: odd}, decoded[wire.OKReply](t, wire.AppendReplyOK(nil, odd)))
	assert.Equal(t, wire.AcceptReply{Type: wire.TypeReply, Re: odd, Lost: grants},
		decoded[wire.AcceptReply](t, wire.AppendAcceptReply(nil, odd, grants)))
	assert.Equal(t, wire.AcceptReply{Type: wire.TypeReply, Re: "1", Lost: []wire.Grant{}},
		decoded[wire.AcceptReply](t, wire.AppendAcceptReply(nil, "1", nil)))
	assert.Equal(t, wire.ReleaseReply{Type: wire.TypeReply, Re: "1", Released: grants},
		decoded[wire.ReleaseReply](t, wire.AppendReleaseReply(nil, "1", grants)))
	assert.Equal(t, wire.GrantsPush{Type: wire.TypeLost, Grants: grants, Reason: wire.LostLapsed},
		decoded[wire.GrantsPush](t, wire.AppendGrantsPush(nil, wire.TypeLost, grants, wire.LostLapsed)))
	assert.Equal(t, wire.GrantsPush{Type: wire.TypeCancel, Grants: grants},
		decoded[wire.GrantsPush](t, wire.AppendGrantsPush(nil, wire.TypeCancel, grants, "")))
	assert.Equal(t, wire.Payload{Type: wire.TypePayload, JobID: odd, LeaseID: odd, Envelope: sealed},
		decoded[wire.Payload](t, wire.AppendTail(append(wire.AppendPayloadHead(nil, odd, odd), sealed...))))
	assert.Equal(t, wire.FetchReply{Type: wire.TypeReply, Re: odd, Envelope: sealed},
		decoded[wire.FetchReply](t, wire.AppendTail(append(wire.AppendFetchReplyHead(nil, odd), sealed...))))
	for _, dup := range []bool{true, false} {
		assert.Equal(t, wire.ResultReply{Type: wire.TypeReply, Re: "1", Accepted: !dup, Duplicate: dup, State: "done"},
			decoded[wire.ResultReply](t, wire.AppendResultReply(nil, "1", !dup, dup, "done")))
	}
	assert.Equal(t, wire.HeartbeatReply{
		Type: wire.TypeReply, Re: "1", Cancel: grants, Lost: []wire.Grant{}, ServerTime: 7, AwaitingConsent: []string{odd, "b"},
	}, decoded[wire.HeartbeatReply](t, wire.AppendHeartbeatReply(nil, "1", grants, nil, 7, []string{odd, "b"})))
	assert.Equal(t, wire.Credit{Type: wire.TypeCredit, Stream: 1<<32 - 1, Bytes: 9},
		decoded[wire.Credit](t, wire.AppendCredit(nil, 1<<32-1, 9)))
}

func TestClaimedReadsBack(t *testing.T) {
	s, err := wire.ParseStub(wire.Dialect0, []byte(stub0))
	require.NoError(t, err)
	lease := wire.ClaimLease{ID: odd, RunnerID: odd, ExpiresAt: 5}
	jobs := []wire.ClaimedJob{{Stub: &s, Lease: lease}, {Stub: &s, Lease: lease}}
	c := decoded[wire.Claimed](t, wire.AppendClaimed(nil, jobs, 60_000))
	assert.Equal(t, int64(60_000), c.LeaseMs)
	require.Len(t, c.Jobs, 2)
	for _, raw := range c.Jobs {
		back, err := wire.ParseClaimed(wire.Dialect0, raw)
		require.NoError(t, err)
		assert.Equal(t, wire.ClaimedJob{Stub: &s, Lease: lease}, back)
	}
	assert.Equal(t, wire.Claimed{Type: wire.TypeClaimed, Jobs: []jsontext.Value{}, LeaseMs: 1},
		decoded[wire.Claimed](t, wire.AppendClaimed(nil, nil, 1)))
}

func TestSiteAppendersReadBack(t *testing.T) {
	sealed := jsontext.Value(sealedOf(64))
	seals := []wire.SealJob{
		{JobID: odd, LeaseID: "l", RunnerID: odd, Device: device, AwaitingUntil: 1, LeaseExpiresAt: 2},
		{JobID: "j", LeaseID: "l", RunnerID: "r", Device: device},
	}
	assert.Equal(t, wire.SealRequest{Type: wire.TypeSealRequest, Jobs: seals},
		decoded[wire.SealRequest](t, wire.AppendSealRequest(nil, seals)))
	assert.Equal(t, wire.StateReply{Type: wire.TypeReply, Re: "1", State: "ready"},
		decoded[wire.StateReply](t, wire.AppendStateReply(nil, "1", "ready")))
	states := []wire.EnqueueState{
		{JobID: odd, State: "queued"},
		{JobID: "j", Error: "too-late", Message: odd, ServerTime: 9},
		{Error: "rate-limited", Message: "m", RetryAfter: 3},
	}
	assert.Equal(t, wire.EnqueueReply{Type: wire.TypeReply, Re: "1", Jobs: states},
		decoded[wire.EnqueueReply](t, wire.AppendEnqueueReply(nil, "1", states)))

	jobs := []wire.ResultJob{
		{JobID: odd, LeaseID: "l", Envelope: sealed, Disposition: "ok", RunnerID: odd, RunnerOwner: odd, Device: device},
		{JobID: "j", LeaseID: "l", Envelope: sealed, Disposition: "error", RunnerID: "r", RunnerOwner: "o", Device: device},
	}
	frame := wire.AppendResultsHead(nil)
	for i, j := range jobs {
		frame = wire.AppendResultJobHead(frame, i == 0, j)
		frame = wire.AppendResultJobTail(append(frame, j.Envelope...))
	}
	assert.Equal(t, wire.Results{Type: wire.TypeResults, Jobs: jobs},
		decoded[wire.Results](t, wire.AppendResultsTail(frame)))
}

func TestClientAppendersReadBack(t *testing.T) {
	sealed := jsontext.Value(sealedOf(64))
	grants := []wire.Grant{grant1, grant2}
	head := func(t wire.FrameType) wire.Head { return wire.Head{Type: t, ID: "17"} }
	for _, typ := range []wire.FrameType{wire.TypeAccept, wire.TypeSealing, wire.TypeDecline, wire.TypeCollected} {
		assert.Equal(t, wire.Grants{Head: head(typ), Grants: grants},
			decoded[wire.Grants](t, wire.AppendGrants(nil, typ, "17", grants)))
	}
	assert.Equal(t, wire.Release{Head: head(wire.TypeRelease), Grants: grants, Reason: wire.ReleasePause},
		decoded[wire.Release](t, wire.AppendRelease(nil, "17", grants, wire.ReleasePause)))
	assert.Equal(t, wire.Fetch{Head: head(wire.TypeFetch), Grant: grant1},
		decoded[wire.Fetch](t, wire.AppendFetch(nil, "17", grant1)))
	assert.Equal(t, wire.Result{Head: head(wire.TypeResult), Grant: grant2, Disposition: "canceled", Envelope: sealed},
		decoded[wire.Result](t, wire.AppendTail(append(wire.AppendResultHead(nil, "17", grant2, "canceled"), sealed...))))
	assert.Equal(t, wire.Seal{Head: head(wire.TypeSeal), JobID: odd, LeaseID: "l", Envelope: sealed},
		decoded[wire.Seal](t, wire.AppendTail(append(wire.AppendSealHead(nil, "17", odd, "l"), sealed...))))
	stubs := []jsontext.Value{jsontext.Value(stub0), jsontext.Value(stub2)}
	assert.Equal(t, wire.Enqueue{Head: head(wire.TypeEnqueue), Stubs: stubs},
		decoded[wire.Enqueue](t, wire.AppendEnqueue(nil, "17", stubs)))
	assert.Equal(t, wire.CancelJobs{Head: head(wire.TypeCancel), JobIDs: []string{odd, "b"}},
		decoded[wire.CancelJobs](t, wire.AppendCancelJobs(nil, "17", []string{odd, "b"})))
}

func TestEncodeWritesNoNull(t *testing.T) {
	off := false
	for _, frame := range [][]byte{
		must(wire.Encode(wire.Welcome{Type: wire.TypeWelcome})),
		must(wire.Encode(wire.Sites{Type: wire.TypeSites})),
		must(wire.Encode(wire.Heartbeat{Paused: &off})),
		must(wire.Encode(wire.HeartbeatReply{})),
		must(wire.Encode(wire.HeartbeatResponse{})),
		must(wire.Encode(wire.Claimed{})),
		must(wire.Encode(wire.ClaimResponse{})),
		must(wire.Encode(wire.CancelReply{})),
		must(wire.Encode(wire.HelloBody{})),
		must(wire.Encode(wire.Notices{Jobs: []wire.Notice{{}}})),
	} {
		assert.NotContains(t, string(frame), "null")
	}
	_, err := wire.Encode(wire.Ready{})
	assert.Error(t, err, "a list of capabilities is not optional")
	raw := jsontext.Value(`[{"a":"\u005f <é"}]`)
	frame := must(wire.Encode(wire.Ready{Head: wire.Head{Type: wire.TypeReady, ID: "1"}, Capabilities: raw, Slots: 2}))
	assert.Equal(t, `{"type":"ready","id":"1","capabilities":[{"a":"\u005f <é"}],"slots":2,"paused":false}`, string(frame))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
