package hub

import (
	"context"
	"strconv"
	"strings"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pushrelay/session"
	"pushrelay/wire"
)

// polled is a request of a client that polls, under way or answered.
type polled struct {
	w      *world
	hangUp context.CancelFunc
	done   chan struct{}
	answer session.Answer
	err    error
}

func (w *world) poll(ask func(ctx context.Context) (session.Answer, error)) *polled {
	ctx, cancel := context.WithCancel(w.t.Context())
	p := &polled{w: w, hangUp: cancel, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.answer, p.err = ask(ctx)
	}()
	synctest.Wait()
	return p
}

// over reports whether it was answered.
func (p *polled) over() bool {
	synctest.Wait()
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// text writes the answer, as to a client that is there for all of it or hangs up before.
func (p *polled) text(written bool) []byte {
	p.w.t.Helper()
	require.True(p.w.t, p.over(), "it is still held")
	require.NoError(p.w.t, p.err)
	var out []byte
	for _, piece := range p.answer.Body {
		out = append(out, piece...)
	}
	for p.answer.More != nil {
		pieces, err := p.answer.More(p.w.t.Context())
		require.NoError(p.w.t, err)
		if pieces == nil {
			break
		}
		for _, piece := range pieces {
			out = append(out, piece...)
		}
	}
	if p.answer.Over != nil {
		p.answer.Over(written)
	}
	synctest.Wait()
	return out
}

func (w *world) call(name string, d wire.Dialect) session.Call {
	w.ids++
	return session.Call{Caller: name, Dialect: d, Key: w.party(name).key, Signature: strconv.Itoa(w.ids)}
}

func (w *world) claimIn(d wire.Dialect, name string, most int, hold time.Duration) *polled {
	text := capabilities0
	if d == wire.Dialect2 {
		text = capabilities2
	}
	caps, err := wire.ParseCapabilities(d, []byte(text))
	require.NoError(w.t, err)
	r := &wire.ClaimRequest{RunnerID: name, Capabilities: caps, Max: most}
	return w.poll(func(ctx context.Context) (session.Answer, error) {
		return w.hub.PollClaim(ctx, w.call(name, d), r, hold)
	})
}

func (w *world) claim(name string, hold time.Duration) *polled {
	return w.claimIn(wire.Dialect0, name, 4, hold)
}

// jobs reads a claim's answer.
func (p *polled) jobs(written bool) []wire.ClaimedJob {
	p.w.t.Helper()
	text := p.text(written)
	for _, d := range []wire.Dialect{wire.Dialect0, wire.Dialect2} {
		r, err := wire.ParseClaimResponse(d, text)
		if err != nil {
			continue
		}
		out := make([]wire.ClaimedJob, len(r.Jobs))
		for i := range r.Jobs {
			out[i], err = wire.ParseClaimed(d, r.Jobs[i])
			require.NoError(p.w.t, err)
		}
		return out
	}
	p.w.t.Fatalf("this is no claim's answer: %s", text)
	return nil
}

func (w *world) fetch(name string, g wire.Grant, hold time.Duration) *polled {
	r, call := &wire.FetchRequest{RunnerID: name, Grant: g}, w.call(name, wire.Dialect0)
	return w.poll(func(ctx context.Context) (session.Answer, error) { return w.hub.PollFetch(ctx, call, r, hold) })
}

func (w *world) pending(hold time.Duration) *polled {
	call := w.call("shop", wire.Dialect0)
	return w.poll(func(ctx context.Context) (session.Answer, error) { return w.hub.PollPending(ctx, call, hold) })
}

// seals reads a pending's answer.
func (p *polled) seals(written bool) []wire.SealJob {
	p.w.t.Helper()
	r, err := wire.ParsePendingResponse(p.text(written))
	require.NoError(p.w.t, err)
	return r.Jobs
}

func (w *world) results(written bool) []wire.ResultJob {
	w.t.Helper()
	call := w.call("shop", wire.Dialect0)
	p := w.poll(func(ctx context.Context) (session.Answer, error) { return w.hub.PollResults(ctx, call) })
	r, err := wire.ParseResultsResponse(p.text(written))
	require.NoError(w.t, err)
	return r.Jobs
}

func (w *world) heartbeat(name string, leases ...wire.Grant) *wire.HeartbeatResponse {
	w.t.Helper()
	r, err := w.hub.PollHeartbeat(w.t.Context(), w.call(name, wire.Dialect0), &wire.HeartbeatRequest{RunnerID: name, ActiveLeases: leases})
	require.NoError(w.t, err)
	return r
}

func (w *world) publish(ids ...string) {
	w.t.Helper()
	for _, id := range ids {
		stub, err := wire.ParseStub(wire.Dialect0, w.stub(id, nil))
		require.NoError(w.t, err)
		r, err := w.hub.PollEnqueue(w.t.Context(), w.call("shop", wire.Dialect0), &wire.EnqueueRequest{SiteID: "shop", Stub: stub})
		require.NoError(w.t, err)
		require.Equal(w.t, "queued", r.State)
	}
	synctest.Wait()
}

func (w *world) sealFor(job, device string) error {
	env, err := wire.ParseEnvelope(w.payloadFor(device))
	require.NoError(w.t, err)
	_, err = w.hub.PollPayload(w.t.Context(), w.call("shop", wire.Dialect0), &wire.PayloadRequest{JobID: job, Envelope: env})
	synctest.Wait()
	return err
}

func (w *world) report(name string, g wire.Grant) { w.reportSized(name, g, 4) }

func (w *world) reportSized(name string, g wire.Grant, bytes int) {
	w.t.Helper()
	env, err := wire.ParseEnvelope(wire.AppendEnvelope(nil, wire.Envelope{
		RecipientKeyID: w.party("shop").keyID, SenderKeyID: w.party(name).keyID, Direction: wire.DirectionResult,
		DeadlineAt: time.Now().Add(time.Hour).UnixMilli(),
	}, strings.Repeat("B", bytes)))
	require.NoError(w.t, err)
	r := &wire.ResultRequest{RunnerID: name, Grant: g, Envelope: env, Disposition: wire.DispositionOK}
	_, err = w.hub.PollResult(w.t.Context(), w.call(name, wire.Dialect0), r)
	require.NoError(w.t, err)
	synctest.Wait()
}
