package site

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

func newFakeConn(id string) *fake.Conn { return fake.New(id, quiet) }

// quiet is what a relay answers when nothing is wrong.
func quiet(h wire.Head, frame []byte) ([]byte, error) {
	switch h.Type {
	case wire.TypeEnqueue:
		f, err := wire.Decode[wire.Enqueue](frame)
		if err != nil {
			return nil, err
		}
		var jobs []wire.EnqueueState
		for _, raw := range f.Stubs {
			s, err := wire.ParseStub(wire.Dialect2, raw)
			if err != nil {
				return nil, err
			}
			jobs = append(jobs, wire.EnqueueState{JobID: s.ID, State: "queued"})
		}
		return wire.AppendEnqueueReply(nil, h.ID, jobs), nil
	case wire.TypeSeal:
		return wire.AppendStateReply(nil, h.ID, "ready"), nil
	case wire.TypeCancel:
		f, err := wire.Decode[wire.CancelJobs](frame)
		if err != nil {
			return nil, err
		}
		r := wire.CancelReply{Type: wire.TypeReply, Re: h.ID}
		for range f.JobIDs {
			r.Cancelled = append(r.Cancelled, true)
		}
		return wire.Encode(r)
	}
	return wire.AppendReplyOK(nil, h.ID), nil
}

// world is one site, one device and the relay between them.
type world struct {
	t      testing.TB
	keys   *seal.Keys
	device *seal.Keys
	s      *Site
	conn   *fake.Conn

	mu      sync.Mutex
	results []Result
	notices []Notice
	fail    error // of the callbacks
}

func newKeys(t testing.TB) *seal.Keys {
	k, err := seal.Generate(nil)
	require.NoError(t, err)
	return k
}

func newWorld(t testing.TB, tweak func(*Config)) *world {
	t.Helper()
	w := &world{t: t, keys: newKeys(t), device: newKeys(t)}
	w.start(tweak)
	w.connect(newFakeConn("s1"), "epoch")
	return w
}

func (w *world) start(tweak func(*Config)) {
	w.t.Helper()
	cfg := Config{
		URL: "ws://127.0.0.1:1", SiteID: "site", Keys: w.keys, Log: zerolog.Nop(), OnResult: w.onResult, OnNotice: w.onNotice,
	}
	if tweak != nil {
		tweak(&cfg)
	}
	s, err := New(cfg)
	require.NoError(w.t, err)
	w.s = s
	w.t.Cleanup(func() {
		if s.link != nil {
			s.ended(s.link.conn, session.End{Reason: session.ReasonCut})
		}
		s.endCall()
		s.work.Wait()
	})
}

func (w *world) onResult(_ context.Context, r Result) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fail != nil {
		return w.fail
	}
	w.results = append(w.results, r)
	return nil
}

func (w *world) onNotice(_ context.Context, n Notice) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fail != nil {
		return w.fail
	}
	w.notices = append(w.notices, n)
	return nil
}

func (w *world) failing(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail = err
}

func (w *world) connect(c *fake.Conn, epoch string) {
	w.conn = c
	w.s.welcome(w.t.Context(), c, wire.Welcome{SessionID: "s", Epoch: epoch})
}

func (w *world) cut() {
	w.conn.End()
	w.s.ended(w.conn, session.End{Reason: session.ReasonCut})
}

func (w *world) push(frame []byte) {
	w.t.Helper()
	head, err := wire.DecodeHead(frame)
	require.NoError(w.t, err)
	w.s.push(w.conn, head, frame)
}

func deadline() time.Time { return time.UnixMilli(4_000_000_000_000) }

func job(id string) Job {
	p, err := seal.GeneratePayload{Prompt: "do " + id}.Encode()
	if err != nil {
		panic(err)
	}
	return Job{ID: id, Kind: KindGenerate, Owner: "owner", Deadline: deadline(), Payload: p}
}

func (w *world) submit(jobs ...Job) {
	w.t.Helper()
	for _, r := range w.s.Submit(w.t.Context(), jobs...) {
		require.NoError(w.t, r.Err)
	}
}

func (w *world) ask(ids ...string) {
	w.t.Helper()
	var jobs []wire.SealJob
	for _, id := range ids {
		jobs = append(jobs, wire.SealJob{
			JobID: id, LeaseID: "lease-" + id, RunnerID: "runner", Device: w.device.Public(),
			AwaitingUntil: deadline().UnixMilli(), LeaseExpiresAt: deadline().UnixMilli(),
		})
	}
	w.push(wire.AppendSealRequest(nil, jobs))
}

func grant(id string) wire.Grant { return wire.Grant{JobID: id, LeaseID: "lease-" + id} }

// finished is a result of the device for a job, changed by tweaks.
func (w *world) finished(id, text string, tweaks ...func(*wire.ResultJob)) wire.ResultJob {
	w.t.Helper()
	j := wire.ResultJob{
		JobID: id, LeaseID: "lease-" + id, Disposition: wire.DispositionOK, RunnerID: "runner", RunnerOwner: "owner",
		Device: w.device.Public(), Envelope: w.answer(w.device, w.keys, id, deadline().UnixMilli(), text),
	}
	for _, tweak := range tweaks {
		tweak(&j)
	}
	return j
}

func (w *world) answer(by, to *seal.Keys, id string, deadlineAt int64, text string) []byte {
	w.t.Helper()
	plain, err := seal.Result{Outcome: seal.OK(text), Ran: seal.Ran{Model: "m", BackendClass: "http"}}.Encode()
	require.NoError(w.t, err)
	e, err := seal.Seal(by, to.Public(), seal.Context{JobID: id, Direction: wire.DirectionResult, DeadlineAt: deadlineAt}, plain)
	require.NoError(w.t, err)
	return e.Raw
}

func resultsFrame(jobs ...wire.ResultJob) []byte {
	frame := wire.AppendResultsHead(nil)
	for i, j := range jobs {
		frame = wire.AppendResultJobHead(frame, i == 0, j)
		frame = append(frame, j.Envelope...)
		frame = wire.AppendResultJobTail(frame)
	}
	return wire.AppendResultsTail(frame)
}

func noticesFrame(t testing.TB, typ wire.FrameType, jobs ...wire.Notice) []byte {
	t.Helper()
	b, err := wire.Encode(wire.Notices{Type: typ, Jobs: jobs})
	require.NoError(t, err)
	return b
}

func (w *world) collected() [][]wire.Grant {
	var out [][]wire.Grant
	for _, f := range fake.Sent[wire.Grants](w.t, w.conn, wire.TypeCollected) {
		out = append(out, f.Grants)
	}
	return out
}

func (w *world) declined() []wire.Grant {
	var out []wire.Grant
	for _, f := range fake.Sent[wire.Grants](w.t, w.conn, wire.TypeDecline) {
		out = append(out, f.Grants...)
	}
	return out
}
