package disk

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"pushrelay/store"
	"pushrelay/store/memory"
	"pushrelay/wire"
)

// do runs something on the committer's goroutine, or where its state is as between two commits.
func (p *play) do(f func(m *memory.Machine)) {
	p.t.Helper()
	_, err := read(context.Background(), p.s, func(m *memory.Machine) none { f(m); return none{} })
	require.NoError(p.t, err)
}

// tailStands verifies that what is known of the log is what the file says.
func (p *play) tailStands() {
	p.t.Helper()
	p.do(func(m *memory.Machine) {
		s := &Store{clock: p.s.clock, path: p.s.path, observer: strict{p.t}}
		l, err := s.load(p.s.db)
		require.NoError(p.t, err)
		is, was := &p.s.tail, &l.tail
		require.Equal(p.t, was.bytes, is.bytes)
		require.Len(p.t, is.entries, len(was.entries))
		for i := range is.entries {
			require.Equal(p.t, was.entries[i].commit, is.entries[i].commit)
			require.Equal(p.t, was.entries[i].bytes, is.entries[i].bytes)
			require.Equal(p.t, standing(&was.entries[i]), standing(&is.entries[i]))
			for _, seq := range is.entries[i].seqs {
				require.Contains(p.t, is.loose, seq)
			}
		}
		for seq, lo := range is.loose {
			kept := was.loose[seq]
			require.NotNil(p.t, kept, seq)
			require.Equal(p.t, kept.gone, lo.gone, seq)
			require.True(p.t, lo.based || !kept.based, "what the bucket has of %d would stay in it", seq)
			if !lo.gone {
				want, got := *kept.rec, *lo.rec
				want.Lapse, want.Window = got.Lapse, got.Window // whoever opens a file gives a grace
				require.Equal(p.t, appendRecord(nil, &want, 0), appendRecord(nil, &got, 0))
			}
		}
		for seq := range was.loose { // or it is as settled as it can be
			if is.loose[seq] == nil {
				require.True(p.t, was.loose[seq].based || was.loose[seq].gone, seq)
			}
		}
	})
}

// standing names the texts of an entry that are of use.
func standing(e *entry) map[string]memory.Sealed {
	of := map[string]memory.Sealed{}
	for _, text := range e.texts {
		if !text.Gone {
			of[fmt.Sprint(text.Seq, " ", text.kind)] = memory.Sealed{At: text.At, Off: text.Off, Bytes: text.Bytes, Sum: text.Sum}
		}
	}
	return of
}

// entries is how long the log is.
func (p *play) entries() (n int) {
	p.do(func(*memory.Machine) { n = len(p.s.tail.entries) })
	return n
}

// enqueue brings a job in.
func (p *play) enqueue(id string) error {
	s := wire.Stub{ID: id, Kind: "k", Owner: "owner", Site: "key", Audience: "self", DeadlineAt: p.now.Add(time.Hour).UnixMilli()}
	s.Raw = wire.AppendStub(nil, s)
	_, err := p.s.Enqueue(context.Background(), playSite, wire.Dialect0, []wire.Stub{s})
	return err
}

// A disk that has room for what groups change and none for settling: groups are committed without, until the log is full,
// and once there is room it becomes what it should be, some at a time.
func TestNoRoomForSettling(t *testing.T) {
	const entries = 2
	p := newPlayWith(t, entries)
	pl := newPlatter(t, p.s, 1)
	p.do(func(*memory.Machine) { pl.tight = true })
	full := 0
	for _, a := range p.acts() {
		held, seen := p.holds(), p.seen()
		err := a.ignored()
		n := p.entries()
		require.LessOrEqual(t, n, logExcess*(entries+1)+1)
		if err != nil {
			full++
			require.Equal(t, logExcess*(entries+1)+1, n, "%s is refused, and the log isn't full", a.name)
			require.Equal(t, held, p.holds())
			require.Equal(t, seen, p.seen())
			p.do(func(*memory.Machine) { p.s.out.next = time.Time{} })
		} else {
			require.NoError(t, p.s.Err())
		}
		p.tailStands()
	}
	require.Positive(t, full)
	p.do(func(*memory.Machine) { pl.tight, p.s.settler.next = false, time.Time{} })
	for i := 0; p.entries() > entries+1; i++ {
		require.Less(t, i, 20)
		before := p.entries()
		require.NoError(t, p.enqueue(fmt.Sprint("later", i)))
		require.LessOrEqual(t, before-p.entries(), 1<<i, "many at once need much room")
		p.tailStands()
	}
	require.NoError(t, p.s.Err())
	p.do(func(*memory.Machine) { require.Greater(t, p.s.settler.most, 1) })
}

// done brings a job to its result and answers its grant.
func (p *play) done(id string, result []byte) wire.Grant {
	p.t.Helper()
	ctx := context.Background()
	g := p.sealed(id, []byte("payload"))
	_, err := p.s.Complete(ctx, playRunner, g, wire.Envelope{Raw: result}, wire.DispositionOK)
	require.NoError(p.t, err)
	return g
}

// sealed brings a job so far that its payload can be taken.
func (p *play) sealed(id string, payload []byte) wire.Grant {
	p.t.Helper()
	ctx := context.Background()
	require.NoError(p.t, p.enqueue(id))
	_, err := p.s.Claim(ctx, store.Claim{
		Runner: playRunner, Owner: "owner", Device: "device", Dialect: wire.Dialect0, Kinds: []string{"k"},
		Routes: []store.Route{{Site: playSite, Owner: "owner"}}, Max: 64, Slots: 64, LeaseFor: time.Minute,
	})
	require.NoError(p.t, err)
	g := p.grant(id)
	_, err = p.s.Seal(ctx, playSite, g, wire.Envelope{RecipientKeyID: "device", Raw: payload})
	require.NoError(p.t, err)
	return g
}

// An envelope is read whenever it is asked for: before the commit that moves it out of the log, while that is made, when the
// file has it already and the store doesn't know, and after. A view from before sees it where it was.
func TestReadingWhatIsMoved(t *testing.T) {
	p := newPlayWith(t, 0)
	p.observer = strict{t}
	large := p.done("large", make([]byte, 1<<20)) // so that what follows has room: a file isn't made larger under a view
	require.NoError(t, p.s.Collect(t.Context(), playSite, []wire.Grant{large}))
	result := bytes.Repeat([]byte("r"), 3000)
	ask := func(g wire.Grant) {
		t.Helper()
		env, err := p.s.ResultEnvelope(t.Context(), playSite, g)
		require.NoError(t, err)
		require.Equal(t, result, env.Raw)
	}
	for _, at := range []step{beforeCommit, afterCommit} {
		g := p.done(fmt.Sprint("job", at), result)
		ask(g)
		var early text
		p.do(func(m *memory.Machine) {
			e, err := m.ResultEnvelope(playSite, g)
			require.NoError(t, err)
			require.NotZero(t, e.At, "it isn't in the log")
			early = text{Sealed: *e, from: e, kind: resultKind}
			require.NoError(t, p.s.lend(&early))
		})
		reached, free := make(chan struct{}), make(chan struct{})
		p.do(func(*memory.Machine) {
			p.s.fault = func(now step) error {
				if now == at {
					p.s.fault = nil
					close(reached)
					<-free
				}
				return nil
			}
		})
		var group sync.WaitGroup
		group.Go(func() {
			if err := p.enqueue(fmt.Sprint("next", at)); err != nil {
				t.Error(err)
			}
		})
		<-reached
		require.Positive(t, p.s.page.settled)
		ask(g)
		close(free)
		group.Wait()
		ask(g)
		p.do(func(m *memory.Machine) {
			e, err := m.ResultEnvelope(playSite, g)
			require.NoError(t, err)
			require.Zero(t, e.At, "it wasn't moved")
		})
		require.NoError(t, early.read())
		require.Equal(t, result, early.Raw)
	}
}

// A payload that is asked for and given back in one group isn't there any more. Whoever asked is told to try again, nobody
// that something is damaged.
func TestTakenAndGivenBackAtOnce(t *testing.T) {
	for name, size := range map[string]int{"in the log": 100, "in its bucket": 2 * inlineMost} {
		t.Run(name, func(t *testing.T) {
			p := &play{t: t, now: time.Unix(1_900_000_000, 0), observer: strict{t}}
			p.begin(t.TempDir(), logEntries)
			g := p.sealed("job", bytes.Repeat([]byte("p"), size))
			h := p.s.Hold()
			var all sync.WaitGroup
			all.Go(func() { _ = p.enqueue("first") })
			<-h.Reached
			var taking error
			all.Go(func() { _, taking = p.s.TakePayload(context.Background(), playRunner, g) })
			for p.s.Waiting() < 1 {
			}
			all.Go(func() {
				_, err := p.s.Release(context.Background(), playRunner, []wire.Grant{g}, wire.ReleaseShutdown, 0)
				if err != nil {
					t.Error(err)
				}
			})
			for p.s.Waiting() < 2 {
			}
			h.Release()
			all.Wait()
			require.ErrorIs(t, taking, store.ErrUnavailable)
			_, err := p.s.TakePayload(t.Context(), playRunner, g)
			require.ErrorIs(t, err, store.ErrNotFound)
		})
	}
}

// When nobody wants anything for a while the log is settled to its end, some at a time, and then nothing is written any more.
func TestSettlingWhenIdle(t *testing.T) {
	p := newPlay(t)
	for i := range 3 * settleEntries / 2 {
		require.NoError(t, p.enqueue(fmt.Sprint("job", i)))
	}
	held, before := p.holds(), p.entries()
	require.Equal(t, 3*settleEntries/2, before)
	idle := func() (commits uint64) {
		p.do(func(*memory.Machine) { p.s.tail.last = time.Now().Add(-2 * idleAfter) })
		_, err := p.s.Sweep(t.Context())
		require.NoError(t, err)
		p.do(func(*memory.Machine) { commits = p.s.commits })
		return commits
	}
	idle()
	require.Equal(t, settleEntries/2, p.entries())
	p.tailStands()
	last := idle()
	require.Zero(t, p.entries())
	require.Equal(t, held, p.holds())
	require.Equal(t, last, idle(), "there was nothing to write")
}

// What a commit settles is bounded, whatever is in the log, and what large ones bring doesn't gather there either.
func TestSettlingIsBounded(t *testing.T) {
	const most = 1 << 20
	p := newPlay(t)
	dir := filepath.Dir(p.s.path)
	for i := range 12 {
		var stubs []wire.Stub
		for n := range wire.MaxList {
			s := wire.Stub{ID: fmt.Sprint(i, "-", n), Kind: "k", Owner: "owner", DeadlineAt: p.now.Add(time.Hour).UnixMilli()}
			s.Raw = append(wire.AppendStub(nil, s), bytes.Repeat([]byte(" "), 10_000)...)
			stubs = append(stubs, s)
		}
		_, err := p.s.Enqueue(t.Context(), playSite, wire.Dialect0, stubs)
		require.NoError(t, err)
		p.do(func(*memory.Machine) {
			p.s.limits.bytes = most
			require.LessOrEqual(t, p.s.tail.bytes, int64(most+3*10_500*wire.MaxList))
		})
	}
	parts, small := 0, 0
	for i := 0; ; i++ {
		var bytes int64
		var loose, part, settled int
		p.do(func(*memory.Machine) { bytes, loose = p.s.tail.bytes, len(p.s.tail.loose) })
		if bytes <= most {
			break
		}
		require.NoError(t, p.enqueue(fmt.Sprint("small", i)))
		small++
		p.do(func(*memory.Machine) {
			loose, part, settled = loose-len(p.s.tail.loose), p.s.page.part, p.s.page.settled
		})
		require.LessOrEqual(t, loose, settleEntries*settleBytes/10_000+1, "each has 10,000 bytes")
		require.LessOrEqual(t, settled, settleEntries)
		if part > 0 {
			parts++
			p.tailStands()
		}
		if part > 0 && parts == 1 { // the file is read with half an entry settled
			require.NoError(t, p.s.Close())
			p.begin(dir, logEntries)
			p.do(func(*memory.Machine) { p.s.limits.bytes = most })
			p.tailStands()
		}
	}
	require.Greater(t, parts, 1)
	p.tailStands()
	sites, err := p.s.SiteStats(t.Context(), playSite)
	require.NoError(t, err)
	require.Equal(t, 12*wire.MaxList+small, sites[0].ByState[store.Queued])
}

// A log that isn't settled is no obstacle: it is looked into, made small, given another epoch and settled at the end, and holds
// the same all the while.
func TestALogThatIsNotSettled(t *testing.T) {
	p := newPlay(t)
	for _, a := range p.acts()[:30] {
		require.NoError(t, a.ignored(), a.name)
	}
	held, n := p.holds(), p.entries()
	require.Greater(t, n, 20)
	require.NoError(t, p.s.Close())
	dir := filepath.Dir(p.s.path)
	was, err := Inspect(t.Context(), dir)
	require.NoError(t, err)
	same := func() {
		t.Helper()
		is, err := Inspect(t.Context(), dir)
		require.NoError(t, err)
		is.Bytes, is.Free, is.Epoch, is.Commits, is.Written = was.Bytes, was.Free, was.Epoch, was.Commits, was.Written
		require.Equal(t, was, is)
		require.Equal(t, held, whole(t, p.s.path, true))
	}
	_, err = Compact(t.Context(), dir)
	require.NoError(t, err)
	same()
	_, err = Renew(t.Context(), dir)
	require.NoError(t, err)
	same()
	p.begin(dir, logEntries)
	require.Equal(t, n, p.entries())
	p.tailStands()
	require.NoError(t, p.s.Close())
	same()
	s, err := Open(t.Context(), Options{Dir: dir, Clock: func() time.Time { return p.now }})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	same()
	db, err := openFile(p.s.path, true)
	require.NoError(t, err)
	require.NoError(t, db.View(func(tx *bbolt.Tx) error {
		k, _ := tx.Bucket([]byte(logBucket)).Cursor().First()
		require.Nil(t, k, "Close left a log")
		return nil
	}))
	require.NoError(t, db.Close())
}

// A commit that takes long to fail isn't tried again as soon as one that fails at once: callers wait for it.
func TestRespiteAfterALongFailure(t *testing.T) {
	p := newPlay(t)
	for _, long := range []time.Duration{0, 120 * time.Millisecond} {
		p.do(func(*memory.Machine) {
			p.s.out.next = time.Time{}
			p.s.fault = func(step) error {
				<-time.After(long)
				return ErrAway
			}
		})
		require.ErrorIs(t, p.enqueue("job"), store.ErrUnavailable)
		p.do(func(*memory.Machine) {
			require.GreaterOrEqual(t, p.s.spent, long)
			require.WithinRange(t, p.s.out.next, p.s.failure.Add(max(retryAfter, respite*long)), p.s.failure.Add(max(retryAfter, respite*p.s.spent)+time.Second))
			p.s.fault = nil
		})
	}
}

// An envelope may be of one size in a job's first grant and of another in the next: the last one counts, whether it is in the
// log or in its bucket, and what the log has of the first isn't taken for it.
func TestAnEnvelopeOfAnotherSize(t *testing.T) {
	ctx := context.Background()
	for name, sizes := range map[string][]int{
		"small, then large": {100, 2 * inlineMost}, "large, then small": {2 * inlineMost, 100}, "small, then small": {100, 300},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlay(t)
			dir := filepath.Dir(p.s.path)
			g := p.sealed("job", bytes.Repeat([]byte("1"), sizes[0]))
			_, err := p.s.Release(ctx, playRunner, []wire.Grant{g}, wire.ReleaseShutdown, 0)
			require.NoError(t, err)
			second := bytes.Repeat([]byte("2"), sizes[1])
			g = p.sealed("job", second)
			for _, entries := range []int{logEntries, 0, 0} {
				env, err := p.s.TakePayload(ctx, playRunner, g)
				require.NoError(t, err)
				require.Equal(t, second, env.Raw)
				held := p.holds()
				require.NoError(t, p.s.Close())
				require.Equal(t, held, whole(t, p.s.path, true))
				p.begin(dir, entries)
				p.tailStands()
			}
		})
	}
}
