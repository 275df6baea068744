// Package submit is `pushrelay site submit`: a site that publishes the lines of a file and prints the results.
package submit

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"pushrelay/cmd/pushrelay/internal/app"
	"pushrelay/cmd/pushrelay/internal/keys"
	"pushrelay/session"
	"pushrelay/session/site"
	"pushrelay/wire"
)

// Command is `pushrelay site submit`.
type Command struct {
	app.Config
	app.LogSettings `embed:"" set:"loglevel=warn"`

	File  string `arg:"" optional:"" help:"File whose lines are the jobs, or - for standard input." default:"-"`
	Relay string `help:"URL of the relay." required:"" placeholder:"URL" group:"Site"`
	Key   string `help:"The site's key file, from keygen." required:"" type:"path" placeholder:"FILE" group:"Site"`
	Site  string `help:"The site's id in the projection." required:"" placeholder:"ID" group:"Site"`
	Owner string `help:"Whose devices should run the jobs." required:"" placeholder:"ID" group:"Site"`
	CA    string `help:"PEM file with certificates to trust besides the system's." name:"ca" type:"path" placeholder:"FILE" group:"Site"`

	Kind     string   `help:"Kind of the jobs." default:"llm.generate" enum:"llm.generate,llm.chat" group:"Jobs"`
	Audience string   `help:"Who may run them: private (the owner's own devices) or team." default:"private" enum:"private,team" group:"Jobs"`
	Deadline Deadline `help:"Until when the work is worth doing: a duration from now, or a time like 2030-01-31T12:00:00Z." default:"10m" group:"Jobs"`
	IDPrefix string   `help:"Beginning of the job ids; the line's number follows. Default: a random one." name:"id-prefix" placeholder:"PREFIX" group:"Jobs"`

	JSON bool `help:"Print each result as a line of JSON." name:"json" group:"Output" env:"-"`
}

// Help shows examples.
func (Command) Help() string {
	return `Examples:

  pushrelay site submit --relay http://127.0.0.1:8080 --key site.key --site site-one --owner owner-a prompts.txt
  echo 'Say hello' | pushrelay site submit --relay http://127.0.0.1:8080 --key site.key --site site-one --owner owner-a --json
  pushrelay site submit --config site.json --deadline 2030-01-31T12:00:00Z --id-prefix nightly- prompts.txt

Results are printed as they come, each with its job's id. Empty lines are no jobs. Ctrl-C cancels what is open and waits for it briefly; a second one ends at once.

To be able to repeat a submission that was cut short, choose an --id-prefix and give a time, not a duration, as --deadline. With the same two nothing is published twice, and results that waited are printed.

Run it for a site that has no other process at that time: a relay asks any session of a site to seal, and this one knows its own jobs only.

Exit codes: 0 all jobs succeeded, 4 some failed, 5 none succeeded, 3 refused by the relay, 130 interrupted.`
}

// Validated refuses settings that can't work, each with what to do.
func (c *Command) Validated() error {
	if u, err := url.Parse(c.Relay); err != nil || u.Host == "" {
		return app.Usagef("--relay %q isn't a URL; write for instance https://relay.example.org", c.Relay)
	}
	if c.Site == "" || c.Owner == "" {
		return app.Usagef("--site and --owner must not be empty; they are the ids that the projection has")
	}
	if err := c.Deadline.check(); err != nil {
		return err
	}
	if len(c.IDPrefix) > wire.MaxIDBytes-20 || strings.ContainsFunc(c.IDPrefix, func(r rune) bool { return r < ' ' }) {
		return app.Usagef("--id-prefix is longer than %d bytes or has control characters; choose another", wire.MaxIDBytes-20)
	}
	return nil
}

// Run publishes the jobs and waits for their results.
func (c *Command) Run(ctx context.Context, s app.Streams) error {
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
	if c.CheckConfig {
		return app.Print(s.Out, c.view())
	}
	in, err := c.open(s.In)
	if err != nil {
		return err
	}
	defer in.Close()
	if c.IDPrefix == "" {
		c.IDPrefix = strings.ToLower(rand.Text()[:8]) + "-"
	}
	if c.typed(s.In) {
		fmt.Fprintln(s.Err, "Each line that you type is a job; Ctrl-D ends them.")
	}
	r := newRun(c, s)
	r.site, err = site.New(site.Config{
		URL: c.Relay, SiteID: c.Site, Keys: key, Name: "pushrelay-site", Version: app.BuildInfo().Version, CAFile: c.CA,
		Log: r.log, OnResult: r.result, OnNotice: r.notice, OnEvent: r.event,
	})
	if err != nil {
		return app.Usagef("%w", err)
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)
	return app.Refusal(r.do(ctx, in, signals))
}

func (c *Command) open(stdin io.Reader) (io.ReadCloser, error) {
	if c.File == "-" {
		return io.NopCloser(stdin), nil
	}
	file, err := os.Open(c.File)
	if err != nil {
		return nil, app.Usagef("the jobs can't be read: %w; name a file with a job on each line, or - for standard input", err)
	}
	if info, err := file.Stat(); err == nil && info.IsDir() {
		return nil, errors.Join(app.Usagef("%s is a folder; name a file with a job on each line, or - for standard input", c.File), file.Close())
	}
	return file, nil
}

// typed reports whether a person types the jobs.
func (c *Command) typed(stdin io.Reader) bool { return c.File == "-" && app.IsTerminal(stdin) }

func (c *Command) view() map[string]any {
	return map[string]any{
		"relay": c.Relay, "key": c.Key, "site": c.Site, "owner": c.Owner, "ca": c.CA, "kind": c.Kind,
		"audience": c.Audience, "deadline": c.Deadline.String(), "id-prefix": c.IDPrefix,
	}
}
