package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// lifecycleRounds are all measurements of a run, by kind.
type lifecycleRounds struct {
	echoes, lives []cost
	memory        []cost   // when lives are the disk store's
	deep          [][]cost // by depth
	debug         []cost   // with the debug page
	frames        []float64
	whole         int
	repeats       int64
}

func (c *Lifecycle) measure(ctx context.Context) (figure, error) {
	dir, err := os.MkdirTemp(c.Dir, "pushrelay-bench-")
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
	depths := c.depths()
	r := &lifecycleRounds{deep: make([][]cost, len(depths))}
	for range c.Rounds {
		echoes, err := echoCost(ctx, c.exe, echoConns, seconds(c.Seconds))
		if err != nil {
			return nil, err
		}
		if c.Store != memoryName {
			lives, err := c.round(ctx, memoryName, w, envelopes, 0, r)
			if err != nil {
				return nil, err
			}
			r.memory = append(r.memory, lives)
		}
		lives, err := c.round(ctx, c.Store, w, envelopes, 0, r)
		if err != nil {
			return nil, err
		}
		r.echoes, r.lives = append(r.echoes, echoes), append(r.lives, lives)
		if c.Debug {
			lives, err := c.round(ctx, c.Store, w, envelopes, 0, r, "--debug")
			if err != nil {
				return nil, fmt.Errorf("with the debug page: %w", err)
			}
			r.debug = append(r.debug, lives)
		}
		for i, queued := range depths {
			lives, err := c.round(ctx, c.Store, w, envelopes, queued, r)
			if err != nil {
				return nil, fmt.Errorf("with %d queued: %w", queued, err)
			}
			r.deep[i] = append(r.deep[i], lives)
		}
	}
	return r.figure(c.Store, depths), nil
}

// memoryName is the store that others are compared with.
const memoryName = "memory"

func (r *lifecycleRounds) figure(kind string, depths []int) *lifecycleFigure {
	f := &lifecycleFigure{
		Store:       kind,
		Lives:       round(medianOf(r.lives, cost.perSecond), 1),
		Echoes:      round(medianOf(r.echoes, cost.perSecond), 1),
		RelayTime:   round(medianOf(r.lives, cost.eachServer), 2),
		ClientsTime: round(medianOf(r.lives, cost.eachClient), 2),
		EchoTime:    round(medianOf(r.echoes, cost.eachServer)+medianOf(r.echoes, cost.eachClient), 2),
		Whole:       r.whole,
		Frames:      round(median(r.frames), 2),
		Again:       r.repeats,
	}
	f.Ratio = ratio(f.Lives, f.Echoes)
	f.TimeRatio = ratio(f.EchoTime, f.RelayTime+f.ClientsTime)
	if len(r.memory) > 0 {
		m := &memorySide{Lives: round(medianOf(r.memory, cost.perSecond), 1), RelayTime: round(medianOf(r.memory, cost.eachServer), 2)}
		m.Ratio = ratio(f.Lives, m.Lives)
		f.Memory = m
	}
	if len(r.debug) > 0 {
		d := &debugSide{Lives: round(medianOf(r.debug, cost.perSecond), 1), RelayTime: round(medianOf(r.debug, cost.eachServer), 2)}
		d.TimeRatio = ratio(f.RelayTime, d.RelayTime)
		f.Debug = d
	}
	for i, queued := range depths {
		d := depthEntry{Queued: queued, Lives: round(medianOf(r.deep[i], cost.perSecond), 1), Ratio: 1, ByTime: 1}
		d.Time = round(medianOf(r.deep[i], cost.eachServer), 2)
		if i > 0 {
			d.Ratio = ratio(d.Lives, f.Depth[0].Lives)
			d.ByTime = ratio(medianOf(r.deep[0], cost.eachBoth), medianOf(r.deep[i], cost.eachBoth))
		}
		f.Depth = append(f.Depth, d)
	}
	return f
}

// round starts a relay, fills it, measures for a while, and lets every job end. The jobs queued besides are of the
// same queues as the open ones: a new job waits behind all of them, and the daemons drain the queues at their rate.
func (c *Lifecycle) round(
	ctx context.Context, kind string, w *world, envelopes *sealed, queued int, r *lifecycleRounds, more ...string,
) (found cost, err error) {
	data := filepath.Join(filepath.Dir(w.path), "data") // made and removed anew
	relay, err := startRelay(ctx, c.exe, w, append([]string{"--store", kind, "--data", data}, more...)...)
	if err != nil {
		return found, err
	}
	defer func() {
		_ = relay.close()
		err = errors.Join(err, os.RemoveAll(data))
	}()
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
	frames := l.frames.Load()
	err = c.profiled(relay, fmt.Sprintf("lifecycle-%d", queued), func() (err error) {
		found, err = meter(ctx, relay, l.collected.Load, func(ctx context.Context) error {
			return f.pause(ctx, seconds(c.Seconds))
		})
		return err
	})
	if err != nil {
		return found, err
	}
	r.frames = append(r.frames, float64(l.frames.Load()-frames)/float64(max(found.count, 1)))
	n, err := f.finish(ctx, queued > 0)
	r.whole += n.lives
	r.repeats += l.repeats.Load()
	return found, err
}

// provide is how many jobs a site may come to have: more than any machine gets through.
func (c *Lifecycle) provide(queued int) int {
	return (c.Open+queued)/c.Sites + int((c.Seconds+10)*100_000)/c.Sites + 1
}
