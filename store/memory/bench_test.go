package memory

import (
	"context"
	"fmt"
	"testing"
	"time"

	"pushrelay/store"
	"pushrelay/wire"
)

// fleet is a store with jobs that wait at one queue.
func fleet(b *testing.B, queued int) *Store {
	b.Helper()
	s := New(Options{Settings: store.Settings{JobsPerSite: 1 << 30, UnsealedPerRoute: 1 << 30}})
	b.Cleanup(func() { _ = s.Close() })
	for i := range queued {
		enqueueOne(b, s, "busy", fmt.Sprint("q", i))
	}
	return s
}

func enqueueOne(b *testing.B, s *Store, site, id string) {
	stubs := [1]wire.Stub{{ID: id, Kind: "k", Owner: "o", Audience: "public", DeadlineAt: time.Now().Add(time.Hour).UnixMilli(), Raw: []byte("{}")}}
	if got, err := s.Enqueue(context.Background(), site, wire.Dialect0, stubs[:]); err != nil || got[0].Err != nil {
		b.Fatal(err, got)
	}
}

func ask(most int) store.Claim {
	return store.Claim{
		Runner: "r", Owner: "o", Device: "d", Dialect: wire.Dialect0, Routes: []store.Route{{Site: "busy", Owner: "o"}},
		Kinds: []string{"k"}, Max: most, Slots: 1 << 30, LeaseFor: time.Minute, OfferFor: 5 * time.Second,
	}
}

// life brings the oldest job of the queue to its end and a new one in: nine operations.
func life(b *testing.B, s *Store, id string) {
	ctx := context.Background()
	must := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	enqueueOne(b, s, "busy", id)
	got, err := s.Claim(ctx, ask(1))
	must(err)
	g := []wire.Grant{{JobID: got[0].Stub.ID, LeaseID: got[0].Lease}}
	_, err = s.Accept(ctx, "r", g)
	must(err)
	_, err = s.Offer(ctx, "busy", "s", store.OfferSeals, 64, 1<<24, 2*time.Second)
	must(err)
	_, err = s.Seal(ctx, "busy", g[0], wire.Envelope{RecipientKeyID: "d", Raw: make([]byte, 100)})
	must(err)
	_, err = s.TakePayload(ctx, "r", g[0])
	must(err)
	_, err = s.Complete(ctx, "r", g[0], wire.Envelope{Raw: make([]byte, 100)}, wire.DispositionOK)
	must(err)
	_, err = s.Offer(ctx, "busy", "s", store.OfferResults, 64, 1<<24, 2*time.Second)
	must(err)
	must(s.Collect(ctx, "busy", g))
}

const lifeOps = 9

func BenchmarkLife(b *testing.B) {
	for _, queued := range []int{0, 1_000, 100_000} {
		for _, watched := range []bool{false, true} {
			b.Run(fmt.Sprintf("queued=%d/watched=%t", queued, watched), func(b *testing.B) {
				s := fleet(b, queued)
				if watched {
					w := s.Watch(store.Interest{})
					go func() {
						for {
							if _, err := w.Wait(context.Background()); err != nil {
								return
							}
						}
					}()
				}
				b.ReportAllocs()
				n := 0
				for b.Loop() {
					n++
					life(b, s, fmt.Sprint("j", n))
				}
				b.ReportMetric(float64(n*lifeOps)/b.Elapsed().Seconds(), "ops/s")
			})
		}
	}
}

// BenchmarkClaim grants one job of many and gives it back, so that the queue stays as long as it is.
func BenchmarkClaim(b *testing.B) {
	for _, queued := range []int{1_000, 100_000} {
		b.Run(fmt.Sprintf("queued=%d", queued), func(b *testing.B) {
			s := fleet(b, queued)
			b.ReportAllocs()
			for b.Loop() {
				got, err := s.Claim(context.Background(), ask(1))
				if err != nil || len(got) != 1 {
					b.Fatal(got, err)
				}
				g := []wire.Grant{{JobID: got[0].Stub.ID, LeaseID: got[0].Lease}}
				if _, err := s.Release(context.Background(), "r", g, wire.ReleaseShutdown, 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkClaimOverRoutes claims with a thousand routes that have work.
func BenchmarkClaimOverRoutes(b *testing.B) {
	s := fleet(b, 0)
	c := ask(1)
	c.Routes = nil
	for i := range 1_000 {
		site := fmt.Sprint("site", i)
		c.Routes = append(c.Routes, store.Route{Site: site, Owner: "o"})
		enqueueOne(b, s, site, "a")
		enqueueOne(b, s, site, "b")
	}
	b.ReportAllocs()
	for b.Loop() {
		got, err := s.Claim(context.Background(), c)
		if err != nil || len(got) != 1 {
			b.Fatal(got, err)
		}
		g := []wire.Grant{{JobID: got[0].Stub.ID, LeaseID: got[0].Lease}}
		if _, err := s.Release(context.Background(), "r", g, wire.ReleaseShutdown, 0); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRead is the plainest operation: what the lock and the clock cost.
func BenchmarkRead(b *testing.B) {
	s := fleet(b, 100_000)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := s.Job(context.Background(), "busy", "q77"); err != nil {
				b.Error(err)
			}
		}
	})
}

// BenchmarkLapses fires 10,000 leases that are over, 256 a call.
func BenchmarkLapses(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		now := time.Unix(1_900_000_000, 0)
		m := NewMachine(store.Settings{UnsealedPerRoute: 1 << 30}, now)
		for i := range 10_000 {
			m.Enqueue("busy", wire.Dialect0, []wire.Stub{{
				ID: fmt.Sprint(i), Kind: "k", Owner: "o", DeadlineAt: now.Add(time.Hour).UnixMilli(),
			}})
		}
		c := ask(10_000)
		if _, err := m.Claim(&c); err != nil {
			b.Fatal(err)
		}
		m.Begin(now.Add(5 * time.Second))
		b.StartTimer()
		for m.Sweep().Next == 0 {
			m.Begin(now.Add(5 * time.Second))
		}
	}
}
