package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"pushrelay/store"
	"pushrelay/wire"
)

const (
	// fillBatch is how many jobs one enqueue has where its time doesn't count.
	fillBatch = 256
	// syncedWrites is how often a bare write is timed, and how much it writes: a page.
	syncedWrites, syncedBytes = 100, 4 << 10
	leaseFor, offerFor        = time.Minute, 5 * time.Second
)

// caller lives jobs of a route and a runner of its own, as a site and a daemon would have the hub do it.
type caller struct {
	store    store.RoutingStore
	site     string
	claim    store.Claim
	envelope wire.Envelope
	deadline int64
	made     int
}

func newCaller(s store.RoutingStore, number int) *caller {
	c := &caller{store: s, site: fmt.Sprint("site-", number%32), deadline: time.Now().Add(deadlineAhead).UnixMilli()}
	c.claim = store.Claim{
		Runner: fmt.Sprint("runner-", number), Owner: ownerID(number), Device: "device", Dialect: wire.Dialect0,
		Routes: []store.Route{{Site: c.site, Owner: ownerID(number)}}, Kinds: []string{benchKind}, Max: 1, Slots: 64,
		LeaseFor: leaseFor, OfferFor: offerFor,
	}
	c.envelope = wire.Envelope{RecipientKeyID: c.claim.Device, Raw: bytes.Repeat([]byte("x"), envelopeBytes)}
	return c
}

// stubs makes the next jobs.
func (c *caller) stubs(n int) []wire.Stub {
	out := make([]wire.Stub, n)
	for i := range out {
		s := wire.Stub{
			ID: fmt.Sprintf("%s-%d", c.claim.Runner, c.made), Kind: benchKind, Owner: c.claim.Owner, Site: "bench", Audience: "self",
			SizeClass: "small", DeadlineAt: c.deadline,
		}
		s.Raw = wire.AppendStub(nil, s)
		out[i] = s
		c.made++
	}
	return out
}

func (c *caller) enqueue(ctx context.Context, n int) error {
	got, err := c.store.Enqueue(ctx, c.site, wire.Dialect0, c.stubs(n))
	if err != nil {
		return err
	}
	for _, e := range got {
		if e.Err != nil || e.Known || e.State != store.Queued {
			return fmt.Errorf("an enqueue was answered %+v", e)
		}
	}
	return nil
}

// life takes one job from its enqueue to its collect.
func (c *caller) life(ctx context.Context) error {
	if err := c.enqueue(ctx, 1); err != nil {
		return err
	}
	got, err := c.store.Claim(ctx, c.claim)
	if err != nil || len(got) != 1 {
		return errors.Join(err, fmt.Errorf("a claim granted %d jobs", len(got)))
	}
	g := wire.Grant{JobID: got[0].Stub.ID, LeaseID: got[0].Lease}
	if lost, err := c.store.Accept(ctx, c.claim.Runner, []wire.Grant{g}); err != nil || len(lost) > 0 {
		return errors.Join(err, fmt.Errorf("an accept lost %v", lost))
	}
	if _, err := c.store.Seal(ctx, c.site, g, c.envelope); err != nil {
		return err
	}
	if env, err := c.store.TakePayload(ctx, c.claim.Runner, g); err != nil || !bytes.Equal(env.Raw, c.envelope.Raw) {
		return errors.Join(err, errors.New("a payload isn't what was sealed"))
	}
	done, err := c.store.Complete(ctx, c.claim.Runner, g, c.envelope, wire.DispositionOK)
	if err != nil || !done.Accepted {
		return errors.Join(err, fmt.Errorf("a result was answered %+v", done))
	}
	if env, err := c.store.ResultEnvelope(ctx, c.site, g); err != nil || !bytes.Equal(env.Raw, c.envelope.Raw) {
		return errors.Join(err, errors.New("a result isn't what was reported"))
	}
	return c.store.Collect(ctx, c.site, []wire.Grant{g})
}

// livesOf answers the lives a second of so many callers at once.
func livesOf(ctx context.Context, s store.RoutingStore, callers int, span time.Duration) (float64, error) {
	var lives atomic.Int64
	begin := time.Now()
	err := parallel(callers, callers, func(i int) error {
		c := newCaller(s, i)
		for time.Since(begin) < span {
			if err := errors.Join(context.Cause(ctx), c.life(ctx)); err != nil {
				return err
			}
			lives.Add(1)
		}
		return nil
	})
	return float64(lives.Load()) / time.Since(begin).Seconds(), err
}

// enqueueTimes answers how long each of so many enqueues of one job took, of each of so many callers at once.
func enqueueTimes(ctx context.Context, s store.RoutingStore, callers, calls int) ([]time.Duration, error) {
	took := make([]time.Duration, callers*calls)
	err := parallel(callers, callers, func(i int) error {
		c := newCaller(s, i)
		for n := range calls {
			begin := time.Now()
			if err := errors.Join(context.Cause(ctx), c.enqueue(ctx, 1)); err != nil {
				return err
			}
			took[i*calls+n] = time.Since(begin)
		}
		return nil
	})
	return took, err
}

// opening answers how long a store of so many waiting jobs takes to open, and the size of its files.
func (c *Store) opening(ctx context.Context, dir string) (took time.Duration, size int64, err error) {
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s, err := diskStore(ctx, dir)
	if err != nil {
		return 0, 0, err
	}
	err = parallel(c.Callers, c.Callers, func(i int) error {
		filler := newCaller(s, i)
		for left := c.Jobs/c.Callers + min(1, max(0, c.Jobs%c.Callers-i)); left > 0; left -= fillBatch {
			if err := errors.Join(context.Cause(ctx), filler.enqueue(ctx, min(left, fillBatch))); err != nil {
				return err
			}
		}
		return nil
	})
	if err := errors.Join(err, s.Close()); err != nil {
		return 0, 0, err
	}
	if size, err = folderBytes(dir); err != nil {
		return 0, 0, err
	}
	begin := time.Now()
	if s, err = diskStore(ctx, dir); err != nil {
		return 0, 0, err
	}
	took = time.Since(begin)
	stats, err := s.Stats(ctx)
	if n := stats.ByState[store.Queued]; err == nil && n != c.Jobs {
		err = fmt.Errorf("%d of %d jobs are there after opening", n, c.Jobs)
	}
	return took, size, errors.Join(err, s.Close())
}

func folderBytes(dir string) (int64, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	var size int64
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return 0, err
		}
		size += info.Size()
	}
	return size, nil
}

// syncedWrite answers the median of what a page costs that is written and synced, in ms: no store that keeps its word
// is faster with one caller.
func syncedWrite(ctx context.Context, path string) (took float64, err error) {
	f, err := os.OpenFile(filepath.Clean(path), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(path)) }()
	page := make([]byte, syncedBytes)
	times := make([]time.Duration, 0, syncedWrites)
	for range syncedWrites {
		begin := time.Now()
		_, err := f.WriteAt(page, 0)
		if err := errors.Join(err, f.Sync(), context.Cause(ctx)); err != nil {
			return 0, err
		}
		times = append(times, time.Since(begin))
	}
	return ms(percentile(times, 50)), nil
}
