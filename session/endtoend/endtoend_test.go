package endtoend

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pushrelay/hub"
	"pushrelay/hub/projection"
	"pushrelay/session/daemon"
	"pushrelay/store/memory"
	"pushrelay/wire"
)

func prompts(prefix string, n int) map[string]string {
	out := map[string]string{}
	for i := range n {
		id := fmt.Sprintf("%s-%d", prefix, i)
		out[id] = "prompt of " + id
	}
	return out
}

// answers waits for the results of all jobs and checks that each came once, verified and right.
func (w *world) answers(in *inbox, want map[string]string) {
	w.t.Helper()
	got := map[string]string{}
	for range want {
		r := next(w, in.results)
		require.True(w.t, r.Verified, "%v", r.Err)
		require.NotContains(w.t, got, r.JobID, "told twice")
		got[r.JobID] = r.Outcome.Text
	}
	assert.Equal(w.t, want, got)
}

func TestWholeLives(t *testing.T) {
	w := newWorld(t, hub.Settings{})
	shop, shopIn, _ := w.site("shop")
	blog, blogIn, _ := w.site("blog")
	for _, name := range []string{"d1", "d2", "d3"} {
		w.daemon(name, echo)
	}
	ofShop, ofBlog := prompts("job", 40), prompts("job", 40) // two sites may choose one id
	w.submit(shop, "ada", ofShop)
	w.submit(blog, "bob", ofBlog)
	w.answers(shopIn, ofShop)
	w.answers(blogIn, ofBlog)
}

func TestLargePayloadAndResult(t *testing.T) {
	w := newWorld(t, hub.Settings{})
	shop, in, _ := w.site("shop")
	w.daemon("d1", echo)
	large := map[string]string{"large": strings.Repeat("abcdefgh", 110_000)}
	w.submit(shop, "ada", large)
	w.answers(in, large)
}

func TestCancelRunning(t *testing.T) {
	w := newWorld(t, hub.Settings{})
	shop, in, _ := w.site("shop")
	causes, begun := make(chan error, 1), make(chan struct{})
	w.daemon("d1", func(ctx context.Context, _ daemon.Job) (daemon.Answer, error) {
		close(begun)
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return daemon.Answer{}, ctx.Err()
	})
	w.submit(shop, "ada", map[string]string{"job": "x"})
	next(w, begun)
	known, err := shop.Cancel(t.Context(), "job", "none")
	require.NoError(t, err)
	assert.Equal(t, []bool{true, false}, known)
	require.ErrorIs(t, next(w, causes), daemon.ErrCanceled)
	r := next(w, in.results)
	require.True(t, r.Verified, "%v", r.Err)
	assert.Equal(t, wire.DispositionCanceled, r.Outcome.Outcome)
}

func TestCancelQueued(t *testing.T) {
	w := newWorld(t, hub.Settings{})
	shop, in, _ := w.site("shop")
	w.submit(shop, "ada", map[string]string{"job": "x"})
	known, err := shop.Cancel(t.Context(), "job")
	require.NoError(t, err)
	assert.Equal(t, []bool{true}, known)
	n := next(w, in.notices)
	assert.Equal(t, "job", n.JobID)
	assert.Equal(t, "cancelled", n.Why)
}

// TestDaemonDies cuts a device off while it works: another one of its owner finishes the job, once the lease is over.
func TestDaemonDies(t *testing.T) {
	w := newWorld(t, hub.Settings{LeaseFor: time.Second, OfferFor: 500 * time.Millisecond})
	shop, in, _ := w.site("shop")
	causes := make(chan error, 1)
	_, dying := w.daemon("d1", func(ctx context.Context, _ daemon.Job) (daemon.Answer, error) {
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return daemon.Answer{}, ctx.Err()
	})
	w.log.wait(t, 1, "d1", "connected", "")
	w.submit(shop, "ada", map[string]string{"job": "x"})
	w.log.wait(t, 1, "d1", "started", "job")
	dying.dialer.cut(true)
	w.daemon("d2", echo)
	r := next(w, in.results)
	require.True(t, r.Verified, "%v", r.Err)
	assert.Equal(t, "d2", r.RunnerID)
	assert.Equal(t, "x", r.Outcome.Text)
	dying.dialer.heal()
	require.ErrorIs(t, next(w, causes), daemon.ErrLost, "the first one hears of it when it is back")
	assert.Zero(t, w.log.count("d1", "reported", "job"))
}

func TestSiteAway(t *testing.T) {
	w := newWorld(t, hub.Settings{})
	shop, _, first := w.site("shop")
	proceed := make(chan struct{})
	w.daemon("d1", func(_ context.Context, job daemon.Job) (daemon.Answer, error) {
		<-proceed
		return daemon.Answer{Text: job.Prompt.Text}, nil
	})
	w.submit(shop, "ada", map[string]string{"job": "x"})
	w.log.wait(t, 1, "d1", "started", "job")
	first.stop(t)
	close(proceed)
	w.log.wait(t, 1, "d1", "reported", "job")
	_, in, _ := w.site("shop") // another process, which knows nothing
	w.answers(in, map[string]string{"job": "x"})
}

func TestTwoSessionsOfASite(t *testing.T) {
	w := newWorld(t, hub.Settings{})
	one, oneIn, _ := w.site("shop")
	two, twoIn, _ := w.site("shop")
	w.daemon("d1", echo)
	w.daemon("d2", echo)
	want := prompts("one", 5)
	w.submit(one, "ada", want)
	more := prompts("two", 5)
	w.submit(two, "ada", more)
	for id, text := range more {
		want[id] = text
	}
	both := &inbox{results: oneIn.results}
	stop := make(chan struct{})
	forwarded := make(chan struct{})
	go func() {
		defer close(forwarded)
		for {
			select {
			case r := <-twoIn.results:
				oneIn.results <- r
			case <-stop:
				return
			}
		}
	}()
	w.answers(both, want)
	close(stop)
	<-forwarded
}

// TestCutsWhileWorking breaks connections after each step; the job runs once all the same.
func TestCutsWhileWorking(t *testing.T) {
	w := newWorld(t, hub.Settings{})
	shop, in, siteRun := w.site("shop")
	proceed := make(chan struct{})
	runs := make(chan struct{}, 10)
	_, device := w.daemon("d1", func(_ context.Context, job daemon.Job) (daemon.Answer, error) {
		runs <- struct{}{}
		<-proceed
		return daemon.Answer{Text: job.Prompt.Text}, nil
	})
	w.submit(shop, "ada", map[string]string{"job": "x"})
	w.log.wait(t, 1, "d1", "started", "job")
	device.dialer.cut(false)
	siteRun.dialer.cut(false)
	w.log.wait(t, 2, "d1", "connected", "")
	w.log.wait(t, 2, "shop", "connected", "")
	device.dialer.cut(true) // finishes while it is away
	close(proceed)
	w.log.wait(t, 1, "d1", "finished", "job")
	device.dialer.heal()
	w.answers(in, map[string]string{"job": "x"})
	assert.Len(t, runs, 1)
}

// TestDaemonRestarts kills a daemon that has a result which the relay never heard of, and starts it again.
func TestDaemonRestarts(t *testing.T) {
	w := newWorld(t, hub.Settings{})
	shop, in, _ := w.site("shop")
	dir := t.TempDir()
	proceed := make(chan struct{})
	_, first := w.daemonAt("d1", dir, func(_ context.Context, job daemon.Job) (daemon.Answer, error) {
		<-proceed
		return daemon.Answer{Text: "first: " + job.Prompt.Text}, nil
	})
	w.submit(shop, "ada", map[string]string{"job": "x"})
	w.log.wait(t, 1, "d1", "started", "job")
	first.dialer.cut(true)
	close(proceed)
	w.log.wait(t, 1, "d1", "finished", "job")
	first.stop(t)
	w.daemonAt("d1", dir, func(context.Context, daemon.Job) (daemon.Answer, error) {
		return daemon.Answer{}, errors.New("it must not run again")
	})
	w.answers(in, map[string]string{"job": "first: x"})
}

func TestGracefulStop(t *testing.T) {
	w := newWorld(t, hub.Settings{})
	shop, in, _ := w.site("shop")
	proceed := make(chan struct{})
	d, _ := w.daemon("d1", func(_ context.Context, job daemon.Job) (daemon.Answer, error) {
		<-proceed
		return daemon.Answer{Text: job.Prompt.Text}, nil
	})
	w.submit(shop, "ada", map[string]string{"running": "x"})
	w.log.wait(t, 1, "d1", "started", "running")
	stopped := make(chan error, 1)
	go func() { stopped <- d.Stop(context.Background()) }()
	w.submit(shop, "ada", map[string]string{"later": "y"})
	close(proceed)
	require.NoError(t, next(w, stopped))
	w.answers(in, map[string]string{"running": "x"})
	w.daemon("d2", echo)
	w.answers(in, map[string]string{"later": "y"})
}

// TestRelayForgets restarts the relay with an empty store at the same address: sites enqueue again what isn't finished.
func TestRelayForgets(t *testing.T) {
	w := newWorld(t, hub.Settings{})
	shop, in, _ := w.site("shop")
	w.submit(shop, "ada", map[string]string{"job": "x"})
	addr := strings.TrimPrefix(w.relay.url, "http://")
	w.relay.stop()
	empty := memory.New(memory.Options{})
	t.Cleanup(func() { require.NoError(t, empty.Close()) })
	w.relay = startRelay(t, addr, w.holder, empty, w.set)
	w.daemon("d1", echo)
	w.answers(in, map[string]string{"job": "x"})
}

func TestRevokedDeviceStops(t *testing.T) {
	w := newWorld(t, hub.Settings{})
	d, err := daemon.New(daemon.Config{
		URL: w.relay.url, RunnerID: "d1", Keys: w.keys["d1"], StateDir: t.TempDir(), Run: runner(echo),
		Capabilities: []wire.Capability{{
			Kind: daemon.KindGenerate, BackendID: "test", BackendClass: "process", Service: "test", Model: "m", OfferScope: "private",
		}},
		OnEvent: func(e daemon.Event) { w.log.add("d1", string(e.Type), "", e.Detail) },
	})
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- d.Run(context.Background()) }()
	w.log.wait(t, 1, "d1", "connected", "")
	raw, err := new(projection.Example).Site("shop", w.keys["shop"].Public()).Device("ada", "d1", w.keys["d1"].Public()).
		MarkRevoked("d1", true).Marshal()
	require.NoError(t, err)
	p, err := projection.Parse(raw)
	require.NoError(t, err)
	_, err = w.holder.Replace(p)
	require.NoError(t, err)
	assert.ErrorContains(t, next(w, ended), "revoked", "the message says what to do")
}
