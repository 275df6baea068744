package disk

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"pushrelay/store"
	"pushrelay/store/memory"
	"pushrelay/wire"
)

// play is a run of operations, each of them one commit.
type play struct {
	t        *testing.T
	s        *Store
	now      time.Time
	observer Observer // of stores that begin opens; may be nil
}

const (
	playSite   = "site"
	playRunner = "runner"
)

func newPlay(t *testing.T) *play { return newPlayWith(t, logEntries) }

// newPlayWith is newPlay with a log of so many entries, which only commits settle.
func newPlayWith(t *testing.T, entries int) *play {
	p := &play{t: t, now: time.Unix(1_900_000_000, 0)}
	p.begin(t.TempDir(), entries)
	return p
}

// begin opens a store for the play.
func (p *play) begin(dir string, entries int) {
	p.t.Helper()
	o := Options{Dir: dir, Clock: func() time.Time { return p.now }, Observer: p.observer}
	s, err := openWith(p.t.Context(), o, limits{entries: entries, bytes: logBytes, records: logRecords, leave: true})
	require.NoError(p.t, err)
	p.s = s
	p.t.Cleanup(func() { require.NoError(p.t, s.Close()) })
}

// grant answers the grant that a job has now.
func (p *play) grant(job string) wire.Grant {
	j, err := p.s.Job(context.Background(), playSite, job)
	require.NoError(p.t, err)
	return wire.Grant{JobID: job, LeaseID: j.Lease}
}

func text1(bytesOf int, fill string) wire.Envelope {
	return wire.Envelope{RecipientKeyID: "device", SenderKeyID: "key", Raw: bytes.Repeat([]byte(fill), bytesOf)}
}

type act struct {
	name string
	do   func() error
}

// acts are what happens, in this order. Whoever was interrupted at one goes on with it or with the next.
func (p *play) acts() []act {
	ctx := context.Background()
	var all []act
	add := func(name string, do func() error) { all = append(all, act{name, do}) }
	enqueue := func(ids ...string) {
		add(fmt.Sprint("enqueue ", ids), func() error {
			var stubs []wire.Stub
			for _, id := range ids {
				s := wire.Stub{ID: id, Kind: "k", Owner: "owner", Site: "key", Audience: "self", DeadlineAt: p.now.Add(time.Hour).UnixMilli()}
				s.Raw = wire.AppendStub(nil, s)
				stubs = append(stubs, s)
			}
			_, err := p.s.Enqueue(ctx, playSite, wire.Dialect0, stubs)
			return err
		})
	}
	claim := func(most int) {
		add("claim", func() error {
			_, err := p.s.Claim(ctx, store.Claim{
				Runner: playRunner, Owner: "owner", Device: "device", Dialect: wire.Dialect0, Kinds: []string{"k"},
				Routes: []store.Route{{Site: playSite, Owner: "owner"}}, Max: most, Slots: 64, LeaseFor: time.Minute,
			})
			return err
		})
	}
	on := func(name string, do func(g wire.Grant) error) func(job string) {
		return func(job string) { add(name+" "+job, func() error { return do(p.grant(job)) }) }
	}
	sealAs := func(size int, job string) {
		on("seal", func(g wire.Grant) error { _, err := p.s.Seal(ctx, playSite, g, text1(size, "p")); return err })(job)
	}
	take := on("take", func(g wire.Grant) error { _, err := p.s.TakePayload(ctx, playRunner, g); return err })
	completeAs := func(size int, job string) {
		on("complete", func(g wire.Grant) error {
			_, err := p.s.Complete(ctx, playRunner, g, text1(size, "r"), wire.DispositionOK)
			return err
		})(job)
	}
	release := on("refuse", func(g wire.Grant) error {
		_, err := p.s.Release(ctx, playRunner, []wire.Grant{g}, wire.ReleaseRefused, 0)
		return err
	})
	collect := on("collect", func(g wire.Grant) error { return p.s.Collect(ctx, playSite, []wire.Grant{g}) })
	renew := on("renew", func(g wire.Grant) error {
		_, err := p.s.Renew(ctx, playRunner, []wire.Grant{g}, 2*time.Minute)
		return err
	})
	cancel := func(job string) {
		add("cancel "+job, func() error { _, err := p.s.Cancel(ctx, playSite, []string{job}); return err })
	}
	later := func(d time.Duration) {
		to := p.now
		add(fmt.Sprint("sweep after ", d), func() error {
			if p.now.Before(to.Add(d)) {
				p.now = to.Add(d)
			}
			_, err := p.s.Sweep(ctx)
			return err
		})
	}

	enqueue("a", "b", "c")
	enqueue("d")
	claim(2)
	sealAs(100, "a")
	sealAs(90_000, "b")
	take("a")
	take("b")
	take("b")
	renew("a")
	enqueue("e", "f", "g", "h")
	completeAs(50_000, "a")
	completeAs(10, "b")
	collect("b")
	claim(4)
	release("c")
	release("d")
	sealAs(300_000, "e")
	cancel("e")
	cancel("g")
	take("f")
	sealAs(40_000, "f")
	take("f")
	completeAs(200_000, "f")
	collect("a")
	enqueue("b") // it was done
	enqueue("i", "j", "k", "l", "m", "n")
	claim(1)
	collect("f")
	for i := range 6 {
		enqueue(fmt.Sprint("more", i))
	}
	later(2 * time.Hour)
	later(48 * time.Hour)
	enqueue("o", "p")
	claim(1)
	return all
}

// holds answers a digest of what a file keeps, wherever in it that is, but for the state that each commit changes.
func holds(t *testing.T, db *bbolt.DB) string { return digest(t, db, true) }

// digest is holds, exact or but for the grace that a machine gives to leases when a file is read, and may keep.
func digest(t *testing.T, db *bbolt.DB, exact bool) string {
	t.Helper()
	h := sha256.New()
	require.NoError(t, db.View(func(tx *bbolt.Tx) error {
		c, err := contentsOf(tx)
		if err != nil {
			return err
		}
		known := newSharer()
		err = c.each(func(seq uint64, v []byte, _, _ bool) error {
			if v == nil {
				return nil
			}
			r, err := decodeRecord(seq, v, known, 0)
			if err == nil && !exact {
				r.Lapse, r.Window = 0, 0
				v = appendRecord(nil, &r, 0)
			}
			fmt.Fprintf(h, "%d %q\n", seq, v)
			if err != nil {
				return nil
			}
			for kind, e := range []*memory.Sealed{r.Payload, r.Result} {
				if e == nil {
					continue
				}
				raw, err := c.textOf(byte(kind), e)
				fmt.Fprintf(h, "%d %d %q %v\n", seq, kind, raw, err)
			}
			return nil
		})
		if err != nil {
			return err
		}
		return tx.Bucket([]byte(streakBucket)).ForEach(func(k, v []byte) error {
			_, err := fmt.Fprintf(h, "%q %q\n", k, v)
			return err
		})
	}))
	return fmt.Sprintf("%x", h.Sum(nil))
}

func contentsOf(tx *bbolt.Tx) (*contents, error) {
	st, err := readState(tx)
	if err != nil {
		return nil, err
	}
	return readContents(tx, &st)
}

// textOf reads an envelope's text where it is.
func (c *contents) textOf(kind byte, e *memory.Sealed) ([]byte, error) {
	c.locate(kind, e)
	want := &text{Sealed: *e, kind: kind, tx: c.tx}
	if e.Bytes == 0 {
		return nil, nil
	}
	err := want.copy()
	return want.Raw, err
}

func (p *play) holds() string { return p.digest(true) }

func (p *play) digest(exact bool) (d string) {
	p.do(func(*memory.Machine) { d = digest(p.t, p.s.db, exact) })
	return d
}

// seen answers all that callers may see of what is kept.
func (p *play) seen() string {
	ctx := context.Background()
	page, err := p.s.Jobs(ctx, playSite, 0, 1000)
	require.NoError(p.t, err)
	sites, err := p.s.SiteStats(ctx, "")
	require.NoError(p.t, err)
	stats, err := p.s.Stats(ctx)
	require.NoError(p.t, err)
	backlog, err := p.s.Backlog(ctx, "")
	require.NoError(p.t, err)
	held, err := p.s.Held(ctx, playRunner)
	require.NoError(p.t, err)
	return fmt.Sprintf("%+v\n%+v\n%+v\n%+v\n%+v", page, sites, stats, backlog, held)
}

// Whenever the power is cut, the file opens, and what it holds is what was acknowledged, or that and the operation that was
// under way: never a part of one.
func TestPowerCuts(t *testing.T) {
	for seed, entries := range logLengths(logEntries, 0, 3) {
		t.Run(fmt.Sprint(entries, " in the log"), func(t *testing.T) {
			t.Parallel()
			p := newPlayWith(t, entries)
			images := 0
			path := filepath.Join(t.TempDir(), fileName)
			pl := newPlatter(t, p.s, uint64(seed))
			for range 2 {
				for _, a := range p.acts() {
					before := p.holds()
					pl.arm(0, noMishap)
					pl.keep = true
					require.NoError(t, a.ignored(), a.name)
					images += len(pl.images)
					p.survive(pl, path, true, before, p.holds())
					pl.done()
				}
				p.now = p.now.Add(100 * time.Hour)
				_, err := p.s.Sweep(t.Context())
				require.NoError(t, err)
			}
			require.Greater(t, images, 200)
		})
	}
}

// ignored does it and passes over refusals other than that nothing can be kept: they are answers.
func (a act) ignored() error {
	err := a.do()
	if err == store.ErrUnavailable {
		return err
	}
	return nil
}

// whole opens a file as the program would, and answers what it holds.
func whole(t *testing.T, path string, exact bool) string {
	t.Helper()
	db, err := openFile(path, true)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	s := &Store{clock: time.Now, path: path, observer: strict{t}}
	_, err = s.load(db)
	require.NoError(t, err)
	require.NoError(t, db.View(func(tx *bbolt.Tx) error { return onlyTexts(tx) }))
	return digest(t, db, exact)
}

// onlyTexts verifies that the envelopes of records are there, each whole, and that their bucket has no others.
func onlyTexts(tx *bbolt.Tx) error {
	c, err := contentsOf(tx)
	if err != nil {
		return err
	}
	want := map[string]int64{}
	known := newSharer()
	err = c.each(func(seq uint64, v []byte, _, _ bool) error {
		if v == nil {
			return nil
		}
		r, err := decodeRecord(seq, v, known, 0)
		if err != nil {
			return err
		}
		for kind, e := range []*memory.Sealed{r.Payload, r.Result} {
			if e == nil || e.Bytes == 0 {
				continue
			}
			if _, err := c.textOf(byte(kind), e); err != nil {
				return fmt.Errorf("text %d of %d: %w", kind, seq, err)
			}
			if e.At == 0 {
				want[string(chunkKey(r.Seq, byte(kind), 0)[:9])] = e.Bytes
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return tx.Bucket([]byte(envelopeBucket)).ForEach(func(k, v []byte) error {
		if want[string(k[:9])] -= int64(len(v)); want[string(k[:9])] < 0 {
			return fmt.Errorf("chunk %x is nobody's", k)
		}
		return nil
	})
}

// strict wants no record that can't be read.
type strict struct{ t *testing.T }

func (strict) Failed(error)            {}
func (strict) Recovered(time.Duration) {}
func (o strict) Unreadable(seq uint64, err error) {
	o.t.Errorf("record %d: %v", seq, err)
}

// Whatever write or sync of a commit goes wrong, the operation is refused and nothing of it is seen, not even after the
// power was cut meanwhile; then it can be repeated, and the store goes on. Where the operating system can't say whether it
// happened, the file decides, and what it says lasts.
func TestEveryWriteGoesWrong(t *testing.T) {
	for m := noRoom; m < mishaps; m++ {
		for _, entries := range logLengths(logEntries, 2) {
			t.Run(fmt.Sprint(m, ", ", entries, " in the log"), func(t *testing.T) {
				t.Parallel()
				everyWriteGoesWrong(t, m, entries)
			})
		}
	}
}

func everyWriteGoesWrong(t *testing.T, m mishap, entries int) {
	p := newPlayWith(t, entries)
	pl := newPlatter(t, p.s, uint64(m))
	path := filepath.Join(t.TempDir(), fileName)
	failed, unsure := 0, 0
	for _, a := range p.acts() {
		for at, over := 1, false; !over; at++ {
			held, loosely, seen, now := p.holds(), p.digest(false), p.seen(), p.now
			pl.arm(at, m)
			err := a.ignored()
			pl.arm(0, noMishap)
			if err == nil {
				pl.done()
				p.tailStands()
				break
			}
			failed++
			uncertain := false
			pl.do(func() { uncertain = p.s.out.uncertain })
			require.Error(t, p.s.Err())
			p.now = now
			require.Equal(t, seen, p.seen(), "%s, write %d: a refused operation is seen", a.name, at)
			p.now = p.now.Add(time.Nanosecond)
			if !uncertain {
				require.Equal(t, held, p.holds(), "%s, write %d: a refused operation is kept", a.name, at)
				p.tailStands()
				continue
			}
			unsure++
			over = p.settled(pl, path, a, loosely)
		}
	}
	require.Greater(t, failed, 100)
	require.Equal(t, m == noSync, unsure > 0, "%d", unsure)
	p.now = p.now.Add(2 * store.SweeperAway) // what is small says little about what is large, for a while
	_, err := p.s.Sweep(t.Context())
	require.NoError(t, err)
	require.NoError(t, p.s.Err())
	raw, err := os.ReadFile(p.s.path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, raw, 0o600))
	require.Equal(t, p.holds(), whole(t, path, true))
}

// settled lets a store find out whether an operation happened of which it doesn't know, while the power may be cut at each
// moment, and reports whether it did.
func (p *play) settled(pl *platter, path string, a act, held string) bool {
	p.t.Helper()
	now := p.digest(false)
	pl.keep = true
	_, err := p.s.Sweep(context.Background()) // nothing is due
	require.NoError(p.t, err, a.name)
	p.survive(pl, path, false, held, now)
	require.Equal(p.t, now, p.digest(false), "%s: what the file said didn't last", a.name)
	p.tailStands()
	pl.done()
	return now != held
}

// survive opens what power cuts left: one of the two.
func (p *play) survive(pl *platter, path string, exact bool, one, other string) {
	p.t.Helper()
	for _, image := range pl.images {
		require.NoError(p.t, os.WriteFile(path, image, 0o600))
		got := whole(p.t, path, exact)
		require.True(p.t, got == one || got == other, "a power cut leaves what never was")
	}
	pl.images, pl.keep = nil, false
}
