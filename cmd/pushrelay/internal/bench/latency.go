package bench

import (
	"context"
	"fmt"
	"os"
	"time"

	"pushrelay/cmd/pushrelay/internal/app"
)

// Latency measures one job at a time, from its enqueue to its result at the site. The daemon answers at once, so that
// nothing but the relay, its clients and the loopback is measured.
type Latency struct {
	Output
	Jobs   int `default:"1000" help:"Jobs, 10 to 100,000."`
	Warmup int `default:"100" help:"Jobs before them that don't count, 0 to 10,000."`

	exe string // of the children; empty means this one
}

// Validate checks the ranges of the flags.
func (c *Latency) Validate() error {
	return firstError(within("jobs", c.Jobs, 10, 100_000), within("warmup", c.Warmup, 0, 10_000))
}

// Run prints the figure.
func (c *Latency) Run(ctx context.Context, s app.Streams) error { return c.run(ctx, s.Out, c.measure) }

type latencyFigure struct {
	Jobs   int     `json:"jobs"`
	Median float64 `json:"median_ms"`
	P99    float64 `json:"p99_ms"`
	Max    float64 `json:"max_ms"`
}

func (f *latencyFigure) rows() [][2]string {
	return [][2]string{
		{"jobs", fmt.Sprint(f.Jobs)},
		{"median, ms", text(f.Median, 3)},
		{"p99, ms", text(f.P99, 3)},
		{"slowest, ms", text(f.Max, 3)},
	}
}

func (c *Latency) measure(ctx context.Context) (figure, error) {
	dir, err := os.MkdirTemp("", "pushrelay-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	w, err := newWorld(dir, 1, 1, 1)
	if err != nil {
		return nil, err
	}
	envelopes, err := w.seal()
	if err != nil {
		return nil, err
	}
	relay, err := startRelay(ctx, c.exe, w)
	if err != nil {
		return nil, err
	}
	defer func() { _ = relay.close() }()
	total := c.Warmup + c.Jobs
	f, err := connect(ctx, relay.Addr, w, envelopes, newLedger(1, total), 1)
	if err != nil {
		return nil, err
	}
	defer f.close()
	var took []time.Duration
	if err := c.profiled(relay, "latency", func() (err error) { took, err = f.oneByOne(ctx, total); return err }); err != nil {
		return nil, err
	}
	n, err := f.finish(ctx, false)
	if err != nil {
		return nil, err
	}
	if n.lives != total {
		return nil, fmt.Errorf("%d of %d jobs lived", n.lives, total)
	}
	took = took[c.Warmup:]
	return &latencyFigure{
		Jobs: c.Jobs, Median: ms(percentile(took, 50)), P99: ms(percentile(took, 99)), Max: ms(percentile(took, 100)),
	}, nil
}

// oneByOne runs that many jobs, each after the one before was collected, and answers the time from each enqueue to
// the arrival of its result.
func (f *fleet) oneByOne(ctx context.Context, jobs int) ([]time.Duration, error) {
	f.ledger.ending.Store(true) // no job follows by itself
	s := f.sites[0]
	took := make([]time.Duration, 0, jobs)
	for range jobs {
		begin := time.Now()
		s.enqueue([]int32{0}, nil)
		select {
		case at := <-s.arrived:
			took = append(took, at.Sub(begin))
		case <-f.ledger.failed:
			return nil, f.ledger.err
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if err := s.drain(ctx); err != nil {
			return nil, err
		}
	}
	return took, nil
}
