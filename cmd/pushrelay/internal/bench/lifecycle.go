package bench

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"time"

	"pushrelay/cmd/pushrelay/internal/app"
)

// Lifecycle measures whole lives of jobs, from enqueue to collected, against bare echoes in turns.
type Lifecycle struct {
	Output
	Sites   int     `default:"32" help:"Sites, 1 to 512."`
	Daemons int     `default:"64" help:"Daemons, 1 to 2,048; each of its own owner, and each owner consents to each site."`
	Open    int     `default:"1000" help:"Jobs open at once, 1 to 100,000."`
	Slots   int     `default:"16" help:"Jobs that a daemon takes at once, 1 to 64."`
	Queued  int     `default:"0" help:"Measure also with so many jobs queued besides, 0 to 1,000,000; compared with 1,000."`
	Seconds float64 `default:"3" help:"Time of each measurement, 0.1 to 120."`
	Rounds  int     `default:"3" help:"Measurements of each kind, in turns, 1 to 20; medians are shown."`

	exe string // of the children; empty means this one
}

// Validate checks the ranges of the flags.
func (c *Lifecycle) Validate() error {
	return firstError(
		within("sites", c.Sites, 1, 512), within("daemons", c.Daemons, 1, 2048), within("open", c.Open, 1, 100_000),
		within("slots", c.Slots, 1, 64), within("queued", c.Queued, 0, 1_000_000),
		within("seconds", c.Seconds, 0.1, 120), within("rounds", c.Rounds, 1, 20))
}

// Run prints the figure.
func (c *Lifecycle) Run(ctx context.Context, s app.Streams) error {
	return c.run(ctx, s.Out, c.measure)
}

type lifecycleFigure struct {
	Lives  float64      `json:"lives_per_second"`
	Echoes float64      `json:"echoes_per_second"`
	Ratio  float64      `json:"ratio"`
	Whole  int          `json:"lives"`           // all that were checked
	Frames float64      `json:"frames_per_life"` // of the clients, both ways
	Again  int64        `json:"repeated_pushes"`
	Depth  []depthEntry `json:"depth,omitempty"`
}

// depthEntry is the rate with so many jobs queued besides the open ones.
type depthEntry struct {
	Queued int     `json:"queued"`
	Lives  float64 `json:"lives_per_second"`
	Ratio  float64 `json:"ratio"` // to the first entry
}

// shallow is the depth that a deep queue is compared with.
const shallow = 1000

func (f *lifecycleFigure) rows() [][2]string {
	rows := [][2]string{
		{"lives a second", text(f.Lives, 0)},
		{"bare echoes a second", text(f.Echoes, 0)},
		{"ratio", text(f.Ratio, 3)},
		{"lives checked", fmt.Sprint(f.Whole)},
		{"frames a life", text(f.Frames, 2)},
		{"pushes repeated", fmt.Sprint(f.Again)},
	}
	for _, d := range f.Depth {
		rows = append(rows, [2]string{fmt.Sprintf("lives a second, %d queued", d.Queued), text(d.Lives, 0)})
	}
	if n := len(f.Depth); n > 0 {
		rows = append(rows, [2]string{"deep to shallow", text(f.Depth[n-1].Ratio, 3)})
	}
	return rows
}

func (f *lifecycleFigure) add(r lifecycleRound) {
	f.Whole += r.lives
	f.Again += r.repeats
}

func (c *Lifecycle) measure(ctx context.Context) (figure, error) {
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
	var echoes, lives, frames []float64
	depths := c.depths()
	deep := make([][]float64, len(depths))
	found := &lifecycleFigure{}
	for range c.Rounds {
		rate, err := echoRate(ctx, c.exe, echoConns, seconds(c.Seconds))
		if err != nil {
			return nil, err
		}
		echoes = append(echoes, rate)
		r, err := c.round(ctx, w, envelopes, 0)
		if err != nil {
			return nil, err
		}
		lives, frames = append(lives, r.rate), append(frames, r.frames)
		found.add(r)
		for i, queued := range depths {
			r, err := c.round(ctx, w, envelopes, queued)
			if err != nil {
				return nil, fmt.Errorf("with %d queued: %w", queued, err)
			}
			deep[i] = append(deep[i], r.rate)
			found.add(r)
		}
	}
	found.Lives, found.Echoes, found.Frames = round(median(lives), 1), round(median(echoes), 1), round(median(frames), 2)
	found.Ratio = ratio(found.Lives, found.Echoes)
	for i, queued := range depths {
		rate := round(median(deep[i]), 1)
		found.Depth = append(found.Depth, depthEntry{queued, rate, ratio(rate, median(deep[0]))})
	}
	return found, nil
}

func (c *Lifecycle) depths() []int {
	if c.Queued == 0 {
		return nil
	}
	return []int{min(shallow, c.Queued), c.Queued}
}

// lifecycleRound is one measurement of the relay.
type lifecycleRound struct {
	rate    float64 // lives a second
	frames  float64 // a life
	lives   int     // checked
	repeats int64   // pushes that came again
}

// round starts a relay, fills it, measures for a while, and lets every job end. The jobs queued besides are of the
// same queues as the open ones: a new job waits behind all of them, and the daemons drain the queues at their rate.
func (c *Lifecycle) round(ctx context.Context, w *world, envelopes *sealed, queued int) (found lifecycleRound, err error) {
	relay, err := startRelay(ctx, c.exe, w)
	if err != nil {
		return found, err
	}
	defer func() { _ = relay.close() }()
	l := newLedger(c.Sites, c.provide(queued))
	f, err := connect(ctx, relay.Addr, w, envelopes, l, c.Slots)
	if err != nil {
		return found, err
	}
	defer f.close()
	if err := f.fill(ctx, c.Open+queued, c.Daemons); err != nil {
		return found, err
	}
	runtime.GC() // the garbage of the filling isn't the measurement's
	if err := f.pause(ctx, seconds(min(c.Seconds/3, 1))); err != nil {
		return found, err
	}
	err = c.profiled(relay, fmt.Sprintf("lifecycle-%d", queued), func() error {
		before, frames, begin := l.collected.Load(), l.frames.Load(), time.Now()
		err := f.pause(ctx, seconds(c.Seconds))
		lives := float64(l.collected.Load() - before)
		found.rate = lives / time.Since(begin).Seconds()
		found.frames = float64(l.frames.Load()-frames) / max(lives, 1)
		return err
	})
	if err != nil {
		return found, err
	}
	n, err := f.finish(ctx, queued > 0)
	found.lives, found.repeats = n.lives, l.repeats.Load()
	return found, err
}

// provide is how many jobs a site may come to have: more than any machine gets through.
func (c *Lifecycle) provide(queued int) int {
	return (c.Open+queued)/c.Sites + int((c.Seconds+10)*100_000)/c.Sites + 1
}
