package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"pushrelay/cmd/pushrelay/internal/app"
	"pushrelay/wire"
)

// Poll measures clients that poll: whole lives over HTTP at several depths, or what a held request keeps resident.
type Poll struct {
	Output
	Depths  []int   `default:"100,1000,10000" name:"depth" help:"Jobs open at once, 1 to 100,000; repeat it for several. Each is measured by itself."`
	Sites   int     `default:"4" help:"Sites, 1 to 64."`
	Daemons int     `default:"8" help:"Daemons, 1 to 1,024; each of its own owner, and each owner consents to each site."`
	Slots   int     `default:"8" help:"Jobs that a daemon takes at once, 1 to 64."`
	Seconds float64 `default:"4" help:"Time of each measurement, 0.1 to 120."`
	Rounds  int     `default:"3" help:"Measurements of each depth, in turns, 1 to 20; medians are shown."`
	Held    int     `default:"0" help:"Instead of lives, the resident memory of so many claims that are held, 1 to 15,000."`

	exe string // of the children; empty means this one
}

// Validate checks the ranges of the flags.
func (c *Poll) Validate() error {
	errs := []error{
		within("sites", c.Sites, 1, 64), within("daemons", c.Daemons, 1, 1024), within("slots", c.Slots, 1, 64),
		within("seconds", c.Seconds, 0.1, 120), within("rounds", c.Rounds, 1, 20), within("held", c.Held, 0, 15_000),
	}
	for _, d := range c.Depths {
		errs = append(errs, within("depth", d, 1, 100_000))
	}
	return firstError(errs...)
}

// Run prints the figure.
func (c *Poll) Run(ctx context.Context, s app.Streams) error {
	if c.Held > 0 {
		return c.run(ctx, s.Out, c.measureHeld)
	}
	return c.run(ctx, s.Out, c.measure)
}

// pollFigures are one figure for each depth; as JSON they are the list of those alone.
type pollFigures struct {
	depths []pollFigure
	check  time.Duration // one signature check of ours
}

// pollFigure is what was found at one depth.
type pollFigure struct {
	Depth  int     `json:"depth"`
	Lives  float64 `json:"lives_per_second"`
	Median float64 `json:"p50_ms"` // of requests that are never held
	P99    float64 `json:"p99_ms"`

	requests float64 // a life
	time     float64 // of the relay's processor for one request, in us
	life     float64 // and for a life
}

// MarshalJSON is the list.
func (f *pollFigures) MarshalJSON() ([]byte, error) { return wire.Encode(f.depths) }

func (f *pollFigures) rows() [][2]string {
	var rows [][2]string
	apart := func(value func(d pollFigure) float64) string {
		least, most := value(f.depths[0]), value(f.depths[0])
		for _, d := range f.depths {
			least, most = min(least, value(d)), max(most, value(d))
		}
		return text(100*(most-least)/most, 1)
	}
	check := float64(f.check) / float64(time.Microsecond)
	for _, d := range f.depths {
		rows = append(rows,
			[2]string{fmt.Sprintf("lives a second, %d open", d.Depth), text(d.Lives, 0)},
			[2]string{"a request, median and p99, ms", text(d.Median, 3) + "  " + text(d.P99, 3)},
			[2]string{"requests a life", text(d.requests, 2)},
			[2]string{"processor time a request, relay, us", text(d.time, 1)},
			[2]string{"of which the signature check, %", text(100*check/d.time, 0)},
			[2]string{"processor time a life, relay, us", text(d.life, 0)})
	}
	return append(rows,
		[2]string{"depths apart, %", apart(func(d pollFigure) float64 { return d.Lives })},
		[2]string{"the same by processor time, %", apart(func(d pollFigure) float64 { return d.life })},
		[2]string{"a signature check, us", text(check, 1)})
}

func (c *Poll) measure(ctx context.Context) (figure, error) {
	dir, err := os.MkdirTemp("", "pushrelay-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	w, err := newWorld(dir, c.Sites, c.Daemons, c.Daemons)
	if err != nil {
		return nil, err
	}
	envelopes, err := w.seal()
	if err != nil {
		return nil, err
	}
	rounds := make([][]pollFigure, len(c.Depths))
	for range c.Rounds {
		for i, depth := range c.Depths {
			f, err := c.round(ctx, w, envelopes, depth)
			if err != nil {
				return nil, err
			}
			rounds[i] = append(rounds[i], f)
		}
	}
	found := &pollFigures{check: signatureCheck(w.daemons[0])}
	for i, depth := range c.Depths {
		of := func(value func(f pollFigure) float64, decimals int) float64 {
			values := make([]float64, len(rounds[i]))
			for k, f := range rounds[i] {
				values[k] = value(f)
			}
			return round(median(values), decimals)
		}
		found.depths = append(found.depths, pollFigure{
			Depth:    depth,
			Lives:    of(func(f pollFigure) float64 { return f.Lives }, 1),
			Median:   of(func(f pollFigure) float64 { return f.Median }, 3),
			P99:      of(func(f pollFigure) float64 { return f.P99 }, 3),
			requests: of(func(f pollFigure) float64 { return f.requests }, 2),
			time:     of(func(f pollFigure) float64 { return f.time }, 1),
			life:     of(func(f pollFigure) float64 { return f.life }, 1),
		})
	}
	return found, nil
}

// signatureCheck is the processor time of one on this machine, over a body of a usual claim's length.
func signatureCheck(p *party) time.Duration {
	const checks = 2000
	key, err := p.keys.Public().Key()
	if err != nil {
		return 0
	}
	body := claimBody(p, 8)
	at := time.Now().UnixMilli()
	sig := p.keys.SignRequest("claim", p.id, at, body)
	before, err := spent()
	if err != nil {
		return 0
	}
	for range checks {
		if wire.VerifyRequest(key, "claim", p.id, at, body, sig, at) != nil {
			return 0
		}
	}
	after, err := spent()
	if err != nil {
		return 0
	}
	return time.Duration(after.Spent-before.Spent) / checks
}

// round measures one depth once, with a relay of its own.
func (c *Poll) round(ctx context.Context, w *world, envelopes *sealed, depth int) (f pollFigure, err error) {
	relay, err := startRelay(ctx, c.exe, w)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, relay.close()) }()
	p := newPolled(relay.Addr, w, envelopes, c.Slots, depth)
	if err := p.open(ctx, depth); err != nil {
		return f, err
	}
	run, cancel := context.WithCancel(ctx)
	p.start(run)
	defer func() {
		cancel()
		p.running.Wait()
		p.http.CloseIdleConnections()
		err = errors.Join(err, p.verdict())
	}()
	if err := pause(ctx, time.Second/2, p.failed); err != nil {
		return f, err
	}
	p.forget()
	before := p.requests.Load()
	var cost cost
	err = c.profiled(relay, fmt.Sprintf("poll-%d", depth), func() (err error) {
		cost, err = meter(ctx, relay, p.lives.Load, func(ctx context.Context) error { return pause(ctx, seconds(c.Seconds), p.failed) })
		return err
	})
	if err != nil {
		return f, err
	}
	requests := float64(p.requests.Load() - before)
	took := p.latencies()
	return pollFigure{
		Depth: depth, Lives: cost.perSecond(), Median: ms(percentile(took, 50)), P99: ms(percentile(took, 99)),
		requests: requests / float64(max(cost.count, 1)), time: float64(cost.server) / float64(time.Microsecond) / max(requests, 1),
		life: cost.eachServer(),
	}, nil
}
