package disk

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"pushrelay/store"
)

// ear notes the records that can't be read.
type ear struct {
	nobody
	mu   sync.Mutex
	seqs []uint64
}

func (o *ear) Unreadable(seq uint64, _ error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seqs = append(o.seqs, seq)
}

// stopped is a store with a log that isn't settled, after so many acts. Its folder is free.
func stopped(t *testing.T, acts int) *play {
	t.Helper()
	p := newPlay(t)
	for _, a := range p.acts()[:acts] {
		require.NoError(t, a.ignored(), a.name)
	}
	require.NoError(t, p.s.Close())
	return p
}

// kept is an entry that is in the file.
type kept struct {
	key, v []byte
	items  []item
}

// log answers the entries of a file.
func (p *play) log() (all []kept) {
	p.t.Helper()
	db, err := openFile(p.s.path, true)
	require.NoError(p.t, err)
	require.NoError(p.t, db.View(func(tx *bbolt.Tx) error {
		log := tx.Bucket([]byte(logBucket))
		return log.ForEach(func(k, _ []byte) error {
			e := kept{key: bytes.Clone(k), v: bytes.Clone(log.Bucket(k).Get([]byte(entryKey)))}
			var err error
			e.items, err = itemsOf(e.key, e.v)
			all = append(all, e)
			return err
		})
	}))
	require.NoError(p.t, db.Close())
	return all
}

// flip changes a bit of an entry, also in older copies of its page.
func (p *play) flip(e kept, at int) {
	p.t.Helper()
	raw, err := os.ReadFile(p.s.path)
	require.NoError(p.t, err)
	bad := bytes.Clone(e.v)
	bad[at] ^= 4
	require.Contains(p.t, string(raw), string(e.v))
	require.NoError(p.t, os.WriteFile(p.s.path, bytes.ReplaceAll(raw, e.v, bad), 0o600))
}

func (p *play) dir() string { return filepath.Dir(p.s.path) }

// refused verifies that everybody is told why the file can't be used, and that it was left alone.
func (p *play) refused(why ...string) {
	p.t.Helper()
	was, err := os.ReadFile(p.s.path)
	require.NoError(p.t, err)
	_, opening := Open(p.t.Context(), Options{Dir: p.dir()})
	_, inspecting := Inspect(p.t.Context(), p.dir())
	_, compacting := Compact(p.t.Context(), p.dir())
	_, renewing := Renew(p.t.Context(), p.dir())
	for name, err := range map[string]error{"Open": opening, "Inspect": inspecting, "Compact": compacting, "Renew": renewing} {
		var foreign *ForeignError
		require.ErrorAs(p.t, err, &foreign, name)
		require.ErrorContains(p.t, err, p.s.path, name)
		for _, text := range why {
			require.ErrorContains(p.t, err, text, name)
		}
	}
	is, err := os.ReadFile(p.s.path)
	require.NoError(p.t, err)
	require.True(p.t, bytes.Equal(was, is), "it was changed")
}

// An entry that is damaged, or missing, isn't passed over: nobody knows what it changed, and jobs that were done would be given
// out again.
func TestAnEntryThatWasDamaged(t *testing.T) {
	p := stopped(t, 20)
	entries := p.log()
	e := entries[len(entries)/2]
	p.flip(e, len(e.v)-1)
	p.refused("its log is damaged in the entry of commit", "nobody knows what that changed")
}

func TestAnEntryThatIsMissing(t *testing.T) {
	for name, which := range map[string]func(*bbolt.Cursor) ([]byte, []byte){
		"first": (*bbolt.Cursor).First, "last": (*bbolt.Cursor).Last,
	} {
		t.Run(name, func(t *testing.T) {
			p := stopped(t, 20)
			n := len(p.log())
			p.edit(func(tx *bbolt.Tx) error {
				log := tx.Bucket([]byte(logBucket))
				k, _ := which(log.Cursor())
				return log.DeleteBucket(bytes.Clone(k))
			})
			p.refused(fmt.Sprintf("its log is damaged: it has %d entries and should have %d", n-1, n))
		})
	}
}

// A file of a build from before there was a log.
func TestAFileWithoutALog(t *testing.T) {
	p := stopped(t, 3)
	p.edit(func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte(logBucket)) })
	p.refused("it has no part named log")
}

// edit changes the file by the library that it is made with.
func (p *play) edit(f func(tx *bbolt.Tx) error) {
	p.t.Helper()
	db, err := bbolt.Open(p.s.path, 0o600, boltOptions(false))
	require.NoError(p.t, err)
	require.NoError(p.t, db.Update(f))
	require.NoError(p.t, db.Close())
}

// A record that is damaged in the log is left out and told of, once each time, and kept byte for byte, with its envelope, when
// it is settled. An older state of it doesn't come back, and all others are as they were.
func TestARecordThatWasDamagedInTheLog(t *testing.T) {
	p := stopped(t, 15)
	var seq uint64
	var raw []byte
	for _, e := range p.log() {
		for _, it := range e.items {
			if it.kind == itemPayload && seq == 0 {
				seq = it.seq // it has an envelope in the log
			}
		}
	}
	require.NotZero(t, seq)
	var in kept
	at := 0
	for _, e := range p.log() {
		for _, it := range e.items {
			if it.kind == itemRecord && it.seq == seq {
				in, at, raw = e, int(it.at)+9, bytes.Clone(it.holds)
			}
		}
	}
	p.flip(in, at)
	raw[9] ^= 4
	for i, entries := range []int{logEntries, 3, 0} {
		told := &ear{}
		p.observer = told
		p.begin(p.dir(), entries)
		require.Equal(t, []uint64{seq}, told.seqs)
		jobs, err := p.s.Jobs(t.Context(), playSite, 0, 100)
		require.NoError(t, err)
		require.Len(t, jobs.Jobs, 6+i)
		require.NoError(t, p.enqueue([]string{"x", "y", "z"}[i]))
		require.NoError(t, p.s.Close())
	}
	rep, err := Inspect(t.Context(), p.dir())
	require.NoError(t, err)
	require.Equal(t, 1, rep.Unreadable)
	p.edit(func(tx *bbolt.Tx) error {
		require.Equal(t, raw, tx.Bucket([]byte(jobBucket)).Get(seqKey(seq)))
		require.NotNil(t, tx.Bucket([]byte(envelopeBucket)).Get(chunkKey(seq, payloadKind, 0)), "its envelope was lost")
		return nil
	})
}

// A text that is damaged in the log isn't handed out, there and when it was moved, and is told of as any other.
func TestATextThatWasDamagedInTheLog(t *testing.T) {
	p := newPlay(t)
	g := p.sealed("job", bytes.Repeat([]byte("p"), 500))
	require.NoError(t, p.s.Close())
	for _, e := range p.log() {
		for _, it := range e.items {
			if it.kind == itemPayload {
				p.flip(e, int(it.at)+250)
			}
		}
	}
	for _, entries := range []int{logEntries, 0} {
		told := &ear{}
		p.observer = told
		p.begin(p.dir(), entries)
		require.Empty(t, told.seqs)
		_, err := p.s.TakePayload(t.Context(), playRunner, g)
		require.ErrorIs(t, err, store.ErrUnavailable)
		require.Equal(t, []uint64{1}, told.seqs)
		require.NoError(t, p.s.Close())
	}
}
