package disk_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pushrelay/store"
	"pushrelay/store/disk"
	"pushrelay/wire"
)

// lifeOps is how many operations a life has here.
const lifeOps = 9

// stubText is about as long as stubs are.
const stubText = `{"id":%q,"kind":"llm.chat","owner":"owner-1","site":"BYOLLM-AAAA-BBBB-CCCC-DDDD-EEEE-FFFF","audience":"public",` +
	`"sizeClass":"small","streaming":false,"deadlineAt":%d}`

func benchStub(id string, now time.Time) wire.Stub {
	at := now.Add(time.Minute).UnixMilli()
	return wire.Stub{
		ID: id, Kind: "llm.chat", Owner: "owner-1", Site: "BYOLLM-AAAA-BBBB-CCCC-DDDD-EEEE-FFFF", Audience: "public", SizeClass: "small",
		DeadlineAt: at, Raw: fmt.Appendf(nil, stubText, id, at),
	}
}

func benchClaim(runner string, most int) store.Claim {
	return store.Claim{
		Runner: runner, Owner: "owner-1", Device: "BYOLLM-1111-2222-3333-4444-5555-6666", Dialect: wire.Dialect0,
		Identity: wire.PublicIdentity{
			Identity:      "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
			Encryption:    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
			EncryptionSig: "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
		},
		Routes: []store.Route{{Site: "busy", Owner: "owner-1"}}, Kinds: []string{"llm.chat"}, Max: most, Slots: 1 << 30,
		LeaseFor: time.Minute, OfferFor: 5 * time.Second,
	}
}

// live brings a new job in and the oldest that waits to its end.
func live(ctx context.Context, st store.RoutingStore, worker, id string, now time.Time, size int) error {
	got, err := st.Enqueue(ctx, "busy", wire.Dialect0, []wire.Stub{benchStub(id, now)})
	if err != nil || got[0].Err != nil {
		return fmt.Errorf("enqueue: %v, %w", got, err)
	}
	claimed, err := st.Claim(ctx, benchClaim(worker, 1))
	if err != nil || len(claimed) != 1 {
		return fmt.Errorf("claim: %v, %w", claimed, err)
	}
	g := wire.Grant{JobID: claimed[0].Stub.ID, LeaseID: claimed[0].Lease}
	if lost, err := st.Accept(ctx, worker, []wire.Grant{g}); err != nil || len(lost) > 0 {
		return fmt.Errorf("accept: %v, %w", lost, err)
	}
	if _, err := st.Offer(ctx, "busy", worker, store.OfferSeals, 64, 1<<24, 2*time.Second); err != nil {
		return err
	}
	payload := wire.Envelope{
		RecipientKeyID: "BYOLLM-1111-2222-3333-4444-5555-6666", SenderKeyID: "BYOLLM-AAAA-BBBB-CCCC-DDDD-EEEE-FFFF",
		Direction: wire.DirectionPayload, DeadlineAt: now.Add(time.Minute).UnixMilli(), Raw: make([]byte, size),
	}
	if _, err := st.Seal(ctx, "busy", g, payload); err != nil {
		return fmt.Errorf("seal: %w", err)
	}
	if env, err := st.TakePayload(ctx, worker, g); err != nil || len(env.Raw) != size {
		return fmt.Errorf("take: %d bytes, %w", len(env.Raw), err)
	}
	result := payload
	result.RecipientKeyID, result.SenderKeyID, result.Direction = payload.SenderKeyID, payload.RecipientKeyID, wire.DirectionResult
	if _, err := st.Complete(ctx, worker, g, result, wire.DispositionOK); err != nil {
		return fmt.Errorf("complete: %w", err)
	}
	if _, err := st.Offer(ctx, "busy", worker, store.OfferResults, 64, 1<<24, 2*time.Second); err != nil {
		return err
	}
	if env, err := st.ResultEnvelope(ctx, "busy", g); err != nil || len(env.Raw) != size {
		return fmt.Errorf("result: %d bytes, %w", len(env.Raw), err)
	}
	return st.Collect(ctx, "busy", []wire.Grant{g})
}

func benchSettings() store.Settings {
	return store.Settings{JobsPerSite: 1 << 30, UnsealedPerRoute: 1 << 30, BytesPerSite: 1 << 50}
}

func BenchmarkLife(b *testing.B) {
	for _, queued := range []int{0, 100_000} {
		for _, callers := range []int{1, 64} {
			b.Run(fmt.Sprintf("queued=%d/callers=%d", queued, callers), func(b *testing.B) {
				st, err := disk.Open(context.Background(), disk.Options{Dir: b.TempDir(), Settings: benchSettings()})
				require.NoError(b, err)
				b.Cleanup(func() { _ = st.Close() })
				fill(b, st, queued)
				var n atomic.Int64
				b.ResetTimer()
				b.ReportAllocs()
				cpu := cpuTime(b)
				var wg sync.WaitGroup
				for w := range callers {
					wg.Go(func() {
						for i := n.Add(1); i <= int64(b.N); i = n.Add(1) {
							if err := live(context.Background(), st, "runner-"+strconv.Itoa(w), "j"+strconv.FormatInt(i, 10), time.Now(), 700); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				b.ReportMetric(float64(b.N*lifeOps)/b.Elapsed().Seconds(), "ops/s")
				b.ReportMetric(float64((cpuTime(b)-cpu).Microseconds())/float64(b.N), "cpu-us/op")
			})
		}
	}
}

// cpuTime is what this process had of the processors so far: it tells more than the clock does where others work, too.
func cpuTime(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	require.NoError(tb, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// fill enqueues jobs that wait.
func fill(tb testing.TB, st store.RoutingStore, n int) {
	tb.Helper()
	now := time.Now().Add(time.Hour)
	for from := 0; from < n; from += wire.MaxList {
		var stubs []wire.Stub
		for i := range min(wire.MaxList, n-from) {
			stubs = append(stubs, benchStub("q"+strconv.Itoa(from+i), now))
		}
		_, err := st.Enqueue(context.Background(), "busy", wire.Dialect0, stubs)
		require.NoError(tb, err)
	}
}

// BenchmarkEnqueue is the plainest change: what one commit costs, alone and shared.
func BenchmarkEnqueue(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			st, err := disk.Open(context.Background(), disk.Options{Dir: b.TempDir(), Settings: benchSettings()})
			require.NoError(b, err)
			b.Cleanup(func() { _ = st.Close() })
			var n atomic.Int64
			b.ResetTimer()
			var wg sync.WaitGroup
			for range callers {
				wg.Go(func() {
					for i := n.Add(1); i <= int64(b.N); i = n.Add(1) {
						stubs := []wire.Stub{benchStub("j"+strconv.FormatInt(i, 10), time.Now())}
						if _, err := st.Enqueue(context.Background(), "busy", wire.Dialect0, stubs); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
		})
	}
}

// BenchmarkOpen opens a store with jobs that wait.
func BenchmarkOpen(b *testing.B) {
	for _, jobs := range []int{10_000, 100_000} {
		b.Run(fmt.Sprintf("jobs=%d", jobs), func(b *testing.B) {
			o := disk.Options{Dir: b.TempDir(), Settings: benchSettings()}
			st, err := disk.Open(context.Background(), o)
			require.NoError(b, err)
			fill(b, st, jobs)
			require.NoError(b, st.Close())
			for b.Loop() {
				st, err := disk.Open(context.Background(), o)
				require.NoError(b, err)
				b.StopTimer()
				require.NoError(b, st.Close())
				b.StartTimer()
			}
		})
	}
}
