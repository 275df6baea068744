// Package endtoend runs whole lives of jobs: real clients, a real relay on a memory store, real loopback sockets.
package endtoend

import (
	"context"
	"flag"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"pushrelay/hub"
	"pushrelay/hub/projection"
	"pushrelay/session/daemon"
	"pushrelay/session/site"
	"pushrelay/store/memory"
	"pushrelay/wire"
	"pushrelay/wire/seal"
)

// TestMain lets many tests run at once: most of their time they wait for somebody to come back.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

const (
	patience = 30 * time.Second // of a test for what must happen; nothing waits for it when all is well
	soon     = 3 * time.Second  // "at once", on a machine that is busy with other things as well
)

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
