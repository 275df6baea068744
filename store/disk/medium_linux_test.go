package disk_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pushrelay/store"
	"pushrelay/store/disk"
	"pushrelay/wire"
)

// replaceFile puts /dev/full in the place of an open file of this process: every write to it fails as on a full disk. It
// answers what puts the file back.
func replaceFile(t *testing.T, path string) (back func()) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, e := range fds {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err != nil || to != path {
			continue
		}
		fd, err := strconv.Atoi(e.Name())
		require.NoError(t, err)
		kept, err := syscall.Dup(fd)
		require.NoError(t, err)
		full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
		require.NoError(t, err)
		require.NoError(t, syscall.Dup3(int(full.Fd()), fd, syscall.O_CLOEXEC))
		require.NoError(t, full.Close())
		return func() {
			require.NoError(t, syscall.Dup3(kept, fd, syscall.O_CLOEXEC))
			require.NoError(t, syscall.Close(kept))
		}
	}
	t.Fatal("no such file is open: " + path)
	return nil
}

// A disk that is full refuses changes, retryably; all else goes on, and when there is room again, changes do too.
func TestTheDiskIsFull(t *testing.T) {
	var ear heard
	dir := t.TempDir()
	st := begin(t, disk.Options{Dir: dir, Observer: &ear})
	g := running(t, st, "running", []byte("payload"))
	for range 3 {
		back := replaceFile(t, filepath.Join(dir, fileName))
		require.ErrorIs(t, enqueue(t, st, "j"), store.ErrUnavailable)
		require.Error(t, st.Err())
		_, err := st.Complete(t.Context(), "r", g, wire.Envelope{Raw: bytes.Repeat([]byte("r"), 1<<20)}, wire.DispositionOK)
		require.ErrorIs(t, err, store.ErrUnavailable)
		_, err = st.Job(t.Context(), "busy", "j")
		require.ErrorIs(t, err, store.ErrNotFound)
		_, err = st.Attach(t.Context(), store.Party{Role: store.RunnerRole, ID: "r"}, "session", 1<<40)
		require.NoError(t, err)
		held, err := st.Held(t.Context(), "r")
		require.NoError(t, err)
		require.Len(t, held, 1)
		back()
		for st.Err() != nil { // the next try is due within a quarter of a second; where the large one was tried, it is over in quiet
			_ = st.Collect(t.Context(), "busy", nil)
		}
	}
	require.NoError(t, enqueue(t, st, "j"))
	require.Len(t, ear.failed, 3)
	require.Equal(t, 3, ear.recovered)
	_, err := st.Complete(t.Context(), "r", g, wire.Envelope{Raw: []byte("r")}, wire.DispositionOK)
	require.NoError(t, err)
	require.NoError(t, st.Close())
	st = begin(t, disk.Options{Dir: dir})
	env, err := st.ResultEnvelope(t.Context(), "busy", g)
	require.NoError(t, err)
	require.Equal(t, "r", string(env.Raw))
}

// anonymous answers the memory that is this process' alone: mapped files aren't, they go when others need room.
func anonymous(t *testing.T) int64 {
	t.Helper()
	f, err := os.Open("/proc/self/status")
	require.NoError(t, err)
	defer f.Close()
	for in := bufio.NewScanner(f); in.Scan(); {
		if rest, ok := strings.CutPrefix(in.Text(), "RssAnon:"); ok {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			require.NoError(t, err)
			return n << 10
		}
	}
	t.Fatal("no RssAnon")
	return 0
}

// Envelopes wait on the disk, not in memory.
func TestLargeEnvelopesWaitOnDisk(t *testing.T) {
	count := 60
	if n, err := strconv.Atoi(os.Getenv("PUSHRELAY_TEST_ENVELOPES")); err == nil {
		count = n
	}
	const size = 6 << 20
	dir := t.TempDir()
	st := begin(t, disk.Options{Dir: dir, Settings: benchSettings()})
	debug.FreeOSMemory()
	before := anonymous(t)
	most := int64(0)
	grants := make([]wire.Grant, count)
	for i := range grants {
		grants[i] = running(t, st, fmt.Sprint("j", i), []byte("p"))
		raw := bytes.Repeat([]byte{byte(i)}, size)
		_, err := st.Complete(t.Context(), "r", grants[i], wire.Envelope{Raw: raw}, wire.DispositionOK)
		require.NoError(t, err)
		most = max(most, anonymous(t)-before)
	}
	var mem runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&mem)
	t.Logf("%d envelopes of %d MiB: at most %d MiB anonymous while they came, %d MiB on the heap now", count, size>>20, most>>20, mem.HeapAlloc>>20)
	require.Less(t, most, int64(300<<20))
	require.Less(t, mem.HeapAlloc, uint64(100<<20))
	require.NoError(t, st.Close())
	debug.FreeOSMemory()
	before = anonymous(t)
	st = begin(t, disk.Options{Dir: dir, Settings: benchSettings()})
	t.Logf("opened again: %d MiB anonymous", (anonymous(t)-before)>>20)
	require.Less(t, anonymous(t)-before, int64(300<<20))
	for i := 0; i < count; i += 9 {
		env, err := st.ResultEnvelope(t.Context(), "busy", grants[i])
		require.NoError(t, err)
		require.True(t, len(env.Raw) == size && env.Raw[0] == byte(i) && env.Raw[size-1] == byte(i))
	}
	start := time.Now()
	require.NoError(t, st.Collect(t.Context(), "busy", grants))
	t.Logf("all collected in %v", time.Since(start))
	stats, err := st.Stats(t.Context())
	require.NoError(t, err)
	require.Zero(t, stats.Bytes)
}
