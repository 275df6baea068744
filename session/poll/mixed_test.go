package poll_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pushrelay/session"
	pushdaemon "pushrelay/session/daemon"
	pushsite "pushrelay/session/site"
	"pushrelay/wire"
	"pushrelay/wire/seal"
)

// sessions serves sessions beside the rig's planes, on one address.
func (r *rig) sessions() (url string) {
	r.t.Helper()
	var srv atomic.Pointer[session.Server]
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		switch q.URL.Path {
		case wire.DaemonPath:
			srv.Load().Handler(wire.RoleDaemon).ServeHTTP(w, q)
		case wire.SitePath:
			srv.Load().Handler(wire.RoleSite).ServeHTTP(w, q)
		default:
			r.planes.ServeHTTP(w, q)
		}
	}))
	s, err := session.NewServer(session.ServerConfig{
		Opener: r.hub, Directory: r.hub, PublicURLs: []string{server.URL}, Version: "test", Log: zerolog.Nop(),
	})
	require.NoError(r.t, err)
	srv.Store(s)
	r.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(r.t, s.Close(ctx))
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}

// beside runs f until the test ends.
func (r *rig) beside(f func(ctx context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	r.t.Cleanup(func() {
		cancel()
		require.NoError(r.t, <-ended)
	})
}

type shout struct{}

func (shout) Run(_ context.Context, j pushdaemon.Job) (pushdaemon.Answer, error) {
	return pushdaemon.Answer{Text: j.Prompt.Text + "!"}, nil
}

// sealFor seals a real payload.
func (s *site) sealFor(j wire.SealJob, prompt string, deadline int64) {
	s.t.Helper()
	plain, err := seal.GeneratePayload{Prompt: prompt}.Encode()
	require.NoError(s.t, err)
	env, err := seal.Seal(s.key(s.name), j.Device, seal.Context{JobID: j.JobID, Direction: wire.DirectionPayload, DeadlineAt: deadline}, plain)
	require.NoError(s.t, err)
	c := s.siteCall(s.name, "payload", string(wire.AppendPayloadRequest(nil, s.dialect, s.name, j.JobID, env.Raw)))
	ok[wire.StateResponse](s.rig, c)
}

// Sessions and polls meet in every way: here a site that polls, and a daemon with a session.
func TestAPollingSiteWithASessionsDaemon(t *testing.T) {
	r := newRig(t, holding)
	d, err := pushdaemon.New(pushdaemon.Config{
		URL: r.sessions(), RunnerID: "d1", Keys: r.key("d1"), StateDir: t.TempDir(), Run: shout{}, Log: zerolog.Nop(), Slots: 2,
		Dialect:      wire.Dialect0,
		Capabilities: []wire.Capability{{Kind: "llm.generate", BackendID: "b", BackendClass: "process", Model: "m", OfferScope: "self"}},
	})
	require.NoError(t, err)
	r.beside(d.Run)
	s := r.quiet("shop")
	pending := r.fly(s.pendingCall(), "pending")
	deadline := time.Now().Add(time.Hour).UnixMilli()
	stub := wire.AppendStub(nil, wire.Stub{
		ID: "job", Kind: "llm.generate", Owner: "ada", Site: r.key("shop").KeyID(), Audience: "self", SizeClass: "small", DeadlineAt: deadline,
	})
	ok[wire.EnqueueResponse](r, s.siteCall("shop", "enqueue", string(wire.AppendEnqueueRequest(nil, s.dialect, "shop", stub))))
	seals := s.sealJobs(pending.land())
	require.Len(t, seals, 1)
	pending = r.fly(s.pendingCall(), "pending")
	s.sealFor(seals[0], "hello", deadline)
	assert.Empty(t, s.sealJobs(pending.land()))
	results := s.results()
	require.Len(t, results, 1)
	env, err := wire.ParseEnvelope(results[0].Envelope)
	require.NoError(t, err)
	plain, err := seal.Open(r.key("shop"), results[0].Device, seal.Expected{JobID: "job", Direction: wire.DirectionResult}, env)
	require.NoError(t, err)
	got, err := seal.ParseResult(plain)
	require.NoError(t, err)
	assert.Equal(t, "hello!", got.Outcome.Text)
}

// A site with a session, and a daemon that polls.
func TestAPollingDaemonWithASessionsSite(t *testing.T) {
	r := newRig(t, holding)
	came := make(chan pushsite.Result, 1)
	s, err := pushsite.New(pushsite.Config{
		URL: r.sessions(), SiteID: "shop", Keys: r.key("shop"), Log: zerolog.Nop(), Dialect: wire.Dialect0,
		OnResult: func(_ context.Context, res pushsite.Result) error {
			came <- res
			return nil
		},
	})
	require.NoError(t, err)
	r.beside(s.Run)
	d := r.daemon("d1")
	claim := r.fly(d.claimCall(1), "claim")
	plain, err := seal.GeneratePayload{Prompt: "hello"}.Encode()
	require.NoError(t, err)
	submitted := s.Submit(t.Context(), pushsite.Job{ID: "job", Kind: pushsite.KindGenerate, Owner: "ada", Deadline: time.Now().Add(time.Hour), Payload: plain})
	require.NoError(t, submitted[0].Err)
	jobs := d.claimed(claim.land())
	require.Len(t, jobs, 1)
	g, stub := grantOf(jobs[0]), jobs[0].Stub
	env, err := wire.ParseFetchResponse([]byte(r.send(d.fetchCall(g)).body)) // held until it is sealed
	require.NoError(t, err)
	plain, err = seal.Open(r.key("d1"), r.key("shop").Public(), seal.Expected{JobID: "job", Direction: wire.DirectionPayload}, env)
	require.NoError(t, err)
	prompt, err := seal.ParseGenerate(plain)
	require.NoError(t, err)
	text, err := seal.Result{Outcome: seal.OK(prompt.Prompt + "!"), Ran: seal.Ran{Model: "m", BackendClass: "process"}}.Encode()
	require.NoError(t, err)
	env, err = seal.Seal(r.key("d1"), r.key("shop").Public(), seal.Context{JobID: "job", Direction: wire.DirectionResult, DeadlineAt: stub.DeadlineAt}, text)
	require.NoError(t, err)
	body, err := json.Marshal(map[string]any{
		"protocolVersion": "0", "runnerId": "d1", "jobId": g.JobID, "leaseId": g.LeaseID, "envelope": json.RawMessage(env.Raw), "disposition": "ok",
	})
	require.NoError(t, err)
	require.True(t, ok[wire.ResultResponse](r, r.daemonCall("d1", "result", string(body))).Accepted)
	select {
	case res := <-came:
		assert.Equal(t, "hello!", res.Outcome.Text, fmt.Sprint(res))
	case <-time.After(patience):
		t.Fatal("no result came")
	}
}
