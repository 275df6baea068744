package demo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/rs/zerolog"

	"pushrelay/cmd/pushrelay/internal/app"
	"pushrelay/cmd/pushrelay/internal/device"
	"pushrelay/cmd/pushrelay/internal/serve"
	"pushrelay/cmd/pushrelay/internal/setup"
	"pushrelay/session/daemon"
	"pushrelay/session/site"
	"pushrelay/wire"
)

const (
	// lease is short here, so that a dead daemon's work moves on while somebody watches.
	lease = 3 * time.Second
	// kindGate is the kind of jobs that wait in the middle of their run.
	kindGate = "demo.gate"
	slots    = 2
	farewell = 3 * time.Second
)

// world is everything that the demonstration runs.
type world struct {
	cmd     *Command
	out     app.Streams
	log     zerolog.Logger
	program string // this binary
	dir     string
	token   string // of the debug page
	texts   []string
	keys    setup.Made
	stories *stories
	relay   *serve.Relay
	ends    map[string]*end      // sites and daemons of this process, by id
	child   map[string]*exec.Cmd // daemons that are processes of their own
}

// end is a site or a daemon that runs in this process.
type end struct {
	stop func(context.Context) error
	over chan error
	site *site.Site // nil for a daemon
}

func newWorld(c *Command, s app.Streams, texts []string) (*world, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "pushrelay-demo-")
	if err != nil {
		return nil, err
	}
	w := &world{
		cmd: c, out: s, log: zerolog.Nop(), program: program, dir: dir, token: rand.Text(), texts: texts, stories: newStories(),
		ends: map[string]*end{}, child: map[string]*exec.Cmd{},
	}
	if c.Verbose {
		w.log = app.LogSettings{LogFormat: "text", LogLevel: "info"}.Logger(s.Err)
	}
	if err := w.open(); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

// open makes keys and a projection, and starts the relay.
func (w *world) open() (err error) {
	if w.keys, err = setup.Make(w.dir); err != nil {
		return err
	}
	set, err := serve.Defaults()
	if err != nil {
		return err
	}
	set.Projection, set.Listen, set.AdminListen, set.Lease = setup.ProjectionFile(w.dir), "127.0.0.1:0", "127.0.0.1:0", lease
	set.Data, set.Debug, set.DebugToken = setup.DataDir(w.dir), true, w.token
	w.relay, err = serve.Start(set, w.log)
	return err
}

// close ends everything and removes its files.
func (w *world) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	var errs []error
	for id := range w.child {
		errs = append(errs, w.kill(id))
	}
	for id := range w.ends {
		errs = append(errs, w.leave(ctx, id))
	}
	if w.relay != nil {
		errs = append(errs, w.relay.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(w.dir))...)
}

// joinSite connects a site. After leave it is a new process' site: it knows nothing of what the last one published.
func (w *world) joinSite(ctx context.Context, name string) error {
	s, err := site.New(site.Config{
		URL: w.relay.URL(), SiteID: name, Keys: w.keys[name], Log: w.log.With().Str("party", name).Logger(),
		OnResult: func(_ context.Context, r site.Result) error {
			w.stories.hearResult(name, r)
			return nil
		},
		OnNotice: func(_ context.Context, n site.Notice) error {
			w.stories.hearNotice(n)
			return nil
		},
		OnEvent: func(e site.Event) { w.stories.hearSite(name, e) },
	})
	if err != nil {
		return err
	}
	life, stop := context.WithCancel(context.Background())
	e := &end{over: make(chan error, 1), site: s, stop: func(context.Context) error {
		stop()
		return nil
	}}
	return w.joined(ctx, name, e, func() error { return s.Run(life) })
}

// joinDaemon connects a daemon of this process.
func (w *world) joinDaemon(ctx context.Context, runner string) error {
	d, err := daemon.New(daemon.Config{
		URL: w.relay.URL(), RunnerID: runner, Keys: w.keys[runner], StateDir: setup.StateDir(w.dir, runner), Slots: slots,
		Capabilities: []wire.Capability{capability(site.KindGenerate), capability(kindGate), capability(kindSlow), capability(kindMoody)},
		Run:          w.runner(runner), Log: w.log.With().Str("party", runner).Logger(),
		OnEvent: func(e daemon.Event) { w.stories.hearDaemon(runner, e) },
	})
	if err != nil {
		return err
	}
	e := &end{over: make(chan error, 1), stop: func(ctx context.Context) error {
		err := d.Stop(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			return nil // what it had begun is given back, as it is meant to be
		}
		return err
	}}
	return w.joined(ctx, runner, e, func() error { return d.Run(context.Background()) })
}

// joined runs an end and waits until it is connected.
func (w *world) joined(ctx context.Context, id string, e *end, run func() error) error {
	before := w.stories.sessions(id)
	w.ends[id] = e
	go func() { e.over <- run() }()
	return w.stories.connects(ctx, id, before+1)
}

// leave ends a site or a daemon of this process in order.
func (w *world) leave(ctx context.Context, id string) error {
	e := w.ends[id]
	delete(w.ends, id)
	if err := e.stop(ctx); err != nil {
		return fmt.Errorf("%s: %w", id, err)
	}
	select {
	case err := <-e.over:
		return err
	case <-time.After(farewell):
		return fmt.Errorf("%s didn't end", id)
	}
}

func capability(kind string) wire.Capability {
	return wire.Capability{
		Kind: kind, BackendID: "exec", BackendClass: "process", Service: "exec", Model: "demo",
		OfferScope: wire.Dialect2.Audiences()[0],
	}
}

// byKind runs each kind with a runner of its own.
type byKind map[string]daemon.Runner

// Run implements daemon.Runner.
func (b byKind) Run(ctx context.Context, job daemon.Job) (daemon.Answer, error) {
	return b[job.Kind].Run(ctx, job)
}

func (w *world) runner(runner string) daemon.Runner {
	text := []string{w.program, "demo-work"}
	if w.cmd.Exec != "" {
		text = device.Shell(w.cmd.Exec)
	}
	return byKind{
		site.KindGenerate: &daemon.ExecRunner{Command: text},
		kindSlow:          &daemon.ExecRunner{Command: []string{w.program, "demo-work", "--each", "250ms"}},
		kindMoody:         &daemon.ExecRunner{Command: []string{w.program, "demo-work", "--moody"}},
		kindGate:          &daemon.ExecRunner{Command: []string{w.program, "demo-work", "--gate", w.gate(runner)}},
	}
}

// gate is the file whose appearance lets a runner's gated jobs go on.
func (w *world) gate(runner string) string { return filepath.Join(w.dir, runner+".gate") }

func (w *world) openGate(runner string) error { return os.WriteFile(w.gate(runner), nil, 0o600) }
