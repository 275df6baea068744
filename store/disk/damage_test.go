package disk_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"pushrelay/store"
	"pushrelay/store/disk"
	"pushrelay/wire"
)

const fileName = "pushrelay.db"

// written answers the bytes of a store's file with jobs in all states and envelopes of all sizes.
func written(t *testing.T) []byte {
	t.Helper()
	dir := t.TempDir()
	st := begin(t, disk.Options{Dir: dir, Settings: benchSettings()})
	for i := range 40 {
		g := running(t, st, fmt.Sprint("running", i), bytes.Repeat([]byte("p"), 1+i*i*i))
		if i%2 == 0 {
			_, err := st.Complete(t.Context(), "r", g, wire.Envelope{Raw: bytes.Repeat([]byte("r"), 1+i*i*i)}, wire.DispositionOK)
			require.NoError(t, err)
		}
		if i%4 == 0 {
			require.NoError(t, st.Collect(t.Context(), "busy", []wire.Grant{g}))
		}
	}
	fill(t, st, 300)
	require.NoError(t, st.Close())
	raw, err := os.ReadFile(filepath.Join(dir, fileName))
	require.NoError(t, err)
	return raw
}

// tryOpen opens a store over these bytes. When it's refused, the error names the file and the bytes are as they were; when
// it isn't, all of it can be read and it can be written.
func tryOpen(t *testing.T, dir string, raw []byte) error {
	t.Helper()
	path := filepath.Join(dir, fileName)
	require.NoError(t, os.WriteFile(path, raw, 0o600))
	st, err := disk.Open(context.Background(), disk.Options{Dir: dir, Settings: benchSettings()})
	if err != nil {
		require.ErrorContains(t, err, path)
		after, readErr := os.ReadFile(path)
		require.NoError(t, readErr)
		require.True(t, bytes.Equal(raw, after), "a file that was refused was changed")
		return err
	}
	defer st.Close()
	for after := store.Cursor(0); ; {
		page, err := st.Jobs(context.Background(), "busy", after, 100)
		require.NoError(t, err)
		for _, j := range page.Jobs {
			if j.Result > 0 {
				_, _ = st.ResultEnvelope(context.Background(), "busy", wire.Grant{JobID: j.Job, LeaseID: j.Lease})
			}
		}
		if after = page.Next; after == 0 {
			break
		}
	}
	_ = enqueue(t, st, "one more")
	return nil
}

func TestMetaPagesThatWereDamaged(t *testing.T) {
	t.Parallel()
	raw, dir := written(t), t.TempDir()
	page := int(binary.NativeEndian.Uint32(raw[24:]))
	for at := range 80 {
		bad := bytes.Clone(raw)
		bad[at] ^= 0x40
		_ = tryOpen(t, dir, bad) // the other page may do
		bad[page+at] ^= 0x40
		err := tryOpen(t, dir, bad)
		if at >= 16 { // what stands before isn't read by anybody
			var foreign *disk.ForeignError
			require.ErrorAs(t, err, &foreign, at)
		}
	}
}

func TestBytesThatWereDamaged(t *testing.T) {
	t.Parallel()
	raw, dir := written(t), t.TempDir()
	r := rand.New(rand.NewPCG(2, 2))
	refused := 0
	for i := range 150 {
		bad := bytes.Clone(raw)
		for range 1 + i%3 {
			at := r.IntN(len(bad))
			if i%2 == 0 { // the beginnings of pages have what leads to others
				at = at/8192*8192 + r.IntN(64)
			}
			bad[at] ^= 1 << r.IntN(8)
		}
		if tryOpen(t, dir, bad) != nil {
			refused++
		}
	}
	require.Positive(t, refused)
	require.Less(t, refused, 150)
}

func TestFilesOfOthers(t *testing.T) {
	other := filepath.Join(t.TempDir(), "other.db")
	db, err := bbolt.Open(other, 0o600, &bbolt.Options{PageSize: 8192})
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bbolt.Tx) error { _, err := tx.CreateBucket([]byte("theirs")); return err }))
	require.NoError(t, db.Close())
	bolt, err := os.ReadFile(other)
	require.NoError(t, err)
	for name, raw := range map[string][]byte{
		"text":       []byte(strings.Repeat("to whom it may concern\n", 5000)),
		"zeros":      make([]byte, 1<<20),
		"a database": append([]byte("SQLite format 3\x00"), make([]byte, 1<<16)...),
		"bolt":       bolt,
	} {
		var foreign *disk.ForeignError
		require.ErrorAs(t, tryOpen(t, t.TempDir(), raw), &foreign, name)
	}
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, fileName), 0o700))
	_, err = disk.Open(t.Context(), disk.Options{Dir: dir})
	var foreign *disk.ForeignError
	require.ErrorAs(t, err, &foreign)
}

// edit changes a store's file by the library that it is made with.
func edit(t *testing.T, dir string, f func(tx *bbolt.Tx) error) {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(dir, fileName), 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Update(f))
	require.NoError(t, db.Close())
}

func TestFormatOfAnotherBuild(t *testing.T) {
	dir := t.TempDir()
	st := begin(t, disk.Options{Dir: dir})
	require.NoError(t, enqueue(t, st, "j"))
	require.NoError(t, st.Close())
	edit(t, dir, func(tx *bbolt.Tx) error { return tx.Bucket([]byte("pushrelay")).Put([]byte("format"), []byte{77}) })
	raw, err := os.ReadFile(filepath.Join(dir, fileName))
	require.NoError(t, err)
	err = tryOpen(t, dir, raw)
	var version *disk.VersionError
	require.ErrorAs(t, err, &version)
	require.Equal(t, uint64(77), version.Found)
	require.ErrorContains(t, err, "the build that wrote it")
	_, err = disk.Inspect(t.Context(), dir)
	require.ErrorAs(t, err, &version)
	_, err = disk.Compact(t.Context(), dir)
	require.ErrorAs(t, err, &version)
}

// A record that this build can't read is left out, told of and left where it is.
func TestRecordsOfAnotherBuild(t *testing.T) {
	dir := t.TempDir()
	st := begin(t, disk.Options{Dir: dir})
	require.NoError(t, enqueue(t, st, "old", "next"))
	require.NoError(t, st.Close())
	var theirs []byte
	edit(t, dir, func(tx *bbolt.Tx) error {
		jobs := tx.Bucket([]byte("jobs"))
		k, v := jobs.Cursor().First()
		theirs = bytes.Clone(v)
		theirs[0] = 99
		return jobs.Put(bytes.Clone(k), theirs)
	})
	for range 2 {
		var ear heard
		st = begin(t, disk.Options{Dir: dir, Observer: &ear})
		require.Len(t, ear.unreadable, 1)
		_, err := st.Job(t.Context(), "busy", "old")
		require.ErrorIs(t, err, store.ErrNotFound)
		_, err = st.Job(t.Context(), "busy", "next")
		require.NoError(t, err)
		require.NoError(t, enqueue(t, st, "new"))
		require.NoError(t, st.Close())
		_, err = disk.Compact(t.Context(), dir)
		require.NoError(t, err)
	}
	rep, err := disk.Inspect(t.Context(), dir)
	require.NoError(t, err)
	require.Equal(t, 1, rep.Unreadable)
	require.Equal(t, 2, rep.Jobs[store.Queued])
	edit(t, dir, func(tx *bbolt.Tx) error {
		if _, v := tx.Bucket([]byte("jobs")).Cursor().First(); !bytes.Equal(v, theirs) {
			return errors.New("it was changed")
		}
		return nil
	})
}

// An envelope whose text was damaged isn't handed out.
func TestAnEnvelopeThatWasDamaged(t *testing.T) {
	dir := t.TempDir()
	var ear heard
	st := begin(t, disk.Options{Dir: dir})
	g := running(t, st, "j", []byte("p"))
	_, err := st.Complete(t.Context(), "r", g, wire.Envelope{Raw: bytes.Repeat([]byte("r"), 100_000)}, wire.DispositionOK)
	require.NoError(t, err)
	require.NoError(t, st.Close())
	edit(t, dir, func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte("envelopes"))
		k, v := b.Cursor().Last()
		v = bytes.Clone(v)
		v[7] ^= 1
		return b.Put(bytes.Clone(k), v)
	})
	st = begin(t, disk.Options{Dir: dir, Observer: &ear})
	_, err = st.ResultEnvelope(t.Context(), "busy", g)
	require.ErrorIs(t, err, store.ErrUnavailable)
	require.Len(t, ear.unreadable, 1)
	require.NoError(t, st.Collect(t.Context(), "busy", []wire.Grant{g}))
}

// A file that is cut while the store has it open takes the store out, not the process.
func TestTheFileIsCutUnderTheStore(t *testing.T) {
	dir := t.TempDir()
	st := begin(t, disk.Options{Dir: dir})
	g := running(t, st, "j", []byte("p"))
	_, err := st.Complete(t.Context(), "r", g, wire.Envelope{Raw: bytes.Repeat([]byte("r"), 1<<20)}, wire.DispositionOK)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(filepath.Join(dir, fileName), 0))
	_, err = st.ResultEnvelope(t.Context(), "busy", g)
	require.ErrorIs(t, err, store.ErrUnavailable)
	require.ErrorIs(t, enqueue(t, st, "k"), store.ErrUnavailable)
	require.Error(t, st.Err())
	_, err = st.Job(t.Context(), "busy", "j")
	require.NoError(t, err)
	require.NoError(t, st.Close())
}
