package disk

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
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
	t   *testing.T
	s   *Store
	now time.Time
}

const (
	playSite   = "site"
	playRunner = "runner"
)

func newPlay(t *testing.T) *play {
	p := &play{t: t, now: time.Unix(1_900_000_000, 0)}
	s, err := Open(t.Context(), Options{Dir: t.TempDir(), Clock: func() time.Time { return p.now }})
	require.NoError(t, err)
	p.s = s
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return p
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

// holds answers a digest of what a file keeps, but for the state that each commit changes.
func holds(t *testing.T, db *bbolt.DB) string {
	t.Helper()
	h := sha256.New()
	require.NoError(t, db.View(func(tx *bbolt.Tx) error {
		for _, name := range []string{jobBucket, envelopeBucket, streakBucket} {
			err := tx.Bucket([]byte(name)).ForEach(func(k, v []byte) error {
				_, err := fmt.Fprintf(h, "%s %d %q %d %q\n", name, len(k), k, len(v), v)
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	}))
	return fmt.Sprintf("%x", h.Sum(nil))
}

func (p *play) holds() (digest string) {
	_, err := read(context.Background(), p.s, func(*memory.Machine) none { digest = holds(p.t, p.s.db); return none{} })
	require.NoError(p.t, err)
	return digest
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
	p := newPlay(t)
	images := 0
	dir := t.TempDir()
	path := filepath.Join(dir, fileName)
	for seed := range uint64(3) {
		pl := newPlatter(t, p.s, seed)
		for _, a := range p.acts() {
			before := p.holds()
			pl.arm(0, noMishap)
			pl.keep = true
			require.NoError(t, a.ignored(), a.name)
			images += len(pl.images)
			p.survive(pl, path, before, p.holds())
			pl.done()
		}
		p.now = p.now.Add(100 * time.Hour)
		_, err := p.s.Sweep(t.Context())
		require.NoError(t, err)
	}
	require.Greater(t, images, 300)
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
func whole(t *testing.T, path string) string {
	t.Helper()
	db, err := openFile(path, true)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	s := &Store{clock: time.Now, path: path, observer: strict{t}}
	_, err = s.load(db)
	require.NoError(t, err)
	require.NoError(t, db.View(func(tx *bbolt.Tx) error { return onlyTexts(tx) }))
	return holds(t, db)
}

// onlyTexts verifies that the envelopes of records are there, each whole, and no others.
func onlyTexts(tx *bbolt.Tx) error {
	st, err := readState(tx)
	if err != nil {
		return err
	}
	want := map[string]int64{}
	known := newSharer()
	err = tx.Bucket([]byte(jobBucket)).ForEach(func(k, v []byte) error {
		r, err := decodeRecord(binary.BigEndian.Uint64(k), v, known, st.down)
		for kind, e := range []*memory.Sealed{r.Payload, r.Result} {
			if e != nil && e.Bytes > 0 {
				want[string(chunkKey(r.Seq, byte(kind), 0)[:9])] = e.Bytes
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	err = tx.Bucket([]byte(envelopeBucket)).ForEach(func(k, v []byte) error {
		if want[string(k[:9])] -= int64(len(v)); want[string(k[:9])] < 0 {
			return fmt.Errorf("chunk %x is nobody's", k)
		}
		return nil
	})
	for k, left := range want {
		if left != 0 {
			return fmt.Errorf("%d bytes of %x are missing: %w", left, k, err)
		}
	}
	return err
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
		t.Run(m.String(), func(t *testing.T) {
			p := newPlay(t)
			pl := newPlatter(t, p.s, uint64(m))
			path := filepath.Join(t.TempDir(), fileName)
			failed, unsure := 0, 0
			for _, a := range p.acts() {
				for at, over := 1, false; !over; at++ {
					held, seen, now := p.holds(), p.seen(), p.now
					pl.arm(at, m)
					err := a.ignored()
					pl.arm(0, noMishap)
					if err == nil {
						pl.done()
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
						continue
					}
					unsure++
					over = p.settled(pl, path, a, held)
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
			require.Equal(t, p.holds(), whole(t, path))
		})
	}
}

// settled lets a store find out whether an operation happened of which it doesn't know, while the power may be cut at each
// moment, and reports whether it did.
func (p *play) settled(pl *platter, path string, a act, held string) bool {
	p.t.Helper()
	now := p.holds()
	pl.keep = true
	_, err := p.s.Sweep(context.Background()) // nothing is due
	require.NoError(p.t, err, a.name)
	p.survive(pl, path, held, now)
	require.Equal(p.t, now, p.holds(), "%s: what the file said didn't last", a.name)
	pl.done()
	return now != held
}

// survive opens what power cuts left: one of the two.
func (p *play) survive(pl *platter, path, one, other string) {
	p.t.Helper()
	for _, image := range pl.images {
		require.NoError(p.t, os.WriteFile(path, image, 0o600))
		got := whole(p.t, path)
		require.True(p.t, got == one || got == other, "a power cut leaves what never was")
	}
	pl.images, pl.keep = nil, false
}
