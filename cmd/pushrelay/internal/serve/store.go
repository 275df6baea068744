package serve

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"pushrelay/cmd/pushrelay/internal/app"
	"pushrelay/cmd/pushrelay/internal/storage"
	"pushrelay/store"
	"pushrelay/store/disk"
	"pushrelay/store/memory"
)

// Words of --store.
const (
	storeDisk   = "disk"
	storeMemory = "memory"
)

const (
	// openWithin bounds the opening of a store; reading it back takes seconds at most.
	openWithin = time.Minute
	// steadyFor is how long commits must have succeeded for a store to count as back: on a disk that is nearly full small
	// ones do while large ones fail.
	steadyFor = 5 * time.Second
	// outageEvery is how often outages are logged at most.
	outageEvery = time.Minute
)

// openStore picks the store.
func (r *Relay) openStore() (err error) {
	switch r.set.Store {
	case storeMemory:
		r.store = memory.New(memory.Options{Settings: r.set.storeSettings()})
		return nil
	case storeDisk:
		r.outages = &outages{log: r.log, now: time.Now}
		ctx, cancel := context.WithTimeout(context.Background(), openWithin)
		defer cancel()
		s, err := disk.Open(ctx, disk.Options{Dir: r.set.Data, Settings: r.set.storeSettings(), Observer: r.outages})
		if err != nil {
			return storage.Explain(r.set.Data, err)
		}
		r.store = s
		return nil
	}
	return app.Usagef("--store %q isn't one of: %s, %s", r.set.Store, storeDisk, storeMemory)
}

// dataFolder answers where jobs are kept, "" when they aren't.
func (r *Relay) dataFolder() string {
	if r.set.Store != storeDisk {
		return ""
	}
	return r.set.Data
}

// storeErr answers why the store is out, nil when it isn't.
func (r *Relay) storeErr(ctx context.Context) error {
	if medium, ok := r.store.(store.Medium); ok {
		if err := medium.Err(); err != nil {
			return err
		}
	}
	if r.outages != nil {
		if err := r.outages.recent(); err != nil {
			return err
		}
	}
	_, err := r.store.Now(ctx)
	return err
}

// storeGauges are what a store that keeps things tells of itself when metrics are read.
func (r *Relay) storeGauges() []prometheus.Collector {
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "pushrelay_store_" + name, Help: help}, value)
	}
	return []prometheus.Collector{
		gauge("out", "1 while the store can't keep anything, else 0.", func() float64 {
			ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
			defer cancel()
			if r.storeErr(ctx) != nil {
				return 1
			}
			return 0
		}),
		gauge("file_bytes", "Bytes of the files in the store's folder; 0 for a store in memory.", func() float64 {
			return folderBytes(r.dataFolder())
		}),
	}
}

func folderBytes(dir string) (sum float64) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			sum += float64(info.Size())
		}
	}
	return sum
}

// outages hears of a store's medium.
type outages struct {
	log zerolog.Logger
	now func() time.Time

	mu       sync.Mutex
	err      error     // of the last outage
	back     time.Time // when that ended; zero while it lasts
	logged   time.Time // when the last one was logged
	unlogged int       // outages since
	said     bool      // the one that lasts was logged
}

// Failed implements disk.Observer.
func (o *outages) Failed(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err, o.back = err, time.Time{}
	if o.said = o.now().Sub(o.logged) >= outageEvery; !o.said {
		o.unlogged++
		return
	}
	o.logged = o.now()
	o.log.Error().Err(err).Str("event", "store-out").Int("unlogged", o.unlogged).
		Msg("nothing can be kept: sessions stay, and what clients ask for is refused for now")
	o.unlogged = 0
}

// Recovered implements disk.Observer.
func (o *outages) Recovered(after time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.back = o.now()
	if o.said {
		o.log.Info().Str("event", "store-back").Str("after", after.Round(time.Millisecond).String()).Msg("the store keeps again")
	}
}

// Unreadable implements disk.Observer.
func (o *outages) Unreadable(seq uint64, err error) {
	o.log.Warn().Err(err).Str("event", "record-unreadable").Uint64("record", seq).
		Msg("a job can't be read by this build; it is left where it is, for the build that wrote it")
}

// recent answers what the last outage was, while it lasts and for a while afterwards.
func (o *outages) recent() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil && !o.back.IsZero() && o.now().Sub(o.back) < steadyFor {
		return o.err
	}
	return nil
}
