package endtoend

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pushrelay/hub"
	"pushrelay/session"
	"pushrelay/session/daemon"
	"pushrelay/session/internal/throttle"
	"pushrelay/wire"
	"pushrelay/wire/seal"
)

const (
	slowRate    = 200 << 10 // bytes a second, each way
	slowBytes   = 3_500_000 // of a text that seals to just under wire.MaxEnvelopeBytes
	slowLatency = 5 * time.Second
)

// slowEnd is a client's end of a slow link, with what was seen on it.
type slowEnd struct {
	dial     *dialer
	arrived  atomic.Int64
	requests map[wire.FrameType]*clock // by type, from the write of a request to its answer

	mu    sync.Mutex
	types map[string]wire.FrameType
	marks []mark
}

// mark is closed when so many bytes have arrived.
type mark struct {
	bytes   int64
	reached chan struct{}
}

func newSlowEnd(t *testing.T, target string, watched ...wire.FrameType) *slowEnd {
	t.Helper()
	proxy, err := throttle.New(target, slowRate)
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	s := &slowEnd{dial: newDialer(), requests: map[wire.FrameType]*clock{}, types: map[string]wire.FrameType{}}
	for _, w := range watched {
		s.requests[w] = &clock{}
	}
	s.dial.via = proxy.Addr()
	s.dial.wrap = func(c net.Conn) net.Conn { return &tap{Conn: c, watch: s.watch} }
	return s
}

// after answers a channel that is closed when so many bytes have arrived.
func (s *slowEnd) after(bytes int64) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := mark{bytes, make(chan struct{})}
	s.marks = append(s.marks, m)
	return m.reached
}

func (s *slowEnd) watch(sent bool, f wsFrame) {
	what := saying(f)
	s.mu.Lock()
	defer s.mu.Unlock()
	if sent {
		if c := s.requests[what.Type]; c != nil {
			s.types[what.ID] = what.Type
			c.ask(what.ID)
		}
		return
	}
	if c := s.requests[s.types[what.Re]]; c != nil {
		c.answer(what.Re)
	}
	all := s.arrived.Add(int64(len(f.raw)))
	for len(s.marks) > 0 && all >= s.marks[0].bytes {
		close(s.marks[0].reached)
		s.marks = s.marks[1:]
	}
}

// pings watches, at the relay, how long each connection's pings wait for their pongs.
func pings(c *clock) relayOption {
	return func(cfg *session.ServerConfig, listener *net.Listener) {
		cfg.PingMin, cfg.PingMax = time.Second, time.Second
		*listener = pinged{*listener, c}
	}
}

type pinged struct {
	net.Listener
	clock *clock
}

// Accept wraps the next connection.
func (l pinged) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	who := c.RemoteAddr().String()
	return &tap{Conn: c, watch: func(sent bool, f wsFrame) {
		switch {
		case sent && f.op == opPing:
			l.clock.ask(who)
		case !sent && f.op == opPong:
			l.clock.answer(who)
		}
	}}, nil
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// TestSlowLinksCarryLargeEnvelopes moves 6 MiB each way over a slow device's link and, at the same time, over a slow site's.
// Nothing small waits for it: heartbeats, cancels, pings, and the lives of other jobs.
func TestSlowLinksCarryLargeEnvelopes(t *testing.T) {
	t.Parallel()
	beats := &clock{}
	w := newWorld(t, hub.Settings{HeartbeatEvery: time.Second}, pings(beats))
	slowDevice := newSlowEnd(t, w.relay.addr, wire.TypeHeartbeat)
	slowSite := newSlowEnd(t, w.relay.addr, wire.TypeEnqueue, wire.TypeCancel, wire.TypeCollected)
	large := strings.Repeat("0123456789abcdef", slowBytes/16)
	// A prompt is bounded in characters, too.
	prompt := seal.GeneratePayload{Prompt: strings.Repeat("\u20ac", slowBytes/4), System: large[:slowBytes/4]}

	stopped := make(chan time.Time, 2)
	work := func(ctx context.Context, job daemon.Job) (daemon.Answer, error) {
		switch {
		case strings.HasPrefix(job.Grant.JobID, "victim"):
			<-ctx.Done()
			stopped <- time.Now()
			return daemon.Answer{}, ctx.Err()
		case strings.HasPrefix(job.Grant.JobID, "answer"):
			return daemon.Answer{Text: large}, nil
		}
		return daemon.Answer{Text: digest(job.Prompt.Text + job.Prompt.System)}, nil
	}
	// bob's device is slow and works for a fast site; ada's is fast and works for a slow one.
	blog, blogIn, _ := w.site("blog")
	shop, shopIn, _ := w.siteOver("shop", slowSite.dial)
	w.daemonOver("d3", t.TempDir(), slowDevice.dial, work)
	w.daemon("d1", work)
	for _, name := range []string{"d1", "d3", "shop", "blog"} {
		w.log.wait(t, 1, name, "connected", "")
	}
	w.submit(blog, "bob", map[string]string{"victim-1": "x", "victim-2": "x"})
	w.log.wait(t, 1, "d3", "started", "victim-1")
	w.log.wait(t, 1, "d3", "started", "victim-2")

	began := time.Now()
	third, half := slowDevice.after(2<<20), slowDevice.after(4<<20)
	siteHalf := slowSite.after(2 << 20)
	w.submitJobs(blog, w.job("payload-down", "bob", prompt), w.job("answer-up", "bob", seal.GeneratePayload{Prompt: "x"}))
	w.submitJobs(shop, w.job("payload-up", "ada", prompt), w.job("answer-down", "ada", seal.GeneratePayload{Prompt: "x"}))

	for i, at := range []<-chan struct{}{third, half} {
		next(w, at)
		cancelled := time.Now()
		_, err := blog.Cancel(t.Context(), []string{"victim-1", "victim-2"}[i])
		require.NoError(t, err)
		took := next(w, stopped).Sub(cancelled)
		t.Logf("a cancel reached the slow device in %v", took.Round(time.Millisecond))
		assert.Less(t, took, slowLatency)
	}
	next(w, siteHalf)
	small := time.Now()
	w.submit(shop, "ada", map[string]string{"small": "x"})
	w.log.wait(t, 1, "shop", "asked", "small")
	took := time.Since(small)
	t.Logf("a seal request reached the slow site %v after its job was submitted", took.Round(time.Millisecond))
	assert.Less(t, took, slowLatency)
	w.submit(shop, "bob", map[string]string{"unwanted": "x"})
	_, err := shop.Cancel(t.Context(), "unwanted")
	require.NoError(t, err)

	want := map[string]string{
		"payload-down": digest(prompt.Prompt + prompt.System), "answer-up": large, "payload-up": digest(prompt.Prompt + prompt.System), "answer-down": large, "small": digest("x"),
	}
	deadline := time.After(90 * time.Second)
	for range len(want) + 2 { // the victims' results too
		select {
		case r := <-blogIn.results:
			checkSlow(t, want, r.JobID, r.Verified, r.Outcome.Text)
		case r := <-shopIn.results:
			checkSlow(t, want, r.JobID, r.Verified, r.Outcome.Text)
		case <-deadline:
			t.Fatalf("a result is missing; what happened:\n%s", w.log)
		}
	}
	assert.Empty(t, want)
	took = time.Since(began)
	t.Logf("all arrived in %v; the device got %d KiB, the site %d KiB", took.Round(time.Millisecond),
		slowDevice.arrived.Load()>>10, slowSite.arrived.Load()>>10)
	limit := int64(wire.MaxEnvelopeBytes + 1<<20)
	assert.Less(t, slowDevice.arrived.Load(), limit, "nothing large is sent twice")
	assert.Less(t, slowSite.arrived.Load(), limit, "nothing large is sent twice")
	slowDevice.requests[wire.TypeHeartbeat].within(t, "heartbeats of the slow device", 12, slowLatency)
	slowSite.requests[wire.TypeEnqueue].within(t, "enqueues of the slow site", 3, slowLatency)
	slowSite.requests[wire.TypeCancel].within(t, "cancels of the slow site", 1, slowLatency)
	beats.within(t, "pings of all sessions", int(took.Seconds()/2), slowLatency)
	for _, name := range []string{"d3", "shop"} {
		assert.Equal(t, 1, w.log.count(name, "connected", ""), "%s came through in one session", name)
	}
}

func checkSlow(t *testing.T, want map[string]string, job string, verified bool, text string) {
	t.Helper()
	if strings.HasPrefix(job, "victim") {
		return
	}
	assert.True(t, verified, job)
	assert.True(t, want[job] == text, "%s: another answer than was given", job)
	delete(want, job)
}
