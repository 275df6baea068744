package disk_test

import (
	"bytes"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pushrelay/store"
	"pushrelay/store/disk"
	"pushrelay/store/storetest"
	"pushrelay/wire"
)

// holding is a store with jobs that one runner holds.
func holding(t *testing.T, clock *storetest.Clock, jobs ...string) (*kept, []wire.Grant) {
	t.Helper()
	s := open(t, t.TempDir(), store.Settings{}, clock)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	var stubs []wire.Stub
	for _, id := range jobs {
		stubs = append(stubs, wire.Stub{ID: id, Kind: "k", Owner: "o", DeadlineAt: clock.Now().Add(time.Hour).UnixMilli(), Raw: []byte("{}")})
	}
	_, err := s.Enqueue(t.Context(), "site", wire.Dialect0, stubs)
	require.NoError(t, err)
	got, err := s.Claim(t.Context(), store.Claim{
		Runner: "r", Owner: "o", Device: "d", Dialect: wire.Dialect0, Routes: []store.Route{{Site: "site", Owner: "o"}},
		Kinds: []string{"k"}, Max: len(jobs), Slots: len(jobs), LeaseFor: time.Minute,
	})
	require.NoError(t, err)
	require.Len(t, got, len(jobs))
	grants := make([]wire.Grant, len(got))
	for i, g := range got {
		grants[i] = wire.Grant{JobID: g.Stub.ID, LeaseID: g.Lease}
	}
	return s, grants
}

func envelope(bytesLong int) wire.Envelope {
	return wire.Envelope{RecipientKeyID: "d", Raw: bytes.Repeat([]byte("x"), bytesLong)}
}

// On a disk that is nearly full large envelopes are refused for minutes, while leases are renewed and small ones kept.
func TestWhatIsSmallGoesOnWhenADiskIsNearlyFull(t *testing.T) {
	clock := storetest.NewClock()
	s, g := holding(t, clock, "large", "small", "renewed")
	require.NoError(t, s.FailLarge(true))
	for minute := range 5 {
		_, err := s.Seal(t.Context(), "site", g[0], envelope(100_000))
		require.ErrorIs(t, err, store.ErrUnavailable)
		lost, err := s.Renew(t.Context(), "r", g, time.Minute)
		require.NoError(t, err)
		require.Empty(t, lost)
		_, err = s.Seal(t.Context(), "site", g[1], envelope(200))
		require.NoError(t, err)
		require.ErrorIs(t, s.Err(), disk.ErrAway, "minute %d: what is small says nothing of the disk", minute)
		clock.Advance(store.SweeperAway)
	}
	require.NoError(t, s.FailLarge(false))
	_, err := s.Seal(t.Context(), "site", g[0], envelope(100_000))
	require.NoError(t, err)
	require.NoError(t, s.Err())
}

// When nobody has anything large any more, what is small ends the outage.
func TestAnOutageOfLargeEnvelopesEndsInQuiet(t *testing.T) {
	clock := storetest.NewClock()
	s, g := holding(t, clock, "large")
	require.NoError(t, s.FailLarge(true))
	_, err := s.Seal(t.Context(), "site", g[0], envelope(100_000))
	require.ErrorIs(t, err, store.ErrUnavailable)
	_, err = s.Sweep(t.Context())
	require.NoError(t, err)
	require.Error(t, s.Err())
	clock.Advance(store.SweeperAway + time.Second)
	_, err = s.Sweep(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.Err())
}

// Large envelopes are answered, and in the end kept, however much of what is small keeps coming.
func TestLargeEnvelopesArentStarved(t *testing.T) {
	clock := storetest.NewClock()
	s, g := holding(t, clock, "one", "two", "three", "four")
	require.NoError(t, s.FailLarge(true))
	stop := make(chan struct{})
	var busy sync.WaitGroup
	for range 8 {
		busy.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := s.Renew(t.Context(), "r", g, time.Minute); err != nil && !errors.Is(err, store.ErrUnavailable) {
					t.Error(err)
				}
			}
		})
	}
	defer busy.Wait()
	defer close(stop)
	for range 50 {
		for _, err := range sealAll(t, s, g) {
			require.ErrorIs(t, err, store.ErrUnavailable)
		}
	}
	require.NoError(t, s.FailLarge(false))
	for left := time.Now().Add(time.Minute); ; require.True(t, time.Now().Before(left), "they are never kept") {
		if err := errors.Join(sealAll(t, s, g)...); err == nil {
			break
		}
	}
	require.NoError(t, s.Err())
}

// sealAll seals for all grants at once.
func sealAll(t *testing.T, s *kept, grants []wire.Grant) []error {
	errs := make([]error, len(grants))
	var all sync.WaitGroup
	for i, g := range grants {
		all.Go(func() { _, errs[i] = s.Seal(t.Context(), "site", g, envelope(50_000)) })
	}
	all.Wait()
	return errs
}
