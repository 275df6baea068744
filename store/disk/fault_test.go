package disk_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pushrelay/store"
	"pushrelay/store/disk"
	"pushrelay/store/storetest"
	"pushrelay/wire"
)

// heard is an Observer that remembers.
type heard struct {
	mu         sync.Mutex
	failed     []error
	recovered  int
	unreadable []string
}

func (h *heard) Failed(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failed = append(h.failed, err)
}

func (h *heard) Recovered(time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.recovered++
}

func (h *heard) Unreadable(seq uint64, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unreadable = append(h.unreadable, fmt.Sprint(seq, " ", err))
}

// begin opens a store in a folder of the test's own.
func begin(t testing.TB, o disk.Options) *disk.Store {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	st, err := disk.Open(context.Background(), o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = st.Close() })
	return st
}

func enqueue(t testing.TB, st store.RoutingStore, ids ...string) error {
	t.Helper()
	var stubs []wire.Stub
	for _, id := range ids {
		stubs = append(stubs, benchStub(id, time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)))
	}
	got, err := st.Enqueue(context.Background(), "busy", wire.Dialect0, stubs)
	for _, e := range got {
		err = errors.Join(err, e.Err)
	}
	return err
}

// running brings a new job so far that its device has the payload.
func running(t testing.TB, st store.RoutingStore, id string, payload []byte) wire.Grant {
	t.Helper()
	require.NoError(t, enqueue(t, st, id))
	got, err := st.Claim(context.Background(), benchClaim("r", 1))
	require.NoError(t, err)
	require.Len(t, got, 1)
	g := wire.Grant{JobID: id, LeaseID: got[0].Lease}
	_, err = st.Accept(context.Background(), "r", []wire.Grant{g})
	require.NoError(t, err)
	_, err = st.Seal(context.Background(), "busy", g, wire.Envelope{RecipientKeyID: benchClaim("r", 1).Device, Raw: payload})
	require.NoError(t, err)
	env, err := st.TakePayload(context.Background(), "r", g)
	require.NoError(t, err)
	require.Equal(t, payload, env.Raw)
	return g
}

// A commit that was told as failed though all was written: what the file holds is the truth, and everybody is told.
func TestNobodyKnowsWhetherACommitHappened(t *testing.T) {
	var ear heard
	st := begin(t, disk.Options{Observer: &ear})
	ctx := t.Context()
	g := running(t, st, "before", []byte("payload"))
	number, err := st.Attach(ctx, store.Party{Role: store.RunnerRole, ID: "r"}, "session", time.Hour)
	require.NoError(t, err)
	require.NoError(t, st.Seen(ctx, store.Sighting{Runner: "r"}))
	w := st.Watch(store.Interest{Sites: []string{"another"}})
	defer w.Close()

	require.NoError(t, st.FailAt(disk.AfterCommit))
	require.ErrorIs(t, enqueue(t, st, "j"), store.ErrUnavailable)
	require.ErrorIs(t, st.Err(), disk.ErrAway)
	_, err = st.Job(ctx, "busy", "j")
	require.ErrorIs(t, err, store.ErrNotFound, "what may not be in the file isn't seen")
	require.ErrorIs(t, enqueue(t, st, "k"), store.ErrUnavailable)

	require.NoError(t, st.FailAt(0))
	require.NoError(t, enqueue(t, st, "l"))
	require.NoError(t, st.Err())
	_, err = st.Job(ctx, "busy", "j")
	require.NoError(t, err, "the file has it")
	_, err = st.Job(ctx, "busy", "k")
	require.ErrorIs(t, err, store.ErrNotFound)
	events, err := w.Wait(ctx)
	require.NoError(t, err)
	require.Equal(t, store.EventResync, events[0].Type)

	c := benchClaim("r", 9)
	c.Number = number
	claimed, err := st.Claim(ctx, c)
	require.NoError(t, err, "who was there still is")
	require.Len(t, claimed, 2)
	seen, err := st.Everyone(ctx)
	require.NoError(t, err)
	require.Len(t, seen, 1)
	env, err := st.TakePayload(ctx, "r", g)
	require.NoError(t, err)
	require.Equal(t, "payload", string(env.Raw))
	require.Len(t, ear.failed, 1)
	require.Equal(t, 1, ear.recovered)
}

// Whoever waits while others are committed may leave; whoever's operation ran stays for the outcome.
func TestLeavingBeforeAndAfter(t *testing.T) {
	st := begin(t, disk.Options{})
	h := st.Hold()
	ran := make(chan error, 1)
	running, leaveRunning := context.WithCancel(t.Context())
	go func() {
		_, err := st.Enqueue(running, "busy", wire.Dialect0, []wire.Stub{benchStub("ran", time.Now().Add(time.Hour))})
		ran <- err
	}()
	<-h.Reached
	leaveRunning()
	waiting, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := st.Enqueue(waiting, "busy", wire.Dialect0, []wire.Stub{benchStub("left", time.Now().Add(time.Hour))})
		left <- err
	}()
	for st.Waiting() == 0 { // until it is in the line
		select {
		case err := <-left:
			t.Fatal(err)
		default:
		}
	}
	leave()
	require.ErrorIs(t, <-left, context.Canceled)
	select {
	case err := <-ran:
		t.Fatal("answered before it was committed", err)
	default:
	}
	h.Release()
	require.NoError(t, <-ran)
	_, err := st.Job(t.Context(), "busy", "ran")
	require.NoError(t, err)
	_, err = st.Job(t.Context(), "busy", "left")
	require.ErrorIs(t, err, store.ErrNotFound)
}

// What isn't committed is seen by nobody, and those who wait meanwhile share the next commit.
func TestUncommittedIsUnseenAndCommitsAreShared(t *testing.T) {
	const callers = 100
	st := begin(t, disk.Options{})
	w := st.Watch(store.Interest{})
	defer w.Close()
	h := st.Hold()
	var wg sync.WaitGroup
	wg.Go(func() { _ = enqueue(t, st, "first") })
	<-h.Reached
	for i := range callers {
		wg.Go(func() { _ = enqueue(t, st, fmt.Sprint("j", i)) })
	}
	read := make(chan error, 1)
	wg.Go(func() {
		_, err := st.Job(t.Context(), "busy", "first")
		read <- err
	})
	for st.Waiting() < callers+1 {
		select {
		case err := <-read:
			t.Fatal("a read was answered while the commit was under way", err)
		default:
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := w.Wait(ended)
	require.ErrorIs(t, err, context.Canceled, "an event was told before its commit")
	h.Release()
	require.NoError(t, <-read)
	wg.Wait()
	require.LessOrEqual(t, h.Commits(), 4)
	page, err := st.Jobs(t.Context(), "busy", 0, 1000)
	require.NoError(t, err)
	require.Len(t, page.Jobs, callers+1)
}

// A group is bounded in bytes too: large envelopes of many callers don't make one giant transaction.
func TestGroupsAreBoundedInBytes(t *testing.T) {
	const envelopes, size = 24, 6 << 20
	st := begin(t, disk.Options{Settings: benchSettings()})
	var grants []wire.Grant
	for i := range envelopes {
		grants = append(grants, running(t, st, fmt.Sprint("j", i), []byte("p")))
	}
	h := st.Hold()
	var wg sync.WaitGroup
	wg.Go(func() { _ = enqueue(t, st, "first") })
	<-h.Reached
	text := []byte(strings.Repeat("r", size))
	for _, g := range grants {
		wg.Go(func() {
			_, err := st.Complete(context.Background(), "r", g, wire.Envelope{Raw: text}, wire.DispositionOK)
			if err != nil {
				t.Error(err)
			}
		})
	}
	for st.Waiting() < envelopes {
	}
	h.Release()
	wg.Wait()
	require.GreaterOrEqual(t, h.Commits(), envelopes*size/(32<<20))
	for _, g := range grants {
		env, err := st.ResultEnvelope(t.Context(), "busy", g)
		require.NoError(t, err)
		require.Equal(t, len(text), len(env.Raw))
	}
}

// The model once more, with a medium that fails at random while the store is used by many at once.
func TestAnswersHoldWhileTheMediumComesAndGoes(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	dir := t.TempDir()
	st := begin(t, disk.Options{Dir: dir, Clock: clock.Now, Settings: benchSettings()})
	stop := make(chan struct{})
	var flicker sync.WaitGroup
	flicker.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				_ = st.FailAt(0)
				return
			default:
			}
			_ = st.FailAt(disk.BeforeCommit)
			_, _ = st.Stats(context.Background())
			_ = st.FailAt(0)
			for range i % 7 {
				_, _ = st.Stats(context.Background())
			}
		}
	})
	done := make([][]wire.Grant, 8)
	var wg sync.WaitGroup
	for w := range done {
		wg.Go(func() {
			for i := range 40 {
				if g, ok := stubborn(st, fmt.Sprint("runner-", w), fmt.Sprint("j-", w, "-", i), clock.Now()); ok {
					done[w] = append(done[w], g)
				}
			}
		})
	}
	wg.Wait()
	close(stop)
	flicker.Wait()
	total := 0
	check := func(st *disk.Store) {
		for w := range done {
			for _, g := range done[w] {
				env, err := st.ResultEnvelope(t.Context(), "busy", g)
				require.NoError(t, err)
				require.Equal(t, "result of "+g.JobID, string(env.Raw))
				total++
			}
		}
	}
	check(st)
	require.NoError(t, st.Close())
	check(begin(t, disk.Options{Dir: dir, Clock: clock.Now, Settings: benchSettings()}))
	require.Equal(t, 2*8*40, total)
}

// stubborn brings a job to its result and repeats each call until it isn't refused for the medium.
func stubborn(st *disk.Store, runner, id string, now time.Time) (g wire.Grant, ok bool) {
	ctx := context.Background()
	again := func(call func() error) {
		for errors.Is(call(), store.ErrUnavailable) {
		}
	}
	again(func() error {
		_, err := st.Enqueue(ctx, "busy", wire.Dialect0, []wire.Stub{benchStub(id, now)})
		return err
	})
	for g.LeaseID == "" {
		again(func() error {
			got, err := st.Claim(ctx, benchClaim(runner, 1))
			if err == nil && len(got) == 1 {
				g = wire.Grant{JobID: got[0].Stub.ID, LeaseID: got[0].Lease}
			}
			return err
		})
	}
	again(func() error { _, err := st.Accept(ctx, runner, []wire.Grant{g}); return err })
	again(func() error {
		_, err := st.Seal(ctx, "busy", g, wire.Envelope{RecipientKeyID: benchClaim(runner, 1).Device, Raw: []byte("payload")})
		return err
	})
	again(func() error { _, err := st.TakePayload(ctx, runner, g); return err })
	again(func() error {
		c, err := st.Complete(ctx, runner, g, wire.Envelope{Raw: []byte("result of " + g.JobID)}, wire.DispositionOK)
		ok = err == nil && c.Accepted
		return err
	})
	return g, ok
}
