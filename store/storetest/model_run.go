package storetest

import (
	"context"
	"flag"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"pushrelay/store"
	"pushrelay/wire"
)

var (
	modelSites   = []string{siteA, siteB}
	modelRunners = []string{r1, r2, r3}
)

const modelReach = 30 * time.Hour // after which every deadline of the model's jobs passed

// subject is a store with its model, and what the operations called so far gave them to speak of.
type subject struct {
	t         testing.TB
	rig       *rig
	m         *model
	tap       *tap
	grants    []wire.Grant // in the order of their making, so that two stores can be asked of the same one
	runners   []string     // who got the grant of that place
	published map[store.Key]bool
	before    map[store.Key]store.Job
	unswept   time.Duration
}

// world is one random run: the same operations on one store or on two.
type world struct {
	rt     *rapid.T
	subs   []*subject
	forked bool // the stores chose differently where both choices were right; the run is over
	clock  bool
	count  int
	names  []string // of jobs, in the order of their first mention
}

// RunModel drives random operations on a store, compares every answer with the model's, and holds the invariants.
func RunModel(t *testing.T, f Factory) {
	moreSteps(t)
	total := 0
	rapid.Check(t, func(rt *rapid.T) { total += run(t, rt, f).count })
	t.Logf("%d operations", total)
}

// RunPair drives the same random operations on two stores, each beside its own model, and compares their answers.
func RunPair(t *testing.T, a, b Factory) {
	moreSteps(t)
	total, forks := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		w := run(t, rt, a, b)
		total += w.count
		if w.forked {
			forks++
		}
	})
	t.Logf("%d operations, %d runs forked", total, forks)
}

// moreSteps makes runs long enough for jobs to come round, unless the caller set their length.
func moreSteps(t *testing.T) {
	const name = "rapid.steps"
	f := flag.Lookup(name)
	if f == nil || f.Value.String() != f.DefValue {
		return
	}
	old := f.Value.String()
	require.NoError(t, flag.Set(name, "100"))
	t.Cleanup(func() { _ = flag.Set(name, old) })
}

func run(t *testing.T, rt *rapid.T, fs ...Factory) *world {
	w := &world{rt: rt, clock: true}
	for _, f := range fs {
		w.clock = w.clock && !f.Gaps.NoClock
	}
	set := w.settings()
	for _, f := range fs {
		f.Gaps.NoClock = !w.clock
		s := newSubject(t, rt, f, set)
		defer func() { _ = s.rig.st.Close() }() // the one that is open then
		w.subs = append(w.subs, s)
	}
	rt.Repeat(w.actions())
	if !w.forked {
		for _, s := range w.subs {
			s.nothingStuck()
		}
	}
	return w
}

func newSubject(t testing.TB, rt *rapid.T, f Factory, set store.Settings) *subject {
	r := &rig{Assertions: require.New(rt), t: quiet{rt: rt}, ctx: context.Background(), f: f, set: set, clock: NewClock()}
	r.st = f.Open(t, set, r.clock)
	s := &subject{t: t, rig: r, published: map[store.Key]bool{}, before: map[store.Key]store.Job{}}
	now := r.now()
	if f.Gaps.NoClock {
		now = time.Time{}
	}
	s.m = newModel(set, now)
	s.tap = &tap{r: r, w: r.st.Watch(store.Interest{}), sites: modelSites}
	return s
}

// settings draws limits that are met often. Odd ends keep due times of one job apart.
func (w *world) settings() store.Settings {
	if !w.clock {
		return store.Settings{PayloadWindow: time.Hour, UnsealedPerRoute: rapid.IntRange(1, 4).Draw(w.rt, "unsealed")}
	}
	return store.Settings{
		PayloadWindow:    10 * time.Second,
		MaxDeadline:      rapid.SampledFrom([]time.Duration{0, 30*time.Minute + 300*time.Millisecond}).Draw(w.rt, "reach"),
		ResultRetention:  rapid.SampledFrom([]time.Duration{0, time.Hour}).Draw(w.rt, "retention"),
		JobsPerSite:      rapid.SampledFrom([]int{0, 0, 6}).Draw(w.rt, "jobs"),
		BytesPerSite:     rapid.SampledFrom([]int64{0, 0, 25}).Draw(w.rt, "bytes"),
		UnsealedPerRoute: rapid.IntRange(1, 4).Draw(w.rt, "unsealed"),
	}
}

// must runs an operation on every store and compares the answers, which name jobs and never leases.
func (w *world) must(op func(s *subject) string) {
	if first, got := w.run(op); first != got {
		require.Equal(w.rt, first, got, "two stores answer differently")
	}
}

// may is must for operations that leave a store a choice. Each choice was judged by the store's own model already; from
// where two stores chose differently they can't be compared any more.
func (w *world) may(op func(s *subject) string) {
	if first, got := w.run(op); first != got {
		w.forked = true
	}
}

// run answers the first and the last store's answer.
func (w *world) run(op func(s *subject) string) (first, last string) {
	if w.forked {
		return "", ""
	}
	w.count++
	for i, s := range w.subs {
		last = op(s)
		if i == 0 {
			first = last
		}
	}
	for _, s := range w.subs {
		s.check()
	}
	return first, last
}

// quiet lets a rig fail a random run: rapid's T isn't a testing.TB.
type quiet struct {
	testing.TB
	rt *rapid.T
}

func (q quiet) Helper()                   { q.rt.Helper() }
func (q quiet) Errorf(s string, a ...any) { q.rt.Errorf(s, a...) }
func (q quiet) FailNow()                  { q.rt.FailNow() }
func (q quiet) Skip(a ...any)             { q.rt.Skip(a...) }
func (q quiet) Cleanup(f func())          { q.rt.Cleanup(f) }
