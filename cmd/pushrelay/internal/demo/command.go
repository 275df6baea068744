// Package demo shows a relay, two sites and three daemons at work on this machine, over real sockets and with real
// sealing, and fails when anything that it shows goes wrong.
package demo

import (
	"pushrelay/cmd/pushrelay/internal/app"
)

// Command is `pushrelay demo`.
type Command struct {
	File string `help:"File whose lines are the texts of the jobs. Default: a built-in text." type:"path" placeholder:"FILE" env:"-"`
	Exec string `help:"Command that runs each job: the text on its standard input, the result from its standard output. Default: a word count." placeholder:"CMD" env:"-"`
}

// Help shows examples.
func (Command) Help() string {
	return `Examples:

  pushrelay demo
  pushrelay demo --file README.md
  pushrelay demo --exec 'tr a-z A-Z'

It takes well under a minute, keeps its files in a temporary folder that it removes, and exits with 1 when anything that it shows is missing.`
}

// Run shows it.
func (c *Command) Run(s app.Streams) error {
	return app.Exitf(app.ExitFailed, "the demonstration isn't part of this build")
}
