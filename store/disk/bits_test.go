package disk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pushrelay/store"
	"pushrelay/store/memory"
	"pushrelay/wire"
)

// storeFile answers the bytes of a store in which all sorts of things are, most of them in the log if that is so long, and
// what it held after the last commit and before.
func storeFile(t *testing.T, entries int) (raw []byte, last, before string) {
	t.Helper()
	p := newPlayWith(t, entries)
	for _, a := range p.acts()[:17] { // then one is cancelled, whose payload nobody reads
		before = last
		require.NoError(t, a.ignored(), a.name)
		last = p.holds()
	}
	raw, err := os.ReadFile(p.s.path)
	require.NoError(t, err)
	return raw, last, before
}

// tolerant counts what can't be read.
type tolerant struct {
	nobody
	n int
}

func (o *tolerant) Unreadable(uint64, error) { o.n++ }

// refusedOrWhole opens a damaged file: it is refused and left alone, or a machine comes of it, in which what
// can't be read is told of. It reports whether the damage was noticed.
func refusedOrWhole(t *testing.T, path string, raw []byte) (noticed bool, digest string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, raw, 0o600))
	return refusedOrRead(t, path, raw)
}

// refusedOrRead is refusedOrWhole for a file that is there.
func refusedOrRead(t *testing.T, path string, raw []byte) (noticed bool, digest string) {
	t.Helper()
	db, err := openFile(path, true)
	if err != nil {
		var foreign *ForeignError
		var version *VersionError
		require.True(t, errors.As(err, &foreign) || errors.As(err, &version), "%v", err)
		require.Contains(t, err.Error(), path)
		after, err := os.ReadFile(path)
		require.NoError(t, err)
		require.True(t, bytes.Equal(raw, after), "the file was changed")
		return true, ""
	}
	told := &tolerant{}
	s := &Store{path: path, observer: told, clock: func() time.Time { return time.Unix(1_900_000_000, 0) }}
	l, err := s.load(db)
	if err == nil {
		s.db = db
		told.n += s.texts(t, l.m)
	}
	if noticed = err != nil || told.n > 0; !noticed {
		digest = holds(t, db)
	}
	require.NoError(t, db.Close())
	return noticed, digest
}

// texts reads all envelopes and answers how many can't be read.
func (s *Store) texts(t *testing.T, m *memory.Machine) (bad int) {
	t.Helper()
	try := func(kind byte, e *memory.Sealed, err error) {
		require.NoError(t, err)
		want := &text{Sealed: *e, from: e, kind: kind}
		require.NoError(t, s.lend(want))
		if want.tx != nil && want.read() != nil {
			bad++
		}
	}
	for _, j := range m.Jobs(playSite, 0, 1000).Jobs {
		g := wire.Grant{JobID: j.Key.Job, LeaseID: j.Lease}
		switch {
		case j.State == store.Done:
			e, err := m.ResultEnvelope(playSite, g)
			try(resultKind, e, err)
		case j.Payload > 0 && !j.Cancelled:
			e, err := m.TakePayload(playRunner, g)
			try(payloadKind, e, err)
		}
	}
	return bad
}

// A bit that flips is noticed, or changes nothing that is kept, or takes back the last commit: a page that says which state
// counts and is damaged looks like one that wasn't written.
func TestFlippedBits(t *testing.T) {
	for _, entries := range logLengths(logEntries, 1) {
		t.Run(fmt.Sprint(entries, " in the log"), func(t *testing.T) {
			t.Parallel()
			whole, last, before := storeFile(t, entries)
			path := filepath.Join(t.TempDir(), fileName)
			noticed, digest := refusedOrWhole(t, path, whole)
			require.False(t, noticed)
			require.Equal(t, last, digest)
			used := usedPages(t, path)
			rng := rand.New(rand.NewPCG(1, 2))
			n, tried := 0, 0
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			require.NoError(t, err)
			defer func() { require.NoError(t, f.Close()) }()
			flip := func(at int, bit byte) {
				whole[at] ^= bit
				_, err := f.WriteAt(whole[at:at+1], int64(at))
				require.NoError(t, err)
			}
			for _, page := range used {
				for _, place := range placesOf(whole[page*pageSize:], rng) {
					at, bit := place/8, byte(1)<<(place%8)
					flip(page*pageSize+at, bit)
					tried++
					noticed, got := refusedOrRead(t, path, whole)
					flip(page*pageSize+at, bit)
					if noticed {
						n++
					} else {
						require.True(t, got == last || page < 2 && got == before, "page %d, byte %d: what is kept changed unnoticed", page, at)
					}
				}
			}
			t.Logf("%d of %d flips noticed", n, tried)
			require.Greater(t, n, tried/4)
		})
	}
}

// placesOf answers which bits of a page are tried: one of each byte that says what it is and where things are in it, all of
// how many they are, and some anywhere.
func placesOf(page []byte, rng *rand.Rand) (places []int) {
	said := headerBytes
	if n := int(binary.NativeEndian.Uint16(page[10:])); n <= 64 { // the first page of a run, not any other
		said += n * elementBytes
	}
	for at := range said {
		places = append(places, at*8+rng.IntN(8))
	}
	for bit := range 16 {
		places = append(places, 10*8+bit)
	}
	for range 10 {
		places = append(places, rng.IntN(pageSize*8))
	}
	return places
}

// usedPages answers the pages of a file that hold something.
func usedPages(t *testing.T, path string) (used []int) {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	info, err := f.Stat()
	require.NoError(t, err)
	root, w, err := newWalker(f, info.Size())
	require.NoError(t, err)
	require.NoError(t, w.tree(root, nil, nil, 0))
	used = []int{0, 1}
	for page := 2; uint64(page) < w.high; page++ {
		if w.seen[page/64]&(1<<(page%64)) != 0 {
			used = append(used, page)
		}
	}
	return used
}

func TestCutShort(t *testing.T) {
	whole, _, _ := storeFile(t, logEntries)
	path := filepath.Join(t.TempDir(), fileName)
	require.NoError(t, os.WriteFile(path, whole, 0o600))
	f, err := os.Open(path)
	require.NoError(t, err)
	_, w, err := newWalker(f, int64(len(whole)))
	require.NoError(t, errors.Join(err, f.Close()))
	need := int(w.high) * pageSize
	rng := rand.New(rand.NewPCG(3, 4))
	var sizes []int
	for n := 0; n < len(whole); n += pageSize {
		sizes = append(sizes, n)
	}
	for range 100 {
		sizes = append(sizes, rng.IntN(len(whole)))
	}
	for _, n := range sizes {
		noticed, _ := refusedOrWhole(t, path, whole[:n])
		require.Equal(t, n < need, noticed, "%d of %d bytes", n, need)
	}
}

// What isn't a file of a store is refused, whatever its bytes are.
func TestForeignBytes(t *testing.T) {
	path := filepath.Join(t.TempDir(), fileName)
	rng := rand.New(rand.NewPCG(5, 6))
	whole, _, _ := storeFile(t, logEntries)
	for i := range 300 {
		raw := make([]byte, rng.IntN(1<<16))
		for j := range raw {
			raw[j] = byte(rng.Uint32())
		}
		if i%2 == 0 { // with a beginning that is right
			copy(raw, whole[:min(len(raw), 2*pageSize)])
		}
		noticed, _ := refusedOrWhole(t, path, raw)
		require.True(t, noticed)
	}
}
