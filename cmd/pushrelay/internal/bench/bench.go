// Package bench measures a relay on this machine: whole lives of jobs, latency, idle memory, a storm of returns, and its stores.
//
// The relay and every baseline run in processes of their own, started from this same executable; the clients run in
// this one. All traffic stays on loopback, and every run is bounded in count and in time.
//
//	bench (clients) --stdin/stdout--> child: commands, figures
//	                --loopback------> child: echo | hold | relay
package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"text/tabwriter"
	"time"

	"pushrelay/cmd/pushrelay/internal/app"
)

// Command is `pushrelay bench`, a field of the program's command line.
type Command struct {
	Lifecycle Lifecycle `cmd:"" help:"Whole lives of jobs a second, against bare WebSocket echoes."`
	Latency   Latency   `cmd:"" help:"Time from enqueue to result of one job at a time."`
	Idle      Idle      `cmd:"" help:"Resident memory of an idle session, against a bare WebSocket connection."`
	Storm     Storm     `cmd:"" help:"Sessions cut all at once: time until all are back."`
	Poll      Poll      `cmd:"" help:"Clients that poll: whole lives over HTTP at several depths, or the memory of held requests."`
	Store     Store     `cmd:"" help:"The disk store beside the memory store, without a network."`
	Child     Child     `cmd:"" hidden:"" help:"A process that a bench measures."`
}

// Output is how a figure is shown.
type Output struct {
	JSON    bool   `name:"json" help:"Print JSON instead of a table."`
	Profile string `hidden:"" placeholder:"DIR" help:"Write CPU and allocation profiles of relay and clients here."`
}

// figure is what a bench found: the JSON object, and rows of name and value for people.
type figure interface{ rows() [][2]string }

// run measures until an interrupt and prints what was found.
func (o Output) run(ctx context.Context, out io.Writer, measure func(ctx context.Context) (figure, error)) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	f, err := measure(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return app.Exit(app.ExitInterrupted)
		}
		return fmt.Errorf("bench: %w", err)
	}
	if o.JSON {
		return json.NewEncoder(out).Encode(f)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range f.rows() {
		fmt.Fprintf(w, "%s\t%s\t\n", row[0], row[1])
	}
	return w.Flush()
}

// within answers an error unless low <= v <= high; name is the flag's.
func within[T int | float64](name string, v, low, high T) error {
	if v < low || v > high {
		return app.Usagef("--%s is %v; set it from %v to %v", name, v, low, high)
	}
	return nil
}

// firstError answers the first of several checks that failed.
func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
