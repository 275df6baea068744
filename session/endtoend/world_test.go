// Package endtoend runs whole lives of jobs: real clients, a real relay on a memory store, real loopback sockets.
package endtoend

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"pushrelay/hub"
	"pushrelay/hub/projection"
	"pushrelay/session"
	"pushrelay/session/daemon"
	"pushrelay/session/site"
	"pushrelay/store/memory"
	"pushrelay/wire"
	"pushrelay/wire/seal"
)

// TestMain lets many tests run at once: most of their time they wait for somebody to come back.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "12"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

const patience = 30 * time.Second // of a test for what must happen; nothing waits for it when all is well

// relay is a hub with its store, behind a listener.
type relay struct {
	url    string
	addr   string
	stop   func()
	store  *memory.Store
	hub    *hub.Hub
	server *session.Server
}

// relayOption changes how a relay is set up: its sessions, its listener, or both.
type relayOption func(cfg *session.ServerConfig, listener *net.Listener)

// startRelay listens on addr, or anywhere when it is empty.
func startRelay(t *testing.T, addr string, holder *projection.Holder, store *memory.Store, set hub.Settings, with ...relayOption) *relay {
	t.Helper()
	h, err := hub.New(hub.Config{Store: store, Projection: holder, Settings: set, Log: zerolog.Nop(), RelayVersion: "test"})
	require.NoError(t, err)
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	listener, err := net.Listen("tcp", addr)
	require.NoError(t, err)
	url := "http://" + listener.Addr().String()
	cfg := session.ServerConfig{Opener: h, Directory: h, PublicURLs: []string{url}, Version: "test", Log: zerolog.Nop()}
	for _, change := range with {
		change(&cfg, &listener)
	}
	srv, err := session.NewServer(cfg)
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle(wire.DaemonPath, srv.Handler(wire.RoleDaemon))
	mux.Handle(wire.SitePath, srv.Handler(wire.RoleSite))
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: mux, ReadHeaderTimeout: patience}}
	server.Start()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	r := &relay{url: url, addr: strings.TrimPrefix(url, "http://"), store: store, hub: h, server: srv}
	var once sync.Once
	r.stop = func() {
		once.Do(func() {
			server.Close()
			closing, done := context.WithTimeout(context.Background(), patience)
			defer done()
			require.NoError(t, srv.Close(closing))
			cancel()
			require.NoError(t, <-ended)
		})
	}
	t.Cleanup(r.stop)
	return r
}

// world is a relay, two sites (shop, blog) and three devices (d1, d2 of ada, d3 of bob), who consent to both sites.
type world struct {
	t      *testing.T
	set    hub.Settings
	holder *projection.Holder
	store  *memory.Store
	relay  *relay
	keys   map[string]*seal.Keys
	log    *timeline
	jobs   sync.Map // by id, for lookup; tests with two sites don't need it
}

func newWorld(t *testing.T, set hub.Settings, with ...relayOption) *world {
	t.Helper()
	w := &world{t: t, set: set, keys: map[string]*seal.Keys{}, log: newTimeline()}
	for _, name := range []string{"shop", "blog", "d1", "d2", "d3"} {
		k, err := seal.Generate(nil)
		require.NoError(t, err)
		w.keys[name] = k
	}
	e := w.parties()
	for _, owner := range []string{"ada", "bob"} {
		e.Consent(owner, "shop").Consent(owner, "blog")
	}
	raw, err := e.Marshal()
	require.NoError(t, err)
	p, err := projection.Parse(raw)
	require.NoError(t, err)
	w.holder, w.store = projection.NewHolder(p), memory.New(memory.Options{})
	t.Cleanup(func() { require.NoError(t, w.store.Close()) })
	w.relay = startRelay(t, "", w.holder, w.store, set, with...)
	return w
}

// running is a client that runs until it is stopped.
type running struct {
	dialer *dialer
	end    context.CancelFunc
	ended  chan error
}

func (r *running) stop(t *testing.T) {
	t.Helper()
	r.end()
	r.dialer.heal()
	select {
	case err := <-r.ended:
		require.NoError(t, err)
		r.ended <- nil // stop may be called again
	case <-time.After(patience):
		t.Fatal("a client doesn't stop")
	}
}

func run(t *testing.T, d *dialer, f func(ctx context.Context) error) *running {
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{dialer: d, end: cancel, ended: make(chan error, 2)}
	go func() { r.ended <- f(ctx) }()
	t.Cleanup(func() { r.stop(t) })
	return r
}

type runner func(ctx context.Context, job daemon.Job) (daemon.Answer, error)

func (f runner) Run(ctx context.Context, job daemon.Job) (daemon.Answer, error) { return f(ctx, job) }

func echo(_ context.Context, job daemon.Job) (daemon.Answer, error) {
	return daemon.Answer{Text: job.Prompt.Text}, nil
}

func (w *world) daemon(name string, work runner) (*daemon.Daemon, *running) {
	return w.daemonAt(name, w.t.TempDir(), work)
}

func (w *world) daemonAt(name, dir string, work runner) (*daemon.Daemon, *running) {
	w.t.Helper()
	return w.daemonOver(name, dir, newDialer(), work)
}

func (w *world) daemonOver(name, dir string, dial *dialer, work runner) (*daemon.Daemon, *running) {
	w.t.Helper()
	d, err := daemon.New(daemon.Config{
		URL: w.relay.url, RunnerID: name, Keys: w.keys[name], StateDir: dir, Run: work, Log: zerolog.Nop(), Slots: 4,
		Transport: dial.transport(), Capabilities: capabilities(),
		OnEvent: func(e daemon.Event) { w.log.add(name, string(e.Type), e.Grant.JobID, e.Detail) },
	})
	require.NoError(w.t, err)
	return d, run(w.t, dial, d.Run)
}

func capabilities() []wire.Capability {
	return []wire.Capability{{
		Kind: daemon.KindGenerate, BackendID: "test", BackendClass: "process", Service: "test", Model: "m", OfferScope: "private",
	}}
}

// inbox collects what a site hears.
type inbox struct {
	owner   string
	results chan site.Result
	notices chan site.Notice
}

func (w *world) site(name string) (*site.Site, *inbox, *running) {
	w.t.Helper()
	return w.siteOver(name, newDialer())
}

func (w *world) siteOver(name string, dial *dialer) (*site.Site, *inbox, *running) {
	w.t.Helper()
	in := &inbox{owner: name, results: make(chan site.Result, 1000), notices: make(chan site.Notice, 1000)}
	s, err := site.New(site.Config{
		URL: w.relay.url, SiteID: name, Keys: w.keys[name], Log: zerolog.Nop(), Transport: dial.transport(), Lookup: w.lookup,
		OnResult: func(_ context.Context, r site.Result) error {
			in.results <- r
			return nil
		},
		OnNotice: func(_ context.Context, n site.Notice) error {
			in.notices <- n
			return nil
		},
		OnEvent: func(e site.Event) { w.log.add(name, string(e.Type), e.JobID, e.Detail) },
	})
	require.NoError(w.t, err)
	return s, in, run(w.t, dial, s.Run)
}

// lookup is the database that the processes of a site share.
func (w *world) lookup(_ context.Context, id string) (site.Job, bool, error) {
	j, found := w.jobs.Load(id)
	if !found {
		return site.Job{}, false, nil
	}
	return j.(site.Job), true, nil
}

// replace puts a projection in force with all sites and devices, and the consents that change gives.
func (w *world) replace(change func(e *projection.Example)) {
	w.t.Helper()
	e := w.parties()
	change(e)
	raw, err := e.Marshal()
	require.NoError(w.t, err)
	p, err := projection.Parse(raw)
	require.NoError(w.t, err)
	_, err = w.holder.Replace(p)
	require.NoError(w.t, err)
}

// parties is a projection of all sites and devices, without consents.
func (w *world) parties() *projection.Example {
	return new(projection.Example).Site("shop", w.keys["shop"].Public()).Site("blog", w.keys["blog"].Public()).
		Device("ada", "d1", w.keys["d1"].Public()).Device("ada", "d2", w.keys["d2"].Public()).
		Device("bob", "d3", w.keys["d3"].Public())
}

func (w *world) submit(s *site.Site, owner string, prompts map[string]string) {
	w.t.Helper()
	var jobs []site.Job
	for id, prompt := range prompts {
		jobs = append(jobs, w.job(id, owner, seal.GeneratePayload{Prompt: prompt}))
	}
	w.submitJobs(s, jobs...)
}

func (w *world) job(id, owner string, payload seal.GeneratePayload) site.Job {
	w.t.Helper()
	p, err := payload.Encode()
	require.NoError(w.t, err)
	j := site.Job{ID: id, Kind: site.KindGenerate, Owner: owner, Deadline: time.Now().Add(time.Hour), Payload: p}
	w.jobs.Store(id, j)
	return j
}

func (w *world) submitJobs(s *site.Site, jobs ...site.Job) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	for _, r := range s.Submit(ctx, jobs...) {
		require.NoError(w.t, r.Err)
	}
}

func next[T any](w *world, from <-chan T) T {
	t := w.t
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatalf("nothing came; what happened:\n%s", w.log)
		panic("unreachable")
	}
}

// timeline records events, and lets a test wait for one.
type timeline struct {
	start time.Time

	mu   sync.Mutex
	all  []string
	seen map[[3]string]int
	news chan struct{}
}

// String lists all events with the time since the first one.
func (l *timeline) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.all, "\n")
}

func newTimeline() *timeline {
	return &timeline{start: time.Now(), seen: map[[3]string]int{}, news: make(chan struct{})}
}

func (l *timeline) add(who, what, job, detail string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen[[3]string{who, what, job}]++
	l.all = append(l.all, fmt.Sprintf("%8d ms  %s %s %s %s", time.Since(l.start).Milliseconds(), who, what, job, detail))
	close(l.news)
	l.news = make(chan struct{})
}

func (l *timeline) count(who, what, job string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen[[3]string{who, what, job}]
}

// changes answers a channel that is closed when something happens.
func (l *timeline) changes() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.news
}

// wait waits until something happened n times.
func (l *timeline) wait(t *testing.T, n int, who, what, job string) {
	t.Helper()
	limit := time.After(patience)
	for {
		l.mu.Lock()
		have, news := l.seen[[3]string{who, what, job}], l.news
		l.mu.Unlock()
		if have >= n {
			return
		}
		select {
		case <-news:
		case <-limit:
			t.Fatalf("%s: %s %s didn't happen, but:\n%s", who, what, job, l)
		}
	}
}

// until asks again and again until it holds.
func (l *timeline) until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	limit := time.After(patience)
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for !holds() {
		select {
		case <-again.C:
		case <-limit:
			t.Fatalf("never: %s; what happened:\n%s", what, l)
		}
	}
}

// dialer is a network that a test can cut for one client.
type dialer struct {
	// Set before it is used.
	via  string                    // dialled in place of the relay, when set: a proxy before it
	wrap func(c net.Conn) net.Conn // put around each connection, when set

	mu    sync.Mutex
	dead  bool
	conns []net.Conn
}

func newDialer() *dialer { return &dialer{} }

func (d *dialer) transport() http.RoundTripper {
	return &http.Transport{DisableKeepAlives: true, DialContext: d.dial}
}

func (d *dialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if d.via != "" {
		addr = d.via
	}
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	if d.wrap != nil {
		c = d.wrap(c)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead {
		return nil, errors.Join(errors.New("the network is down"), c.Close())
	}
	d.conns = append(d.conns, c)
	return c, nil
}

// cut breaks every connection; with dead set no new one comes about before heal.
func (d *dialer) cut(dead bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dead = dead
	for _, c := range d.conns {
		_ = c.Close() // it may be closed already
	}
	d.conns = nil
}

func (d *dialer) heal() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dead = false
}
