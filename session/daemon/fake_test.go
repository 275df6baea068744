package daemon

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"pushrelay/session"
	"pushrelay/session/internal/fake"
	"pushrelay/wire"
	"pushrelay/wire/seal"
)

const testDeadline = int64(4_000_000_000_000) // in the year 2096

func newFakeConn(id string) *fake.Conn { return fake.New(id, quiet) }

// quiet is what a relay answers when nothing is wrong.
func quiet(h wire.Head, _ []byte) ([]byte, error) {
	switch h.Type {
	case wire.TypeAccept:
		return wire.AppendAcceptReply(nil, h.ID, nil), nil
	case wire.TypeRelease:
		return wire.AppendReleaseReply(nil, h.ID, nil), nil
	case wire.TypeResult:
		return wire.AppendResultReply(nil, h.ID, true, false, "done"), nil
	case wire.TypeHeartbeat:
		return wire.AppendHeartbeatReply(nil, h.ID, nil, nil, 1, nil), nil
	case wire.TypeFetch:
		return nil, wire.Errorf(wire.CodeNotReady, "not sealed yet")
	}
	return wire.AppendReplyOK(nil, h.ID), nil
}

// world is one daemon, one site and the relay between them.
type world struct {
	t      testing.TB
	dir    string
	device *seal.Keys
	site   *seal.Keys
	siteID string
	d      *Daemon
	conn   *fake.Conn
	ctx    context.Context
	wall   func() time.Time
	tweak  func(*Config)

	mu     sync.Mutex
	events []Event
}

func newKeys(t testing.TB) *seal.Keys {
	k, err := seal.Generate(nil)
	require.NoError(t, err)
	return k
}

// newWorld starts a daemon whose runner is run, connected.
func newWorld(t testing.TB, run Runner, tweak func(*Config)) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), device: newKeys(t), site: newKeys(t), ctx: t.Context(), tweak: tweak}
	w.siteID = w.site.KeyID()
	w.start(run)
	w.connect(newFakeConn("s1"))
	return w
}

func (w *world) start(run Runner) {
	w.t.Helper()
	cfg := Config{
		URL: "ws://127.0.0.1:1", RunnerID: "runner", Keys: w.device, Slots: 8, StateDir: w.dir, Run: run, Log: zerolog.Nop(),
		Capabilities: capabilities(), wall: w.wall,
		OnEvent: func(e Event) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.events = append(w.events, e)
		},
	}
	if w.tweak != nil {
		w.tweak(&cfg)
	}
	d, err := New(cfg)
	require.NoError(w.t, err)
	w.d = d
	w.t.Cleanup(func() { w.kill() })
}

func capabilities() []wire.Capability {
	var out []wire.Capability
	for _, kind := range []string{KindGenerate, KindChat} {
		out = append(out, wire.Capability{
			Kind: kind, BackendID: "fake", BackendClass: "process", Service: "fake", Model: "m", OfferScope: "private",
		})
	}
	return out
}

func (w *world) welcome() wire.Welcome {
	return wire.Welcome{
		SessionID: "s", Epoch: "e", ServerTime: time.Now().UnixMilli(), LeaseMs: 60_000, HeartbeatMs: 20_000, PingMs: 20_000,
		Sites: map[string]wire.PublicIdentity{w.siteID: w.site.Public()},
	}
}

func (w *world) connect(c *fake.Conn) { w.connectWith(c, w.welcome()) }

func (w *world) connectWith(c *fake.Conn, welcome wire.Welcome) {
	w.conn = c
	w.d.welcome(w.ctx, c, welcome)
}

// cut ends the session as a broken connection does.
func (w *world) cut() {
	w.conn.End()
	w.d.ended(w.conn, session.End{Reason: session.ReasonCut})
}

// kill ends the daemon as a crash does, as far as its StateDir is concerned; it may be called twice.
func (w *world) kill() {
	d := w.d
	if d == nil {
		return
	}
	w.d = nil
	if d.link != nil {
		d.ended(d.link.conn, session.End{Reason: session.ReasonCut})
	}
	d.stopJobs(ErrStopped)
	d.work.Wait()
	require.NoError(w.t, d.closeState())
}

func (w *world) push(frame []byte) {
	w.t.Helper()
	head, err := wire.DecodeHead(frame)
	require.NoError(w.t, err)
	w.d.push(w.conn, head, frame)
}

func (w *world) stub(id string) wire.Stub {
	s := wire.Stub{
		ID: id, Kind: KindGenerate, Owner: "owner", Site: w.siteID, Audience: "private", SizeClass: "small",
		DeadlineAt: testDeadline,
	}
	return s
}

func grant(id string) wire.Grant { return wire.Grant{JobID: id, LeaseID: "lease-" + id} }

func (w *world) claimed(stubs ...wire.Stub) []byte {
	var jobs []wire.ClaimedJob
	for _, s := range stubs {
		s.Raw = wire.AppendStub(nil, s)
		jobs = append(jobs, wire.ClaimedJob{Stub: &s, Lease: wire.ClaimLease{
			ID: grant(s.ID).LeaseID, RunnerID: "runner", ExpiresAt: testDeadline,
		}})
	}
	return wire.AppendClaimed(nil, jobs, 60_000)
}

// offer pushes jobs with these ids.
func (w *world) offer(ids ...string) {
	w.t.Helper()
	var stubs []wire.Stub
	for _, id := range ids {
		stubs = append(stubs, w.stub(id))
	}
	w.push(w.claimed(stubs...))
}

// sealed is a payload of the site for a job.
func (w *world) sealed(id, prompt string) []byte {
	return sealAs(w.t, w.site, w.device.Public(), id, wire.DirectionPayload, testDeadline, prompt)
}

func sealAs(t testing.TB, by *seal.Keys, to wire.PublicIdentity, id string, dir wire.Direction, deadline int64, prompt string) []byte {
	t.Helper()
	plain, err := seal.GeneratePayload{Prompt: prompt}.Encode()
	require.NoError(t, err)
	e, err := seal.Seal(by, to, seal.Context{JobID: id, Direction: dir, DeadlineAt: deadline}, plain)
	require.NoError(t, err)
	return e.Raw
}

func payloadFrame(g wire.Grant, envelope []byte) []byte {
	return wire.AppendTail(append(wire.AppendPayloadHead(nil, g.JobID, g.LeaseID), envelope...))
}

func (w *world) payload(id, prompt string) { w.push(payloadFrame(grant(id), w.sealed(id, prompt))) }

// outcome opens a reported result as the site would.
func (w *world) outcome(r wire.Result) seal.Outcome {
	w.t.Helper()
	return openResult(w.t, w.site, w.device.Public(), r)
}

func openResult(t testing.TB, by *seal.Keys, device wire.PublicIdentity, r wire.Result) seal.Outcome {
	t.Helper()
	e, err := wire.ParseEnvelope(r.Envelope)
	require.NoError(t, err)
	plain, err := seal.Open(by, device, seal.Expected{JobID: r.Grant.JobID, Direction: wire.DirectionResult}, e)
	require.NoError(t, err)
	got, err := seal.ParseResult(plain)
	require.NoError(t, err)
	require.Equal(t, got.Outcome.Outcome, r.Disposition)
	return got.Outcome
}

func (w *world) results() []wire.Result { return fake.Sent[wire.Result](w.t, w.conn, wire.TypeResult) }

func (w *world) released() map[string][]wire.Grant {
	out := map[string][]wire.Grant{}
	for _, r := range fake.Sent[wire.Release](w.t, w.conn, wire.TypeRelease) {
		out[r.Reason] = append(out[r.Reason], r.Grants...)
	}
	return out
}

func (w *world) has(typ EventType) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.events {
		if e.Type == typ {
			return true
		}
	}
	return false
}

// runnerFunc is a Runner from a function.
type runnerFunc func(ctx context.Context, job Job) (Answer, error)

func (f runnerFunc) Run(ctx context.Context, job Job) (Answer, error) { return f(ctx, job) }

// echo answers the prompt and counts its runs.
type echo struct {
	mu   sync.Mutex
	runs map[wire.Grant]int
}

func (e *echo) Run(_ context.Context, job Job) (Answer, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.runs == nil {
		e.runs = map[wire.Grant]int{}
	}
	e.runs[job.Grant]++
	return Answer{Text: "re: " + job.Prompt.Text}, nil
}

func (e *echo) count(id string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.runs[grant(id)]
}

// until runs until its job is stopped, and answers why.
func until(causes chan<- error) Runner {
	return runnerFunc(func(ctx context.Context, _ Job) (Answer, error) {
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return Answer{}, ctx.Err()
	})
}
