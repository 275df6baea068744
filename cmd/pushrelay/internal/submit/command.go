// Package submit is `pushrelay site submit`: a site that publishes the lines of a file and prints the results.
package submit

import (
	"time"

	"pushrelay/cmd/pushrelay/internal/app"
)

// Command is `pushrelay site submit`.
type Command struct {
	app.Config
	app.LogSettings

	File  string `arg:"" optional:"" help:"File whose lines are the jobs, or - for standard input." default:"-"`
	Relay string `help:"URL of the relay." required:"" placeholder:"URL" group:"Site"`
	Key   string `help:"The site's key file, from keygen." required:"" type:"path" placeholder:"FILE" group:"Site"`
	Site  string `help:"The site's id in the projection." required:"" placeholder:"ID" group:"Site"`
	Owner string `help:"Whose devices should run the jobs." required:"" placeholder:"ID" group:"Site"`
	CA    string `help:"PEM file with certificates to trust besides the system's." name:"ca" type:"path" placeholder:"FILE" group:"Site"`

	Kind     string        `help:"Kind of the jobs." default:"llm.generate" enum:"llm.generate,llm.chat" group:"Jobs"`
	Audience string        `help:"Who may run them: private (the owner's own devices) or team." default:"private" enum:"private,team" group:"Jobs"`
	Deadline time.Duration `help:"How long the work is worth doing." default:"10m" group:"Jobs"`
	IDPrefix string        `help:"Beginning of the job ids; the line's number follows. The same prefix again publishes nothing twice. Default: a random one." name:"id-prefix" placeholder:"PREFIX" group:"Jobs"`

	JSON bool `help:"Print each result as a line of JSON." name:"json" group:"Output"`
}

// Help shows examples.
func (Command) Help() string {
	return `Examples:

  pushrelay site submit --relay http://127.0.0.1:8080 --key site.key --site site-one --owner owner-a prompts.txt
  echo 'Say hello' | pushrelay site submit --relay http://127.0.0.1:8080 --key site.key --site site-one --owner owner-a --json
  pushrelay site submit --config site.json --deadline 1h --id-prefix nightly- prompts.txt

Results are printed as they come, each with its job's id. Ctrl-C cancels what is open and waits for it briefly; a second one ends at once.

Exit codes: 0 all jobs succeeded, 4 some failed, 5 none succeeded, 3 refused by the relay, 130 interrupted.`
}

// Run publishes the jobs and waits for their results.
func (c *Command) Run(s app.Streams) error {
	return app.Exitf(app.ExitFailed, "the site isn't part of this build")
}
