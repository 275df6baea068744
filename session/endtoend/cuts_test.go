package endtoend

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pushrelay/hub"
	"pushrelay/hub/projection"
	"pushrelay/session/daemon"
	"pushrelay/session/site"
	"pushrelay/wire"
	"pushrelay/wire/seal"
)

// cutCase is one life of a job during which one connection is cut at one frame.
type cutCase struct {
	role string // whose connection
	kind string
	live func(c *cutWorld)
}

// cutWorld is a world with one site and one device, of which one is behind a cutter.
type cutWorld struct {
	*world
	cut    *cutter
	shop   *site.Site
	in     *inbox
	device *daemon.Daemon
	work   func(ctx context.Context, job daemon.Job) (daemon.Answer, error)

	mu     sync.Mutex
	runs   map[wire.Grant]int
	causes []error
}

func (c *cutWorld) run(ctx context.Context, job daemon.Job) (daemon.Answer, error) {
	c.mu.Lock()
	c.runs[job.Grant]++
	c.mu.Unlock()
	a, err := c.work(ctx, job)
	c.mu.Lock()
	c.causes = append(c.causes, context.Cause(ctx))
	c.mu.Unlock()
	return a, err
}

// untilCut works until the connection was cut.
func (c *cutWorld) untilCut(ctx context.Context, job daemon.Job) (daemon.Answer, error) {
	select {
	case <-c.cut.struck:
		return echo(ctx, job)
	case <-ctx.Done():
		return daemon.Answer{}, ctx.Err()
	}
}

func untilStopped(ctx context.Context, _ daemon.Job) (daemon.Answer, error) {
	<-ctx.Done()
	return daemon.Answer{}, ctx.Err()
}

// liveOnce submits a job and sees its result.
func liveOnce(c *cutWorld) {
	c.submit(c.shop, "ada", map[string]string{"job": "x"})
	c.ends(wire.DispositionOK, "x")
}

func liveLarge(c *cutWorld) {
	text := strings.Repeat("abcdefgh", 60_000)
	c.submit(c.shop, "ada", map[string]string{"job": text})
	c.ends(wire.DispositionOK, text)
}

// liveLong works until the cut, so that what comes meanwhile is cut.
func liveLong(c *cutWorld) {
	c.work = c.untilCut
	liveOnce(c)
}

func liveCancelled(c *cutWorld) {
	c.work = untilStopped
	c.submit(c.shop, "ada", map[string]string{"job": "x"})
	c.log.wait(c.t, 1, "d1", "started", "job")
	known, err := c.shop.Cancel(c.t.Context(), "job")
	require.NoError(c.t, err)
	assert.Equal(c.t, []bool{true}, known)
	c.ends(wire.DispositionCanceled, "")
}

// liveTooLong outlives its deadline: the device is told that it lost the job, the site that it is gone.
func liveTooLong(c *cutWorld) {
	c.work = untilStopped
	j := c.job("job", "ada", seal.GeneratePayload{Prompt: "x"})
	j.Deadline = time.Now().Add(2 * time.Second)
	c.submitJobs(c.shop, j)
	n := next(c.world, c.in.notices)
	assert.Equal(c.t, site.Notice{JobID: "job", Why: "deadline"}, n)
	c.log.wait(c.t, 1, "d1", "lost", "job")
	c.log.wait(c.t, 1, "shop", "collected", "job")
}

// livePaused has the device ask for the job only once it resumed.
func livePaused(c *cutWorld) {
	c.device.Pause()
	c.submit(c.shop, "ada", map[string]string{"job": "x"})
	c.device.Resume()
	c.ends(wire.DispositionOK, "x")
}

// liveConsented replaces the projection, so that the device is told its sites again.
func liveConsented(c *cutWorld) {
	c.replace(func(e *projection.Example) { e.Consent("ada", "shop") })
	next(c.world, c.cut.struck)
	liveOnce(c)
}

// ends waits for the one result and for the relay to know that it was seen.
func (c *cutWorld) ends(disposition, text string) {
	c.t.Helper()
	r := next(c.world, c.in.results)
	require.True(c.t, r.Verified, "%v", r.Err)
	assert.Equal(c.t, disposition, r.Outcome.Outcome)
	assert.True(c.t, text == r.Outcome.Text, "another text than was asked for")
	c.log.wait(c.t, 1, "shop", "collected", "job")
}

func cutCases() []cutCase {
	return []cutCase{
		{wire.RoleDaemon, "welcome", liveOnce},
		{wire.RoleDaemon, "claimed", liveOnce},
		{wire.RoleDaemon, "reply to accept", liveOnce},
		{wire.RoleDaemon, "payload", liveOnce},
		{wire.RoleDaemon, "part", liveLarge},
		{wire.RoleDaemon, "reply to result", liveOnce},
		{wire.RoleDaemon, "reply to heartbeat", liveLong},
		{wire.RoleDaemon, "reply to ready", livePaused},
		{wire.RoleDaemon, "sites", liveConsented},
		{wire.RoleDaemon, "cancel", liveCancelled},
		{wire.RoleDaemon, "lost", liveTooLong},
		{wire.RoleSite, "welcome", liveOnce},
		{wire.RoleSite, "reply to enqueue", liveOnce},
		{wire.RoleSite, "seal-request", liveOnce},
		{wire.RoleSite, "reply to seal", liveOnce},
		{wire.RoleSite, "reply to sealing", liveLarge},
		{wire.RoleSite, "results", liveOnce},
		{wire.RoleSite, "part", liveLarge},
		{wire.RoleSite, "reply to collected", liveOnce},
		{wire.RoleSite, "reply to cancel", liveCancelled},
		{wire.RoleSite, "notices", liveTooLong},
	}
}

// TestCutAtEachFrame cuts a connection right before and right after each kind of frame reaches its client. Whatever the
// relay believes of it: the job ends once, nothing runs twice under one grant, nothing is left behind.
func TestCutAtEachFrame(t *testing.T) {
	t.Parallel()
	for _, c := range cutCases() {
		for _, before := range []bool{true, false} {
			when := "after"
			if before {
				when = "before"
			}
			t.Run(c.role+" "+when+" "+c.kind, func(t *testing.T) {
				t.Parallel()
				cutOnce(t, c, before)
			})
		}
	}
}

func cutOnce(t *testing.T, c cutCase, before bool) {
	w := &cutWorld{
		world: newWorld(t, hub.Settings{HeartbeatEvery: 300 * time.Millisecond, ResyncEvery: 20 * time.Second}),
		runs:  map[wire.Grant]int{}, work: echo,
	}
	w.cut = newCutter(t, w.relay.addr, c.kind, before)
	toSite, toDevice := newDialer(), newDialer()
	if c.role == wire.RoleSite {
		toSite = w.cut.dialer()
	} else {
		toDevice = w.cut.dialer()
	}
	w.shop, w.in, _ = w.siteOver("shop", toSite)
	w.log.wait(t, 1, "shop", "connected", "")
	w.device, _ = w.daemonOver("d1", t.TempDir(), toDevice, w.run)
	w.log.wait(t, 1, "d1", "connected", "")
	c.live(w)
	select {
	case <-w.cut.struck:
	default:
		t.Fatalf("no %s was seen; what happened:\n%s", c.kind, w.log)
	}
	w.nothingLeft()
}

// nothingLeft checks what must hold after a life, however it went.
func (c *cutWorld) nothingLeft() {
	t := c.t
	t.Helper()
	c.log.until(t, "the device holds nothing", func() bool {
		held, err := c.store.Held(t.Context(), "d1")
		return err == nil && len(held) == 0
	})
	assert.Empty(t, c.in.results, "an end was told twice")
	assert.Empty(t, c.in.notices, "an end was told twice")
	c.mu.Lock()
	defer c.mu.Unlock()
	assert.LessOrEqual(t, len(c.runs), 1, "the job was run under two grants, though none ended: %v\n%s", c.runs, c.log)
	for g, n := range c.runs {
		assert.Equal(t, 1, n, "%v ran twice", g)
	}
	for _, cause := range c.causes {
		assert.False(t, errors.Is(cause, daemon.ErrStopped), "nobody stopped the device")
	}
}
