package hub

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"pushrelay/store"
	"pushrelay/wire"
)

// fullStore answers reads and takes no writes while it is full, as a store whose disk has no room left.
type fullStore struct {
	store.RoutingStore
	full   atomic.Bool
	writes atomic.Int64 // that were refused
}

var errFull = errors.New("no space left")

func (f *fullStore) Err() error {
	if f.full.Load() {
		return errFull
	}
	return nil
}

func refuseWhenFull[T any](f *fullStore, write func() (T, error)) (T, error) {
	if f.full.Load() {
		f.writes.Add(1)
		var none T
		return none, store.ErrUnavailable
	}
	return write()
}

func (f *fullStore) Enqueue(ctx context.Context, site string, d wire.Dialect, stubs []wire.Stub) ([]store.Enqueued, error) {
	return refuseWhenFull(f, func() ([]store.Enqueued, error) { return f.RoutingStore.Enqueue(ctx, site, d, stubs) })
}

func (f *fullStore) Claim(ctx context.Context, c store.Claim) ([]store.Claimed, error) {
	return refuseWhenFull(f, func() ([]store.Claimed, error) { return f.RoutingStore.Claim(ctx, c) })
}

func (f *fullStore) Accept(ctx context.Context, runner string, g []wire.Grant) ([]wire.Grant, error) {
	return refuseWhenFull(f, func() ([]wire.Grant, error) { return f.RoutingStore.Accept(ctx, runner, g) })
}

func (f *fullStore) TakePayload(ctx context.Context, runner string, g wire.Grant) (wire.Envelope, error) {
	return refuseWhenFull(f, func() (wire.Envelope, error) { return f.RoutingStore.TakePayload(ctx, runner, g) })
}

func (f *fullStore) Complete(
	ctx context.Context, runner string, g wire.Grant, env wire.Envelope, disposition string,
) (store.Completion, error) {
	return refuseWhenFull(f, func() (store.Completion, error) { return f.RoutingStore.Complete(ctx, runner, g, env, disposition) })
}

func (f *fullStore) Renew(ctx context.Context, runner string, g []wire.Grant, d time.Duration) ([]wire.Grant, error) {
	return refuseWhenFull(f, func() ([]wire.Grant, error) { return f.RoutingStore.Renew(ctx, runner, g, d) })
}

func (f *fullStore) Seal(ctx context.Context, site string, g wire.Grant, env wire.Envelope) (store.State, error) {
	return refuseWhenFull(f, func() (store.State, error) { return f.RoutingStore.Seal(ctx, site, g, env) })
}

func (f *fullStore) Offer(
	ctx context.Context, site, session string, what store.OfferKind, most int, bytes int64, span time.Duration,
) ([]store.Offered, error) {
	return refuseWhenFull(f, func() ([]store.Offered, error) {
		return f.RoutingStore.Offer(ctx, site, session, what, most, bytes, span)
	})
}

func (f *fullStore) Sweep(ctx context.Context) (store.Swept, error) {
	return refuseWhenFull(f, func() (store.Swept, error) { return f.RoutingStore.Sweep(ctx) })
}

// logLines collects what is logged.
type logLines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logLines) count(words string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), words)
}

// A disk that is full for minutes: sessions stay, clients are asked to come again less and less often, nobody works in
// vain without a pause, and the log has a line for its beginning and one for its end.
func TestMinutesWithoutWrites(t *testing.T) {
	var full *fullStore
	logged := &logLines{}
	inWorldOf(t, Settings{}, zerolog.New(logged), func(s store.RoutingStore) store.RoutingStore {
		full = &fullStore{RoutingStore: s}
		return full
	}, func(w *world) {
		site, d := w.site("shop"), w.daemon("d1", nil)
		site.enqueue("runs", "awaits", "waits")
		grants := d.claimed()
		d.accept(grants...)
		for _, j := range site.sealRequests() {
			if j.JobID == "runs" {
				require.Nil(t, site.seal(grantOf(j), "d1").err)
			}
		}
		payloads := take[wire.Payload](d, wire.TypePayload)
		require.Len(t, payloads, 1)
		running := wire.Grant{JobID: payloads[0].JobID, LeaseID: payloads[0].LeaseID}

		full.full.Store(true)
		const minutes = 5
		longest := 0
		for second := range minutes * 60 {
			w.advance(time.Second)
			if second%20 != 0 {
				continue
			}
			r := d.ask(wire.TypeHeartbeat, wire.Heartbeat{ActiveLeases: []wire.Grant{running}})
			require.Equal(t, wire.CodeServerError, r.err.Code)
			done := d.complete(running)
			require.Equal(t, wire.CodeServerError, done.err.Code)
			require.LessOrEqual(t, done.err.RetryAfter, maxRetryAfter)
			if second < 20 {
				require.Equal(t, 1, done.err.RetryAfter, "an outage that just began may be over at once")
			}
			longest = max(longest, done.err.RetryAfter)
		}
		require.Greater(t, longest, 2, "a long outage spreads its clients")
		require.Empty(t, d.reason())
		require.Empty(t, site.reason())
		require.Less(t, full.writes.Load(), int64(minutes*60*4), "nothing is tried all the time")
		require.Equal(t, 1, logged.count("the store fails"))
		require.Equal(t, 1, logged.count(errFull.Error()))
		require.Zero(t, logged.count("works again"))

		full.full.Store(false)
		require.Nil(t, d.complete(running).err)
		w.advance(time.Second) // what ended meanwhile ends now
		site.sealRequests()    // some of these are for grants that have
		require.ElementsMatch(t, []string{"runs", "awaits", "waits"}, w.liveFor(30*time.Second, site, d))
		require.Equal(t, 1, logged.count("the store fails"))
		require.Equal(t, 1, logged.count(`"event":"store-failing"`))
		require.Equal(t, 1, logged.count(`"event":"store-working"`))
		require.Regexp(t, `"after":"\d+m[\d.]+s","message":"the store works again"`, logged.text.String())
	})
}
