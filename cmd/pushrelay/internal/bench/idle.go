package bench

import (
	"context"
	"fmt"
	"os"

	"pushrelay/cmd/pushrelay/internal/app"
)

// Idle measures what an idle session keeps resident.
type Idle struct {
	Output
	Sessions int `default:"10000" help:"Sessions, 1 to 15,000: a process has 20,000 descriptors."`
	Rounds   int `default:"1" help:"Measurements of each kind, in turns, 1 to 20; medians are shown."`

	exe string // of the children; empty means this one
}

// Validate checks the ranges of the flags.
func (c *Idle) Validate() error {
	return firstError(within("sessions", c.Sessions, 1, 15_000), within("rounds", c.Rounds, 1, 20))
}

// Run prints the figure.
func (c *Idle) Run(ctx context.Context, s app.Streams) error { return c.run(ctx, s.Out, c.measure) }

type idleFigure struct {
	Sessions     int     `json:"sessions"`
	PerSession   float64 `json:"bytes_per_session"`
	PerBare      float64 `json:"bare_bytes_per_session"`
	Ratio        float64 `json:"ratio"`
	Resident     int64   `json:"resident_bytes"`
	BareResident int64   `json:"bare_resident_bytes"`
}

func (f *idleFigure) rows() [][2]string {
	return [][2]string{
		{"sessions", fmt.Sprint(f.Sessions)},
		{"bytes a session", text(f.PerSession, 0)},
		{"bytes a bare connection", text(f.PerBare, 0)},
		{"ratio", text(f.Ratio, 3)},
		{"relay resident, bytes", fmt.Sprint(f.Resident)},
		{"bare server resident, bytes", fmt.Sprint(f.BareResident)},
	}
}

// idleOwners share the daemons of a crowd: a few devices each, as people have them.
const idleOwners = 4000

func (c *Idle) measure(ctx context.Context) (figure, error) {
	dir, err := os.MkdirTemp("", "pushrelay-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	w, err := newWorld(dir, 1, c.Sessions, min(c.Sessions, idleOwners))
	if err != nil {
		return nil, err
	}
	var bare, relay []float64
	found := &idleFigure{Sessions: c.Sessions}
	for range c.Rounds {
		b, err := bareIdle(ctx, c.exe, c.Sessions)
		if err != nil {
			return nil, err
		}
		r, err := c.relayIdle(ctx, w)
		if err != nil {
			return nil, err
		}
		bare, relay = append(bare, b.each(c.Sessions)), append(relay, r.each(c.Sessions))
		found.BareResident, found.Resident = b.after, r.after
	}
	found.PerSession, found.PerBare = round(median(relay), 0), round(median(bare), 0)
	found.Ratio = ratio(found.PerSession, found.PerBare)
	return found, nil
}

// footprint is a child's resident memory without and with its connections, in bytes, each after a forced collection.
type footprint struct{ before, after int64 }

func (f footprint) each(n int) float64 { return float64(f.after-f.before) / float64(n) }

// bareIdle holds n bare connections to a child.
func bareIdle(ctx context.Context, exe string, n int) (f footprint, err error) {
	server, err := start(ctx, exe, "hold")
	if err != nil {
		return f, err
	}
	defer func() { _ = server.close() }()
	before, err := server.ask("memory")
	if err != nil {
		return f, err
	}
	conns, err := dialBare(ctx, server.Addr, n)
	defer closeBare(conns)
	if err != nil {
		return f, err
	}
	after, err := server.ask("memory")
	return footprint{before.Resident, after.Resident}, err
}

// relayIdle holds n idle daemons' sessions to a relay.
func (c *Idle) relayIdle(ctx context.Context, w *world) (f footprint, err error) {
	relay, err := startRelay(ctx, c.exe, w)
	if err != nil {
		return f, err
	}
	defer func() { _ = relay.close() }()
	before, err := relay.ask("memory")
	if err != nil {
		return f, err
	}
	all, err := gather(ctx, relay.Addr, w)
	if err != nil {
		return f, err
	}
	defer all.close()
	after, err := relay.ask("memory")
	return footprint{before.Resident, after.Resident}, err
}
