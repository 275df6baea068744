package daemon

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"pushrelay/session"
	"pushrelay/wire"
	"pushrelay/wire/seal"
)

const testDeadline = int64(4_000_000_000_000) // in the year 2096

// fakeConn is a relay's end of one session, in memory: it records requests and answers them as a quiet relay would, unless
// a script for the type says otherwise.
type fakeConn struct {
	id string

	mu      sync.Mutex
	frames  [][]byte
	scripts map[wire.FrameType]func(ctx context.Context, frame []byte) ([]byte, error)
	next    int
	over    chan struct{}
}

func newFakeConn(id string) *fakeConn {
	return &fakeConn{
		id: id, over: make(chan struct{}),
		scripts: map[wire.FrameType]func(context.Context, []byte) ([]byte, error){},
	}
}

func (c *fakeConn) SessionID() string { return c.id }

func (c *fakeConn) on(t wire.FrameType, script func(ctx context.Context, frame []byte) ([]byte, error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.scripts[t] = script
}

// refuse answers every request of a type with an error.
func (c *fakeConn) refuse(t wire.FrameType, e error) {
	c.on(t, func(context.Context, []byte) ([]byte, error) { return nil, e })
}

// hang never answers requests of a type; they end with the session.
func (c *fakeConn) hang(t wire.FrameType) {
	c.on(t, func(ctx context.Context, _ []byte) ([]byte, error) {
		select {
		case <-c.over:
			return nil, session.ErrEnded
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
}

func (c *fakeConn) Request(ctx context.Context, build func(dst []byte, id string) []byte) ([]byte, error) {
	return c.do(ctx, func(id string) []byte { return build(nil, id) })
}

func (c *fakeConn) RequestBulk(ctx context.Context, build func(id string) [][]byte) ([]byte, error) {
	return c.do(ctx, func(id string) []byte {
		var frame []byte
		for _, p := range build(id) {
			frame = append(frame, p...)
		}
		return frame
	})
}

func (c *fakeConn) do(ctx context.Context, build func(id string) []byte) ([]byte, error) {
	c.mu.Lock()
	select {
	case <-c.over:
		c.mu.Unlock()
		return nil, session.ErrEnded
	default:
	}
	c.next++
	frame := build(fmt.Sprintf("r%d", c.next))
	c.frames = append(c.frames, frame)
	head, err := wire.DecodeHead(frame)
	if err != nil {
		panic(err)
	}
	script := c.scripts[head.Type]
	c.mu.Unlock()
	if script != nil {
		return script(ctx, frame)
	}
	return quiet(head)
}

// quiet is what a relay answers when nothing is wrong.
func quiet(h wire.Head) ([]byte, error) {
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

// sent lists the requests of a type, in order.
func sent[T any](t testing.TB, c *fakeConn, typ wire.FrameType) []T {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []T
	for _, f := range c.frames {
		h, err := wire.DecodeHead(f)
		require.NoError(t, err)
		if h.Type == typ {
			v, err := wire.Decode[T](f)
			require.NoError(t, err)
			out = append(out, v)
		}
	}
	return out
}

// types lists the types of all requests, in order.
func (c *fakeConn) types() []wire.FrameType {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []wire.FrameType
	for _, f := range c.frames {
		h, _ := wire.DecodeHead(f)
		out = append(out, h.Type)
	}
	return out
}

// world is one daemon, one site and the relay between them.
type world struct {
	t      testing.TB
	dir    string
	device *seal.Keys
	site   *seal.Keys
	siteID string
	d      *Daemon
	conn   *fakeConn
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

func (w *world) connect(c *fakeConn) { w.connectWith(c, w.welcome()) }

func (w *world) connectWith(c *fakeConn, welcome wire.Welcome) {
	w.conn = c
	w.d.welcome(w.ctx, c, welcome)
}

// cut ends the session as a broken connection does.
func (w *world) cut() {
	close(w.conn.over)
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

func (w *world) results() []wire.Result { return sent[wire.Result](w.t, w.conn, wire.TypeResult) }

func (w *world) released() map[string][]wire.Grant {
	out := map[string][]wire.Grant{}
	for _, r := range sent[wire.Release](w.t, w.conn, wire.TypeRelease) {
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
