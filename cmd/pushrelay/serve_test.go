package main

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"pushrelay/cmd/pushrelay/internal/app"
	"pushrelay/cmd/pushrelay/internal/setup"
	"pushrelay/hub/projection"
	"pushrelay/session/daemon"
	"pushrelay/session/site"
	"pushrelay/wire"
	"pushrelay/wire/seal"
)

func TestServeSaysWhereItListens(t *testing.T) {
	r := serveRelay(t)
	r.await(r.out, "pushrelay: listening on "+r.url, r.admin)
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/metrics": 200} {
		if got := r.get(path); got != want {
			t.Errorf("%s is %d", path, got)
		}
	}
	resp, err := http.Get(r.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusNotFound {
		t.Errorf("the public address serves metrics: %d", resp.StatusCode)
	}
}

func TestServeNamesAPortInUse(t *testing.T) {
	r := serveRelay(t)
	p := start(t, "", "serve", "--store", "memory", "--projection", setup.ProjectionFile(r.dir), "--listen", strings.TrimPrefix(r.url, "http://"))
	if code := p.exit(); code != app.ExitUsage || !strings.Contains(p.err.String(), "another port") {
		t.Errorf("code %d", code)
	}
}

func TestReloadBySignal(t *testing.T) {
	r := serveRelay(t)
	r.signal(syscall.SIGHUP)
	r.await(r.err, `"event":"projection"`, `"source":"file"`)
	var next projection.Example
	k, err := seal.Generate(nil)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := next.Site("site-new", k.Public()).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(setup.ProjectionFile(r.dir), raw, 0o600); err != nil {
		t.Fatal(err)
	}
	r.await(r.err, `"event":"projection"`, `"changed":true`, `"sites":1`)
}

// crowd is sessions of this process with a relay: one site and many daemons, each with a job in the middle of its run.
type crowd struct {
	site     *site.Site
	running  chan string // owners, as their jobs begin
	finish   chan struct{}
	accepted atomic.Int32 // results that the relay took
}

// crowdProjection knows one site and n devices, each of an owner of its own.
func crowdProjection(t *testing.T, n int) (path string, siteKeys *seal.Keys, devices []*seal.Keys) {
	t.Helper()
	var e projection.Example
	generate := func() *seal.Keys {
		k, err := seal.Generate(nil)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	siteKeys = generate()
	e.Site("site-one", siteKeys.Public())
	for i := range n {
		k := generate()
		devices = append(devices, k)
		e.Device("owner-"+strconv.Itoa(i), "runner-"+strconv.Itoa(i), k.Public()).Consent("owner-"+strconv.Itoa(i), "site-one")
	}
	raw, err := e.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "projection.json")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return path, siteKeys, devices
}

// Run is a daemon's work: it says that it began and waits until it may finish.
func (c *crowd) Run(ctx context.Context, job daemon.Job) (daemon.Answer, error) {
	c.running <- job.Owner
	select {
	case <-c.finish:
		return daemon.Answer{Text: "done"}, nil
	case <-ctx.Done():
		return daemon.Answer{}, context.Cause(ctx)
	}
}

func (c *crowd) hear(e daemon.Event) {
	if e.Type == daemon.EventReported && e.Detail == "accepted" {
		c.accepted.Add(1)
	}
}

func gather(t *testing.T, r *relay, siteKeys *seal.Keys, devices []*seal.Keys) *crowd {
	t.Helper()
	n := len(devices)
	c := &crowd{running: make(chan string, n), finish: make(chan struct{})}
	var err error
	ignore := func(context.Context, site.Result) error { return nil }
	c.site, err = site.New(site.Config{URL: r.url, SiteID: "site-one", Keys: siteKeys, OnResult: ignore})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var ends []chan struct{}
	run := func(f func(context.Context) error) {
		end := make(chan struct{})
		ends = append(ends, end)
		go func() {
			defer close(end)
			_ = f(ctx) // the relay of this test goes away on purpose
		}()
	}
	run(c.site.Run)
	for i, k := range devices {
		d, err := daemon.New(daemon.Config{
			URL: r.url, RunnerID: "runner-" + strconv.Itoa(i), Keys: k, StateDir: t.TempDir(), Run: c, OnEvent: c.hear,
			Capabilities: []wire.Capability{{
				Kind: site.KindGenerate, BackendID: "test", BackendClass: "process", Service: "test", Model: "test", OfferScope: "private",
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		run(d.Run)
	}
	t.Cleanup(func() {
		cancel()
		for _, end := range ends {
			<-end
		}
	})
	payload, err := seal.GeneratePayload{Prompt: "text"}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	jobs := make([]site.Job, n)
	for i := range jobs {
		jobs[i] = site.Job{Kind: site.KindGenerate, Owner: "owner-" + strconv.Itoa(i), Deadline: time.Now().Add(time.Hour), Payload: payload}
	}
	for _, a := range c.site.Submit(t.Context(), jobs...) {
		if a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	for range n {
		select {
		case <-c.running:
		case <-time.After(patience):
			t.Fatal("not all jobs began")
		}
	}
	return c
}

func TestDrain(t *testing.T) {
	const sessions = 12
	path, siteKeys, devices := crowdProjection(t, sessions)
	r := serveRelay(t, "--drain-window", "2s", "--drain-limit", "8s", "--projection", path)
	c := gather(t, r, siteKeys, devices)
	began := time.Now()
	r.signal(syscall.SIGTERM)
	r.await(r.err, `"event":"drain"`)
	until(t, "it is unready", func() bool { return r.get("/readyz") == http.StatusServiceUnavailable })
	if got := r.get("/healthz"); got != http.StatusOK {
		t.Errorf("a draining process is %d", got)
	}
	close(c.finish) // results that are reported while it drains
	if code := r.exit(); code != app.ExitOK {
		t.Errorf("code %d", code)
	}
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("it took %v", took)
	}
	r.await(r.err, `"event":"drained"`, `"left":0`)
	if c.accepted.Load() == 0 {
		t.Error("no result was taken while it drained")
	}
}

func TestDrainTurnsNewSessionsAway(t *testing.T) {
	path, siteKeys, devices := crowdProjection(t, 1)
	r := serveRelay(t, "--drain-window", "20s", "--drain-limit", "25s", "--projection", path)
	gather(t, r, siteKeys, devices)
	r.signal(syscall.SIGTERM)
	r.await(r.err, `"event":"drain"`)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+wire.DaemonPath, nil)
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range map[string]string{
		"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
		"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Protocol": wire.Subprotocol,
	} {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
		t.Errorf("%d, Retry-After %q", resp.StatusCode, resp.Header.Get("Retry-After"))
	}
}

func TestASecondSignalEndsAtOnce(t *testing.T) {
	path, siteKeys, devices := crowdProjection(t, 2)
	r := serveRelay(t, "--drain-window", "60s", "--drain-limit", "70s", "--projection", path)
	gather(t, r, siteKeys, devices)
	r.signal(syscall.SIGTERM)
	r.await(r.err, `"event":"drain"`)
	began := time.Now()
	r.signal(syscall.SIGINT)
	if code := r.exit(); code != app.ExitInterrupted {
		t.Errorf("code %d", code)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
}

func TestAnIdleRelayEndsQuickly(t *testing.T) {
	r := serveRelay(t)
	began := time.Now()
	r.signal(syscall.SIGINT)
	if code := r.exit(); code != app.ExitOK {
		t.Errorf("code %d", code)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
}
