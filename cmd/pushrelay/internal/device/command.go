// Package device is `pushrelay daemon`: a device that runs jobs with a command or with an OpenAI-compatible server.
package device

import (
	"context"
	"crypto/ed25519"
	"errors"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"pushrelay/cmd/pushrelay/internal/app"
	"pushrelay/cmd/pushrelay/internal/keys"
	"pushrelay/session"
	"pushrelay/session/daemon"
	"pushrelay/wire"
)

// lastWait is for what a second signal cuts short: commands are killed and grants given back.
const lastWait = 4 * time.Second

// Command is `pushrelay daemon`.
type Command struct {
	app.Config
	app.LogSettings `embed:"" set:"loglevel=info"`

	Relay   string `help:"URL of the relay." required:"" placeholder:"URL" group:"Device"`
	Key     string `help:"The device's key file, from keygen." required:"" type:"path" placeholder:"FILE" group:"Device"`
	Runner  string `help:"The runner id that the control plane assigned to this device." required:"" placeholder:"ID" group:"Device"`
	State   string `help:"Folder for finished results until the relay has them; one daemon each." required:"" type:"path" placeholder:"DIR" group:"Device"`
	CA      string `help:"PEM file with certificates to trust besides the system's." name:"ca" type:"path" placeholder:"FILE" group:"Device"`
	Dialect string `help:"protocolVersion to speak." enum:"0,2" default:"2" group:"Device"`

	Owner        string `help:"Whose device this is, as the control plane names the person. Without --control-plane-key only this owner's jobs run. Default: the relay says whose jobs do." placeholder:"ID" group:"Device"`
	ControlPlane string `help:"The control plane's public key, or a file with it: then only jobs run that it granted. Needs --owner and dialect 2." name:"control-plane-key" placeholder:"FILE|KEY" group:"Device"`

	Slots      int           `help:"Jobs at once, 1 to 64." default:"1" group:"Work"`
	Kind       []string      `help:"Kind of jobs to take; repeat it for several." default:"llm.generate,llm.chat" group:"Work"`
	OfferScope string        `help:"Whose jobs to take: private (the owner's) or team; with dialect 0 self, named or public. Default: the widest." placeholder:"SCOPE" group:"Work"`
	Service    string        `help:"Name by which the control plane's grants call what runs the jobs; dialect 2. Default: exec or openai." placeholder:"NAME" group:"Work"`
	Exec       string        `help:"Command that runs each job: the prompt on its standard input, the result from its standard output." placeholder:"CMD" group:"Work"`
	OpenAI     string        `help:"Base URL of an OpenAI-compatible server that runs each job." name:"openai" placeholder:"URL" group:"Work"`
	OpenAIKey  string        `help:"File with the server's API key." name:"openai-key-file" type:"path" placeholder:"FILE" group:"Work"`
	Model      string        `help:"Model that the server is asked for, or the name that sites are told for --exec. Default: the first word of --exec." placeholder:"M" group:"Work"`
	StopWithin time.Duration `help:"How long running jobs may go on after the first SIGTERM or SIGINT; then they are given back." default:"30s" group:"Work"`
}

// Help shows examples.
func (Command) Help() string {
	return `Examples:

  pushrelay daemon --relay https://relay.example.org --key device.key --runner runner-1 --state state --exec 'tr a-z A-Z'
  pushrelay daemon --relay https://relay.example.org --key device.key --runner runner-1 --state state --openai http://127.0.0.1:11434/v1 --model llama3 --slots 2
  pushrelay daemon --config daemon.json --check-config

The command of --exec is run by a shell, once for each job. It has PUSHRELAY_JOB, PUSHRELAY_KIND and PUSHRELAY_SIZE in its environment. Exit code 0 means that its output is the result; 75 gives the job back for another device to try, other codes are a failure, and what it wrote last to standard error goes to the site. What a site cancels, or what is lost, is stopped.

SIGTERM and SIGINT stop gracefully: what hasn't begun is given back, what runs may finish within --stop-within. A second signal stops at once. Exit code 3: the relay refused this device; see the message.`
}

// Validated refuses settings that can't work, each with what to do.
func (c *Command) Validated() error {
	if u, err := url.Parse(c.Relay); err != nil || u.Host == "" {
		return app.Usagef("--relay %q isn't a URL; write for instance https://relay.example.org", c.Relay)
	}
	scopes := wire.Dialect(c.Dialect).Audiences()
	switch {
	case c.Runner == "":
		return app.Usagef("--runner is empty; it is the id that the projection has for this device")
	case c.OfferScope != "" && !slices.Contains(scopes, c.OfferScope):
		return app.Usagef("--offer-scope is %q; with --dialect %s it is one of %s", c.OfferScope, c.Dialect, strings.Join(scopes, ", "))
	case c.Exec == "" && c.OpenAI == "":
		return app.Usagef("nothing would run the jobs: set --exec CMD or --openai URL")
	case c.Exec != "" && c.OpenAI != "":
		return app.Usagef("--exec and --openai can't be used together; remove one of them")
	case c.OpenAI != "" && c.Model == "":
		return app.Usagef("--openai needs --model: name a model of that server")
	case c.OpenAI != "" && !webURL(c.OpenAI):
		return app.Usagef("--openai %q isn't a URL; write for instance http://127.0.0.1:11434/v1", c.OpenAI)
	case c.Service != "" && !wire.Dialect(c.Dialect).SignedGrants():
		return app.Usagef("--service is of use with --dialect 2 only; remove it")
	case c.OpenAI == "" && c.OpenAIKey != "":
		return app.Usagef("--openai-key-file is of use with --openai only; remove it")
	case c.Slots < 1 || c.Slots > wire.MaxSlots:
		return app.Usagef("--slots is %d; set it from 1 to %d", c.Slots, wire.MaxSlots)
	case c.StopWithin < 0 || c.StopWithin > 24*time.Hour:
		return app.Usagef("--stop-within is %v; set it from 0s to 24h", c.StopWithin)
	case c.ControlPlane != "" && c.Owner == "":
		return app.Usagef("--control-plane-key needs --owner: a grant names whose device it is for")
	case c.ControlPlane != "" && !wire.Dialect(c.Dialect).SignedGrants():
		return app.Usagef("--control-plane-key is of use with --dialect 2 only: dialect %s has no grants", c.Dialect)
	case len(c.Kind) == 0:
		return app.Usagef("no --kind is left; name at least one, for instance llm.generate")
	}
	return nil
}

// webURL reports whether requests can be sent to a URL.
func webURL(raw string) bool {
	u, err := url.Parse(raw)
	return err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https")
}

// Run runs jobs until a signal or the relay ends it.
func (c *Command) Run(s app.Streams) error {
	if err := c.Validated(); err != nil {
		return err
	}
	key, err := keys.Read(c.Key)
	if err != nil {
		return err
	}
	if err := session.CheckCA(c.CA); err != nil {
		return app.Usagef("--ca: %w", err)
	}
	runner, err := c.runner()
	if err != nil {
		return err
	}
	var plane ed25519.PublicKey
	if c.ControlPlane != "" {
		if plane, err = keys.ControlPlane(c.ControlPlane); err != nil {
			return err
		}
	}
	if c.CheckConfig {
		return app.Print(s.Out, c.view())
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)
	log := c.Logger(s.Err)
	d, err := daemon.New(daemon.Config{
		URL: c.Relay, RunnerID: c.Runner, Keys: key, Dialect: wire.Dialect(c.Dialect), Capabilities: c.capabilities(),
		Slots: c.Slots, Name: "pushrelay-daemon", Version: app.BuildInfo().Version, StateDir: c.State, Run: runner, CAFile: c.CA,
		Owner: c.Owner, ControlPlane: plane,
		Log: log, OnEvent: func(e daemon.Event) { logEvent(log, e) },
	})
	if err != nil {
		return app.Usagef("%w", err)
	}
	return c.keep(d, log, signals)
}

// keep runs d: the first signal stops it gracefully, the second one at once.
func (c *Command) keep(d *daemon.Daemon, log zerolog.Logger, signals <-chan os.Signal) error {
	over := make(chan error, 1)
	go func() { over <- d.Run(context.Background()) }()
	select {
	case err := <-over:
		return app.Refusal(err)
	case s := <-signals:
		log.Info().Str("event", "stop").Str("signal", s.String()).Str("within", c.StopWithin.String()).Msg("stopping")
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.StopWithin)
	defer cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- d.Stop(ctx) }()
	select {
	case err := <-stopped:
		if errors.Is(err, context.DeadlineExceeded) {
			err = nil // given back, as --stop-within says
		}
		return errors.Join(err, app.Refusal(<-over))
	case <-signals:
	}
	log.Warn().Str("event", "stop-cut").Msg("a second signal: giving everything back and ending")
	cancel()
	select {
	case <-over: // running commands are killed and given back
	case <-signals:
	case <-time.After(lastWait):
	}
	return app.Exit(app.ExitInterrupted)
}

// logEvent writes one line for each step of a grant that the daemon has no line for itself. Ids are other people's words:
// the logger escapes them.
func logEvent(log zerolog.Logger, e daemon.Event) {
	switch e.Type {
	case daemon.EventConnected, daemon.EventDisconnected, daemon.EventReported, daemon.EventSites, daemon.EventRevoked:
		return
	}
	line := log.Info().Str("event", string(e.Type))
	if e.Grant.JobID != "" {
		line = line.Str("job", e.Grant.JobID).Str("lease", e.Grant.LeaseID)
	}
	if e.Kind != "" {
		line = line.Str("kind", e.Kind)
	}
	if e.Detail != "" {
		line = line.Str("detail", e.Detail)
	}
	line.Msg(string(e.Type))
}
