package bench

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"pushrelay/cmd/pushrelay/internal/app"
)

// gatherFor is how long all members of a crowd may take to be welcome.
const gatherFor = 3 * time.Minute

// Storm measures how soon sessions are back that were all cut at once.
type Storm struct {
	Output
	Sessions int `default:"5000" help:"Sessions, 1 to 15,000: a process has 20,000 descriptors."`
	Rounds   int `default:"1" help:"Storms, 1 to 20; medians are shown."`
	Accept   int `name:"accept-per-second" default:"2000" help:"Connections that the relay takes a second, 10 to 100,000; it tells others when to come back."`

	exe string // of the children; empty means this one
}

// Validate checks the ranges of the flags.
func (c *Storm) Validate() error {
	return firstError(within("sessions", c.Sessions, 1, 15_000), within("rounds", c.Rounds, 1, 20),
		within("accept-per-second", c.Accept, 10, 100_000))
}

// Run prints the figure.
func (c *Storm) Run(ctx context.Context, s app.Streams) error { return c.run(ctx, s.Out, c.measure) }

type stormFigure struct {
	Sessions int     `json:"sessions"`
	Seconds  float64 `json:"seconds"`
	Slowest  float64 `json:"slowest_ms"`
	Dials    float64 `json:"dials_per_session"` // those that the relay put off are dialled again
}

func (f *stormFigure) rows() [][2]string {
	return [][2]string{
		{"sessions", fmt.Sprint(f.Sessions)},
		{"seconds until all are back", text(f.Seconds, 2)},
		{"slowest wait, ms", text(f.Slowest, 0)},
		{"dials a session", text(f.Dials, 2)},
	}
}

func (c *Storm) measure(ctx context.Context) (figure, error) {
	dir, err := os.MkdirTemp("", "pushrelay-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	w, err := newWorld(dir, 1, c.Sessions, min(c.Sessions, idleOwners))
	if err != nil {
		return nil, err
	}
	relay, err := startRelay(ctx, c.exe, w, "--accept", strconv.Itoa(c.Accept))
	if err != nil {
		return nil, err
	}
	defer func() { _ = relay.close() }()
	all, err := gather(ctx, relay.Addr, w)
	if err != nil {
		return nil, err
	}
	defer all.close()
	var took, slowest, dials []float64
	for range c.Rounds {
		begin, dialled := time.Now(), all.dials.Load()
		err := c.profiled(relay, "storm", func() error {
			all.cut()
			return all.wait(ctx)
		})
		if err != nil {
			return nil, err
		}
		took = append(took, time.Since(begin).Seconds())
		slowest = append(slowest, ms(time.Duration(all.slowest.Load())))
		dials = append(dials, float64(all.dials.Load()-dialled)/float64(c.Sessions))
	}
	return &stormFigure{
		Sessions: c.Sessions, Seconds: round(median(took), 3), Slowest: round(median(slowest), 1), Dials: round(median(dials), 2),
	}, nil
}
