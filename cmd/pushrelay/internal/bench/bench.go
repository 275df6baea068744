// Package bench measures a relay on this machine: whole lives of jobs, latency, idle memory, and a storm of returns.
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
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"text/tabwriter"
	"time"
)

// Command is `pushrelay bench`, a field of the program's command line.
type Command struct {
	Child Child `cmd:"" hidden:"" help:"A process that a bench measures."`
}

// Output is how a figure is shown.
type Output struct {
	JSON    bool   `name:"json" help:"Print one JSON object instead of a table."`
	Profile string `hidden:"" placeholder:"DIR" help:"Write CPU and allocation profiles of relay and clients here."`
}

// figure is what a bench found: the JSON object, and rows of name and value for people.
type figure interface{ rows() [][2]string }

// run measures until an interrupt and prints what was found.
func (o Output) run(measure func(ctx context.Context) (figure, error)) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return o.print(ctx, os.Stdout, measure)
}

func (o Output) print(ctx context.Context, out io.Writer, measure func(ctx context.Context) (figure, error)) error {
	f, err := measure(ctx)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && errors.Is(err, context.Canceled) {
			return fmt.Errorf("bench: %w", cause)
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
		return fmt.Errorf("--%s must be %v to %v", name, low, high)
	}
	return nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
