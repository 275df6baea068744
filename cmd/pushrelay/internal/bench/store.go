package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"pushrelay/cmd/pushrelay/internal/app"
	"pushrelay/store"
	"pushrelay/store/disk"
	"pushrelay/store/memory"
)

// Store measures the stores themselves, in this process and without a network: the disk's beside the memory's, in turns.
type Store struct {
	Output
	Callers int     `default:"64" help:"Callers at once, 2 to 1,024; each lives jobs of its own."`
	Calls   int     `default:"500" help:"Enqueues of each caller that are timed, 10 to 100,000."`
	Jobs    int     `default:"100000" help:"Jobs in the file whose opening is timed, 100 to 1,000,000."`
	Seconds float64 `default:"2" help:"Time of each measurement of lives, 0.1 to 120."`
	Rounds  int     `default:"3" help:"Measurements of each kind, in turns, 1 to 20; medians are shown."`
	Dir     string  `type:"existingdir" env:"-" placeholder:"DIR" help:"Folder on the disk to measure; files are made in it and removed. Default: the system's temporary folder."`
}

// Validate checks the ranges of the flags.
func (c *Store) Validate() error {
	return firstError(
		within("callers", c.Callers, 2, 1024), within("calls", c.Calls, 10, 100_000), within("jobs", c.Jobs, 100, 1_000_000),
		within("seconds", c.Seconds, 0.1, 120), within("rounds", c.Rounds, 1, 20))
}

// Run prints the figure.
func (c *Store) Run(ctx context.Context, s app.Streams) error { return c.run(ctx, s.Out, c.measure) }

// storeLatency is the time that an enqueue takes with so many callers at once.
type storeLatency struct {
	Callers int     `json:"callers"`
	Median  float64 `json:"p50_ms"`
	P99     float64 `json:"p99_ms"`
}

// storeSide is the figure of one store.
type storeSide struct {
	Lives   float64        `json:"lives_per_second"`
	Enqueue []storeLatency `json:"enqueue"`
}

type storeFigure struct {
	Memory storeSide `json:"memory"`
	Disk   storeSide `json:"disk"`
	Ratio  float64   `json:"ratio"`       // lives, disk to memory
	Sync   float64   `json:"sync_p50_ms"` // of a bare write that is synced, in the same folder

	Open      float64 `json:"open_seconds"` // with so many jobs
	OpenJobs  int     `json:"open_jobs"`
	FileBytes int64   `json:"file_bytes"`
	JobBytes  float64 `json:"bytes_per_job"`
}

func (f *storeFigure) rows() [][2]string {
	rows := [][2]string{
		{"lives a second, memory", text(f.Memory.Lives, 0)},
		{"lives a second, disk", text(f.Disk.Lives, 0)},
		{"disk to memory", text(f.Ratio, 4)},
		{"a bare synced write, median, ms", text(f.Sync, 3)},
	}
	for _, side := range []struct {
		name string
		storeSide
	}{{"memory", f.Memory}, {"disk", f.Disk}} {
		for _, e := range side.Enqueue {
			rows = append(rows, [2]string{
				fmt.Sprintf("enqueue, %s, callers: %d, median and p99, ms", side.name, e.Callers), text(e.Median, 3) + "  " + text(e.P99, 3),
			})
		}
	}
	return append(rows,
		[2]string{fmt.Sprintf("opening with %d jobs, s", f.OpenJobs), text(f.Open, 2)},
		[2]string{"file, bytes", fmt.Sprint(f.FileBytes)},
		[2]string{"bytes a job", text(f.JobBytes, 0)})
}

// storeKind makes stores of a kind. dir is empty and for this store alone.
type storeKind func(ctx context.Context, dir string) (store.RoutingStore, error)

// benchSettings let a bench have as much as it needs.
func benchSettings() store.Settings {
	return store.Settings{JobsPerSite: 100_000_000, BytesPerSite: 1 << 50, UnsealedPerRoute: 1 << 20}
}

func memoryStore(context.Context, string) (store.RoutingStore, error) {
	return memory.New(memory.Options{Settings: benchSettings()}), nil
}

func diskStore(ctx context.Context, dir string) (store.RoutingStore, error) {
	return disk.Open(ctx, disk.Options{Dir: dir, Settings: benchSettings()})
}

// sideRounds are one store's measurements.
type sideRounds struct{ lives, one, oneTail, crowd, crowdTail []float64 }

func (s *sideRounds) side(callers int) storeSide {
	return storeSide{
		Lives: round(median(s.lives), 1),
		Enqueue: []storeLatency{
			{Callers: 1, Median: round(median(s.one), 4), P99: round(median(s.oneTail), 4)},
			{Callers: callers, Median: round(median(s.crowd), 4), P99: round(median(s.crowdTail), 4)},
		},
	}
}

func (c *Store) measure(ctx context.Context) (_ figure, err error) {
	dir, err := os.MkdirTemp(c.Dir, "pushrelay-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	var kept, forgetful sideRounds
	var syncs, opens []float64
	f := &storeFigure{OpenJobs: c.Jobs}
	for i := range c.Rounds {
		at := func(what string) string { return filepath.Join(dir, fmt.Sprint(what, i)) }
		if err := c.side(ctx, memoryStore, at("memory"), &forgetful); err != nil {
			return nil, err
		}
		if err := c.side(ctx, diskStore, at("disk"), &kept); err != nil {
			return nil, err
		}
		sync, err := syncedWrite(ctx, at("sync"))
		if err != nil {
			return nil, err
		}
		took, size, err := c.opening(ctx, at("open"))
		if err != nil {
			return nil, err
		}
		syncs, opens = append(syncs, sync), append(opens, took.Seconds())
		f.FileBytes = size
	}
	f.Memory, f.Disk = forgetful.side(c.Callers), kept.side(c.Callers)
	f.Ratio, f.Sync, f.Open = ratio(f.Disk.Lives, f.Memory.Lives), round(median(syncs), 3), round(median(opens), 3)
	f.JobBytes = round(float64(f.FileBytes)/float64(c.Jobs), 1)
	return f, nil
}

// side measures one store once; each measurement has a store of its own.
func (c *Store) side(ctx context.Context, kind storeKind, dir string, r *sideRounds) error {
	lives, err := withStore(ctx, kind, dir+"-lives", func(s store.RoutingStore) (float64, error) {
		return livesOf(ctx, s, c.Callers, seconds(c.Seconds))
	})
	if err != nil {
		return err
	}
	r.lives = append(r.lives, lives)
	for _, e := range []struct {
		callers      int
		middle, tail *[]float64
	}{{1, &r.one, &r.oneTail}, {c.Callers, &r.crowd, &r.crowdTail}} {
		took, err := withStore(ctx, kind, fmt.Sprint(dir, "-", e.callers), func(s store.RoutingStore) ([]time.Duration, error) {
			return enqueueTimes(ctx, s, e.callers, c.Calls)
		})
		if err != nil {
			return err
		}
		*e.middle, *e.tail = append(*e.middle, inMs(percentile(took, 50))), append(*e.tail, inMs(percentile(took, 99)))
	}
	return nil
}

// withStore uses a new store and removes what it left.
func withStore[T any](ctx context.Context, kind storeKind, dir string, use func(store.RoutingStore) (T, error)) (out T, err error) {
	s, err := kind(ctx, dir)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, s.Close(), os.RemoveAll(dir)) }()
	return use(s)
}
