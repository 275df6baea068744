package disk

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pushrelay/store"
	"pushrelay/store/memory"
	"pushrelay/wire"
)

// grouped lets one commit make all that calls change.
func (p *play) grouped(calls []func() error) {
	p.t.Helper()
	h := p.s.Hold()
	var all sync.WaitGroup
	all.Go(func() { _ = p.enqueue("before") })
	<-h.Reached
	for _, call := range calls {
		all.Go(func() {
			if err := call(); err != nil {
				p.t.Error(err)
			}
		})
	}
	for p.s.Waiting() < len(calls) {
	}
	h.Release()
	all.Wait()
	require.Equal(p.t, 2, h.Commits())
}

// resultOf is a text that no other job has.
func resultOf(i int) []byte { return bytes.Repeat([]byte{byte(i)}, inlineMost-i) }

// An entry whose weight is in its envelopes is settled in parts as well, each bounded, whatever happens to those envelopes
// between the parts, and also when the file is read again there.
func TestTextsAreSettledInParts(t *testing.T) {
	ctx := context.Background()
	const jobs = 40
	p := &play{t: t, now: time.Unix(1_900_000_000, 0), observer: strict{t}}
	p.begin(t.TempDir(), logEntries)
	grants := map[int]wire.Grant{}
	var calls []func() error
	for i := range jobs {
		g := p.sealed(fmt.Sprint("job", i), []byte("payload"))
		grants[i] = g
		calls = append(calls, func() error {
			_, err := p.s.Complete(ctx, playRunner, g, wire.Envelope{Raw: resultOf(i)}, wire.DispositionOK)
			return err
		})
	}
	p.grouped(calls)
	p.do(func(*memory.Machine) { p.s.limits.bytes = 0 })
	parts := 0
	large := func() (is bool) {
		p.do(func(*memory.Machine) {
			is = slices.ContainsFunc(p.s.tail.entries, func(e entry) bool { return e.bytes > 2*inlineMost })
		})
		return is
	}
	require.True(t, large())
	for i := 0; large(); i++ {
		require.Less(t, i, 1000)
		p.do(func(*memory.Machine) { p.s.settler.most = 1 })
		require.NoError(t, p.enqueue(fmt.Sprint("next", i)))
		moved := int64(0)
		p.do(func(*memory.Machine) {
			for _, e := range p.s.page.moved {
				moved += e.Bytes
			}
		})
		require.LessOrEqual(t, moved, int64(2*settleBytes))
		if moved == 0 {
			continue
		}
		parts++
		p.tailStands()
		if parts%4 == 0 { // the one that was moved last, and the one that is the next
			for _, at := range []int{parts - 1, parts} {
				if g, ok := grants[at]; ok {
					require.NoError(t, p.s.Collect(ctx, playSite, []wire.Grant{g}))
					delete(grants, at)
				}
			}
		}
		if parts%3 == 0 {
			held := p.holds()
			require.NoError(t, p.s.Close())
			require.Equal(t, held, whole(t, p.s.path, true))
			p.begin(p.dir(), logEntries)
			p.do(func(*memory.Machine) { p.s.limits.bytes = 0 })
			p.tailStands()
		}
		for at, g := range grants {
			env, err := p.s.ResultEnvelope(ctx, playSite, g)
			require.NoError(t, err)
			require.Equal(t, resultOf(at), env.Raw)
		}
	}
	require.Greater(t, parts, 8)
	require.NoError(t, p.s.Close())
	whole(t, p.s.path, true)
}

// On a disk without room for settling an idle store tries that now and then, and writes nothing in between.
func TestIdleWithoutRoomWritesNothing(t *testing.T) {
	p := newPlay(t)
	require.NoError(t, p.enqueue("job"))
	p.do(func(*memory.Machine) {
		p.s.fault = func(step) error {
			if p.s.page.tried {
				return ErrAway
			}
			return nil
		}
	})
	sweep := func() (commits uint64) {
		p.do(func(*memory.Machine) { p.s.tail.last = time.Now().Add(-2 * idleAfter) })
		_, err := p.s.Sweep(t.Context())
		require.NoError(t, err)
		require.NoError(t, p.s.Err())
		p.do(func(*memory.Machine) { commits = p.s.commits })
		return commits
	}
	tried := sweep()
	p.do(func(*memory.Machine) { p.s.settler.next = time.Now().Add(time.Hour) })
	for range 3 {
		require.Equal(t, tried, sweep())
	}
	p.do(func(*memory.Machine) { p.s.settler.next, p.s.fault = time.Time{}, nil })
	require.Equal(t, tried+1, sweep())
	require.Zero(t, p.entries())
}

// Envelopes are read all the time while each commit moves some and many commits fail, in all ways.
func TestReadingWhileAllIsMovedAndCommitsFail(t *testing.T) {
	ctx := context.Background()
	const jobs = 60
	p := &play{t: t, now: time.Unix(1_900_000_000, 0), observer: strict{t}}
	p.begin(t.TempDir(), 2)
	var mu sync.Mutex
	finished := map[int]wire.Grant{}
	some := func() map[int]wire.Grant {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(finished)
	}
	ended := make(chan struct{})
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			for last := false; !last; {
				select {
				case <-ended:
					last = true
				default:
				}
				for i, g := range some() {
					env, err := p.s.ResultEnvelope(ctx, playSite, g)
					for err == store.ErrUnavailable && last { // the file is uncertain at the most
						env, err = p.s.ResultEnvelope(ctx, playSite, g)
					}
					if err == nil && !bytes.Equal(env.Raw, resultOf(i)) || err != nil && err != store.ErrUnavailable {
						t.Errorf("result %d: %v", i, err)
					}
				}
			}
		})
	}
	again := func(f func() error) {
		t.Helper()
		for try := 0; ; try++ {
			p.do(func(*memory.Machine) { p.s.out.next, p.s.settler.next = time.Time{}, time.Time{} })
			err := f()
			if err == nil {
				return
			}
			require.ErrorIs(t, err, store.ErrUnavailable)
			require.Less(t, try, 50)
		}
	}
	rng := rand.New(rand.NewPCG(11, 11))
	p.do(func(*memory.Machine) {
		p.s.fault = func(step) error {
			if rng.IntN(6) == 0 {
				return ErrAway
			}
			return nil
		}
	})
	claim := store.Claim{
		Runner: playRunner, Owner: "owner", Device: "device", Dialect: wire.Dialect0, Kinds: []string{"k"},
		Routes: []store.Route{{Site: playSite, Owner: "owner"}}, Max: 64, Slots: 64, LeaseFor: time.Minute,
	}
	for i := range jobs {
		id := fmt.Sprint("job", i)
		again(func() error { return p.enqueue(id) })
		again(func() error { _, err := p.s.Claim(ctx, claim); return err })
		g := p.grant(id)
		again(func() error {
			_, err := p.s.Seal(ctx, playSite, g, wire.Envelope{RecipientKeyID: "device", Raw: []byte("payload")})
			return err
		})
		again(func() error {
			_, err := p.s.Complete(ctx, playRunner, g, wire.Envelope{Raw: resultOf(i)}, wire.DispositionOK)
			return err
		})
		mu.Lock()
		finished[i] = g
		mu.Unlock()
	}
	p.do(func(*memory.Machine) { p.s.fault, p.s.out.next = nil, time.Time{} })
	again(func() error { return p.enqueue("last") })
	close(ended)
	readers.Wait()
	p.tailStands()
	held := p.holds()
	require.NoError(t, p.s.Close())
	require.Equal(t, held, whole(t, p.s.path, true))
	require.Len(t, finished, jobs)
}

// Records that are gone weigh nothing, and are bounded in number where they are settled. None of them comes back when the file
// is read, whether the log says that it is gone or the bucket doesn't have it any more.
func TestRecordsThatAreGoneAreSettledInParts(t *testing.T) {
	const jobs = 3 * settleRecords
	p := &play{t: t, now: time.Unix(1_900_000_000, 0), observer: strict{t}}
	p.begin(t.TempDir(), logEntries)
	var stubs []wire.Stub
	for i := range jobs {
		s := wire.Stub{ID: fmt.Sprint("job", i), Kind: "k", Owner: "owner", DeadlineAt: p.now.Add(time.Hour).UnixMilli()}
		s.Raw = wire.AppendStub(nil, s)
		stubs = append(stubs, s)
	}
	_, err := p.s.Enqueue(t.Context(), playSite, wire.Dialect0, stubs)
	require.NoError(t, err)
	idle := func() {
		p.do(func(*memory.Machine) { p.s.tail.last = time.Now().Add(-2 * idleAfter) })
		_, err := p.s.Sweep(t.Context())
		require.NoError(t, err)
	}
	idle()
	require.Zero(t, p.entries())
	for range 2 {
		p.now = p.now.Add(100 * time.Hour)
		_, err := p.s.Sweep(t.Context())
		require.NoError(t, err)
	}
	sites, err := p.s.SiteStats(t.Context(), "")
	require.NoError(t, err)
	require.Empty(t, sites)
	again := func() {
		held := p.holds()
		require.NoError(t, p.s.Close())
		require.Equal(t, held, whole(t, p.s.path, true))
		rep, err := Inspect(t.Context(), p.dir())
		require.NoError(t, err)
		require.Empty(t, rep.Sites)
		p.begin(p.dir(), logEntries)
		p.tailStands()
	}
	again()
	parts := 0
	for p.entries() > 0 {
		require.Less(t, parts, 100)
		left := 0
		p.do(func(*memory.Machine) { left, p.s.settler.most = len(p.s.tail.loose), 1 })
		idle()
		p.do(func(*memory.Machine) { require.LessOrEqual(t, left-len(p.s.tail.loose), settleRecords) })
		if parts++; parts == 2 {
			again()
		}
	}
	again()
	require.Greater(t, parts, 3)
}
