package disk_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pushrelay/store"
	"pushrelay/store/disk"
	"pushrelay/store/storetest"
	"pushrelay/wire"
)

func TestOneProcessHasTheFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	st := begin(t, disk.Options{Dir: dir})
	for name, open := range map[string]func() error{
		"Open":    func() error { _, err := disk.Open(t.Context(), disk.Options{Dir: dir}); return err },
		"Inspect": func() error { _, err := disk.Inspect(t.Context(), dir); return err },
		"Compact": func() error { _, err := disk.Compact(t.Context(), dir); return err },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			err := open()
			var locked *disk.LockedError
			require.ErrorAs(t, err, &locked)
			require.Less(t, time.Since(start), 5*time.Second)
			host, _ := os.Hostname()
			require.ErrorContains(t, err, dir)
			require.ErrorContains(t, err, fmt.Sprintf("process %d on %s since ", os.Getpid(), host))
			require.NoError(t, enqueue(t, st, "still open "+name))
		})
	}
}

func TestAFolderIsFreeAfterClose(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "on", "the", "way")
	for range 3 {
		st := begin(t, disk.Options{Dir: dir})
		require.NoError(t, st.Close())
		require.NoError(t, st.Close())
	}
	ended, cancel := context.WithCancel(t.Context())
	st := begin(t, disk.Options{Dir: dir})
	cancel()
	_, err := disk.Open(ended, disk.Options{Dir: dir})
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, st.Close())
}

func TestInspect(t *testing.T) {
	dir := t.TempDir()
	_, err := disk.Inspect(t.Context(), dir)
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = disk.Compact(t.Context(), dir)
	require.ErrorIs(t, err, fs.ErrNotExist)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries, "nothing was made")

	clock := storetest.NewClock()
	st := begin(t, disk.Options{Dir: dir, Clock: clock.Now})
	oldest := clock.Now()
	running(t, st, "running", bytes.Repeat([]byte("p"), 1000))
	clock.Advance(time.Second)
	g := running(t, st, "done", []byte("p"))
	_, err = st.Complete(t.Context(), "r", g, wire.Envelope{Raw: bytes.Repeat([]byte("r"), 50_000)}, wire.DispositionOK)
	require.NoError(t, err)
	g = running(t, st, "collected", []byte("p"))
	_, err = st.Complete(t.Context(), "r", g, wire.Envelope{Raw: []byte("r")}, wire.DispositionOK)
	require.NoError(t, err)
	require.NoError(t, st.Collect(t.Context(), "busy", []wire.Grant{g}))
	require.NoError(t, enqueue(t, st, "dropped", "queued", "queued too"))
	_, err = st.Cancel(t.Context(), "busy", []string{"dropped"})
	require.NoError(t, err)
	epoch, err := st.Epoch(t.Context())
	require.NoError(t, err)
	require.NoError(t, st.Close())

	before, err := os.ReadFile(filepath.Join(dir, fileName))
	require.NoError(t, err)
	rep, err := disk.Inspect(t.Context(), dir)
	require.NoError(t, err)
	after, err := os.ReadFile(filepath.Join(dir, fileName))
	require.NoError(t, err)
	require.True(t, bytes.Equal(before, after))
	require.Positive(t, rep.Commits)
	require.EqualValues(t, len(before), rep.Bytes)
	require.Greater(t, rep.Free, int64(0))
	require.Less(t, rep.Free, rep.Bytes)
	rep.Commits, rep.Free = 0, 0
	require.Equal(t, disk.Report{
		Path: filepath.Join(dir, fileName), Format: 1, Epoch: epoch, Bytes: rep.Bytes, Written: clock.Now(), Notices: 1, Tombstones: 1,
		Jobs: map[store.State]int{store.Queued: 2, store.Running: 1, store.Done: 1}, Oldest: oldest,
		Sites: []disk.SiteReport{{Site: "busy", Jobs: 4, Records: 6, Bytes: 51_000, Oldest: oldest}},
	}, rep)
}

func TestCompact(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, fileName)
	st := begin(t, disk.Options{Dir: dir, Settings: benchSettings()})
	var left, gone []wire.Grant
	for i := range 60 {
		g := running(t, st, fmt.Sprint("j", i), []byte("p"))
		_, err := st.Complete(t.Context(), "r", g, wire.Envelope{Raw: bytes.Repeat([]byte{byte(i)}, 300_000)}, wire.DispositionOK)
		require.NoError(t, err)
		if i%20 > 0 {
			gone = append(gone, g)
		} else {
			left = append(left, g)
		}
	}
	require.NoError(t, st.Collect(t.Context(), "busy", gone))
	require.NoError(t, st.Close())
	require.NoError(t, os.WriteFile(path+".compact", []byte("what a compaction that was interrupted left"), 0o600))
	rep, err := disk.Inspect(t.Context(), dir)
	require.NoError(t, err)
	c, err := disk.Compact(t.Context(), dir)
	require.NoError(t, err)
	require.Equal(t, rep.Bytes, c.Before)
	require.Less(t, c.After, c.Before/2)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, info.Size(), c.After)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 2, "the database and the lock")
	st = begin(t, disk.Options{Dir: dir})
	for i, g := range left {
		env, err := st.ResultEnvelope(t.Context(), "busy", g)
		require.NoError(t, err)
		require.Equal(t, bytes.Repeat([]byte{byte(i * 20)}, 300_000), env.Raw)
	}
	require.NoError(t, enqueue(t, st, "goes on"))
}

// The file doesn't only grow: what jobs leave is used again once their tombstones have ended.
func TestTheFileStaysBounded(t *testing.T) {
	t.Parallel()
	const parts, lives, callers = 8, 500, 32
	dir := t.TempDir()
	clock := storetest.NewClock()
	st := begin(t, disk.Options{Dir: dir, Clock: clock.Now, Settings: benchSettings()})
	sweep := func() {
		for {
			swept, err := st.Sweep(t.Context())
			require.NoError(t, err)
			if swept.Next != 0 {
				return
			}
		}
	}
	var sizes []int64
	for part := range parts {
		var n atomic.Int64
		var wg sync.WaitGroup
		for w := range callers {
			wg.Go(func() {
				for i := n.Add(1); i <= lives; i = n.Add(1) {
					id := fmt.Sprint("j-", part, "-", i)
					if err := live(context.Background(), st, fmt.Sprint("r", w), id, clock.Now(), int(100+i*37%5000)); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		clock.Advance(store.TombstoneMin)
		sweep()
		info, err := os.Stat(filepath.Join(dir, fileName))
		require.NoError(t, err)
		sizes = append(sizes, info.Size())
	}
	require.Equal(t, sizes[parts/2], sizes[parts-1], "%d", sizes)
	clock.Advance(25 * time.Hour)
	sweep()
	require.NoError(t, st.Close())
	rep, err := disk.Inspect(t.Context(), dir)
	require.NoError(t, err)
	require.Zero(t, rep.Tombstones+rep.Notices+len(rep.Sites))
	require.Less(t, rep.Bytes-rep.Free, int64(100<<10), "an empty store holds nothing")
}

// Ciphertext that a site has seen to isn't in the file any more once the room is used again, and never read again.
func TestNoEnvelopeIsKeptForNothing(t *testing.T) {
	st := begin(t, disk.Options{Settings: benchSettings()})
	g := running(t, st, "j", bytes.Repeat([]byte("p"), 100_000))
	require.Equal(t, []string{"payload"}, st.Texts(t))
	_, err := st.Complete(t.Context(), "r", g, wire.Envelope{Raw: bytes.Repeat([]byte("r"), 100_000)}, wire.DispositionOK)
	require.NoError(t, err)
	require.Equal(t, []string{"result"}, st.Texts(t))
	require.NoError(t, st.Collect(t.Context(), "busy", []wire.Grant{g}))
	require.Empty(t, st.Texts(t))
	g = running(t, st, "k", bytes.Repeat([]byte("p"), 100_000))
	_, err = st.Release(t.Context(), "r", []wire.Grant{g}, wire.ReleaseShutdown, 0)
	require.NoError(t, err)
	require.Empty(t, st.Texts(t))
	require.True(t, errors.Is(st.Close(), nil))
}
