package poll_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pushrelay/session/poll"
	"pushrelay/store"
	"pushrelay/wire"
)

// fickle sends calls, and hangs up on some of them after a moment: while they are read, held, answered, or later.
type fickle struct{ *rig }

var errHungUp = errors.New("hung up")

func (f fickle) send(ctx context.Context, c *call) (answered, error) {
	one := ctx
	if rand.IntN(5) == 0 {
		var cancel context.CancelFunc
		one, cancel = context.WithTimeout(ctx, rand.N(4*time.Millisecond))
		defer cancel()
	}
	c.issuedAt = time.Now().UnixMilli()
	a, err := f.try(one, c)
	if err != nil && ctx.Err() == nil {
		return a, errHungUp
	}
	return a, err
}

// results are hung up on a few times only: an answer that was written comes again after 5 s, and later and later.
func (f fickle) results(ctx context.Context, s *site, hangUps *int) (answered, error) {
	c := s.siteGet(s.name, "results", "0")
	if *hangUps == 0 {
		return f.try(ctx, c)
	}
	a, err := f.send(ctx, c)
	if errors.Is(err, errHungUp) {
		*hangUps--
	}
	return a, err
}

// insist repeats a call until its client was there for the answer.
func (f fickle) insist(ctx context.Context, c *call) (answered, error) {
	for {
		a, err := f.send(ctx, c)
		if !errors.Is(err, errHungUp) {
			return a, err
		}
	}
}

// Whatever clients hang up on, no job is lost, and none has two results.
func TestNothingIsLostToHangUps(t *testing.T) {
	const jobs = 60
	r := newRig(t, func(_ *rig, set *hubSettings, opts *poll.Options) {
		set.LeaseFor, set.OfferFor = 2*time.Second, 500*time.Millisecond
		opts.HoldClaim, opts.HoldFetch, opts.HoldPending = 100*time.Millisecond, 100*time.Millisecond, 100*time.Millisecond
	})
	f := fickle{r}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	var all sync.WaitGroup
	loop := func(turn func() error) {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := turn(); err != nil && ctx.Err() == nil && !errors.Is(err, errHungUp) {
					t.Error(err)
					stop()
				}
			}
		})
	}
	for _, d := range []*daemon{r.daemon("d1"), r.daemon("d2"), r.daemon("d3")} {
		loop(func() error { return f.serve(ctx, d) })
		loop(func() error { return f.serve(ctx, d) })
	}
	got := collected{jobs: map[string]bool{}, all: make(chan struct{}), want: 2 * jobs}
	for _, s := range []*site{r.site("shop"), r.site("blog")} {
		hangUps := 3
		loop(func() error { return f.pump(ctx, s, &got, &hangUps) })
		all.Go(func() {
			for i := range jobs {
				if _, err := f.insist(ctx, s.enqueueCall(fmt.Sprintf("%s-%d", s.name, i), []string{"ada", "bob"}[i%2])); err != nil {
					t.Error(err)
				}
			}
		})
	}
	select {
	case <-got.all:
	case <-ctx.Done():
	}
	stop()
	all.Wait()
	assert.Len(t, got.jobs, 2*jobs)
	stats, err := r.store.Stats(t.Context())
	require.NoError(t, err)
	assert.Equal(t, map[store.State]int{store.Done: 2 * jobs}, stats.ByState)
	assert.Zero(t, stats.Notices)
}

// serve is one cycle of a daemon: it forgets what it claimed when it hung up on the answer.
func (f fickle) serve(ctx context.Context, d *daemon) error {
	a, err := f.send(ctx, d.claimCall(2))
	if err != nil {
		return err
	}
	r, err := wire.ParseClaimResponse(wire.Dialect0, []byte(a.body))
	if err != nil {
		return fmt.Errorf("claim: %w: %s", err, a.body)
	}
	for _, raw := range r.Jobs {
		j, err := wire.ParseClaimed(wire.Dialect0, raw)
		if err != nil {
			return err
		}
		if err := f.work(ctx, d, j); err != nil {
			return err
		}
	}
	return nil
}

// work runs a job as long as the grant stands.
func (f fickle) work(ctx context.Context, d *daemon, j wire.ClaimedJob) error {
	for {
		a, err := f.insist(ctx, d.fetchCall(grantOf(j)))
		if err != nil {
			return err
		}
		if a.status == http.StatusOK {
			break
		}
		e, err := wire.ParseWireError(wire.Dialect0, []byte(a.body))
		if err != nil {
			return err
		}
		if e.Code != wire.CodeNotReady {
			return nil // it is another's by now
		}
	}
	a, err := f.insist(ctx, d.resultCall(grantOf(j), f.siteOf(j), "ok", 50))
	if err != nil {
		return err
	}
	if a.status != http.StatusOK && a.status != http.StatusForbidden && a.status != http.StatusNotFound {
		return fmt.Errorf("result: %s", a.body)
	}
	return nil
}

// siteOf finds the site whose key a stub names.
func (f fickle) siteOf(j wire.ClaimedJob) string {
	for _, name := range []string{"shop", "blog"} {
		if f.keys[name].KeyID() == j.Stub.Site {
			return name
		}
	}
	return ""
}

// collected is what the sites have.
type collected struct {
	mu   sync.Mutex
	jobs map[string]bool
	want int
	all  chan struct{}
}

func (c *collected) add(job string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.jobs[job] {
		return
	}
	if c.jobs[job] = true; len(c.jobs) == c.want {
		close(c.all)
	}
}

// pump is one cycle of a site.
func (f fickle) pump(ctx context.Context, s *site, got *collected, hangUps *int) error {
	a, err := f.send(ctx, s.pendingCall())
	if err != nil {
		return err
	}
	pending, err := wire.ParsePendingResponse([]byte(a.body))
	if err != nil {
		return fmt.Errorf("pending: %w: %s", err, a.body)
	}
	for _, j := range pending.Jobs {
		a, err := f.insist(ctx, s.payloadCall(j.JobID, j.Device, 50))
		if err != nil {
			return err
		}
		if a.status != http.StatusOK && a.status != http.StatusConflict {
			return fmt.Errorf("payload: %s", a.body)
		}
	}
	if a, err = f.results(ctx, s, hangUps); err != nil {
		return err
	}
	results, err := wire.ParseResultsResponse([]byte(a.body))
	if err != nil {
		return fmt.Errorf("results: %w: %s", err, a.body)
	}
	for _, j := range results.Jobs {
		got.add(j.JobID)
	}
	return nil
}
