// Package demo shows a relay, two sites and three daemons at work on this machine, over real sockets and with real
// sealing, and fails when anything that it shows goes wrong.
package demo

import (
	"context"
	"errors"
	"os/signal"
	"syscall"
	"time"

	"pushrelay/cmd/pushrelay/internal/app"
)

const (
	// within bounds the whole demonstration, sceneWithin each part of it.
	within      = 40 * time.Second
	sceneWithin = 15 * time.Second
)

// Command is `pushrelay demo`.
type Command struct {
	File    string `help:"File whose lines are the texts of the jobs, at most 24 of them. Default: a built-in text." type:"path" placeholder:"FILE" env:"-"`
	Exec    string `help:"Command that runs each job: the text on its standard input, the result from its standard output. Default: a word count." placeholder:"CMD" env:"-"`
	Keep    bool   `help:"Keep jobs coming afterwards, to be watched on the debug page, until Ctrl-C." env:"-"`
	Verbose bool   `help:"Show the logs of all parts." env:"-"`
}

// Help shows examples.
func (Command) Help() string {
	return `Examples:

  pushrelay demo
  pushrelay demo --file README.md
  pushrelay demo --exec 'tr a-z A-Z'
  pushrelay demo --keep

It takes well under a minute, or with --keep until Ctrl-C, keeps its files in a temporary folder that it removes, and exits with 1 when anything that it shows is missing.`
}

// Run shows it.
func (c *Command) Run(ctx context.Context, s app.Streams) error {
	texts, err := c.texts()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	w, err := newWorld(c, s, texts)
	if err != nil {
		return err
	}
	err = w.showWithin(ctx)
	if err == nil && c.Keep {
		err = w.keep(ctx)
	}
	if closing := w.close(); err == nil {
		err = closing
	}
	if err != nil && errors.Is(context.Cause(ctx), context.Canceled) {
		return app.Exit(app.ExitInterrupted)
	}
	return err
}
