package demo

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"pushrelay/cmd/pushrelay/internal/app"
)

const (
	// gateEvery is how often a gated command looks for its gate.
	gateEvery = 10 * time.Millisecond
	// gateLimit ends a gated command whose demonstration is gone.
	gateLimit = 2 * within
)

// Work is the command that the demonstration's daemons run: a word count that may be held at a gate, so that what
// happens to a job in the middle of its run doesn't depend on timing.
type Work struct {
	Gate  string        `help:"Wait until this file exists." type:"path" placeholder:"FILE" env:"-"`
	Each  time.Duration `help:"Take so long for each word." env:"-"`
	Moody bool          `help:"Fail now and then, or give the job back." env:"-"`
}

// Help shows an example.
func (Work) Help() string {
	return `Examples:

  echo 'some text' | pushrelay demo-work`
}

// Run counts the words of standard input.
func (w Work) Run(s app.Streams) error {
	text, err := io.ReadAll(s.In)
	if err != nil {
		return err
	}
	if err := w.wait(); err != nil {
		return err
	}
	if err := w.mood(); err != nil {
		return err
	}
	time.Sleep(min(time.Duration(len(strings.Fields(string(text))))*w.Each, gateLimit))
	_, err = fmt.Fprintln(s.Out, wordCount(string(text)))
	return err
}

// wait ends too when the daemon that began it was killed: nobody wants the answer then.
func (w Work) wait() error {
	if w.Gate == "" {
		return nil
	}
	ticker := time.NewTicker(gateEvery)
	defer ticker.Stop()
	parent, limit := os.Getppid(), time.After(gateLimit)
	for {
		if _, err := os.Stat(w.Gate); err == nil {
			return nil
		}
		select {
		case <-ticker.C:
		case <-limit:
			return app.Exitf(app.ExitFailed, "the gate never opened")
		}
		if os.Getppid() != parent {
			return app.Exitf(app.ExitFailed, "the daemon is gone")
		}
	}
}

// exitLater gives the job back: the device can't do it just now.
const exitLater = 75

// mood is bad in two of three cases.
func (w Work) mood() error {
	if !w.Moody {
		return nil
	}
	switch rand.IntN(3) {
	case 0:
		return app.Exitf(app.ExitFailed, "the command is in a bad mood")
	case 1:
		return app.Exit(exitLater)
	}
	return nil
}
