package disk

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pushrelay/store"
	"pushrelay/wire"
)

// A clock that was ahead when the store was stopped takes no lease away and leaves none for a year; nor does what is
// finished stay so long.
func TestClockSetBack(t *testing.T) {
	p := newPlay(t)
	for _, a := range p.acts()[:9] {
		require.NoError(t, a.ignored(), a.name)
	}
	g := p.grant("a")
	_, err := p.s.Complete(t.Context(), playRunner, p.grant("b"), text1(10, "r"), "ok")
	require.NoError(t, err)
	require.NoError(t, p.s.Close())
	for _, step := range []time.Duration{-365 * 24 * time.Hour, 30 * time.Minute, -time.Minute, 0} {
		p.now = p.now.Add(step)
		s, err := Open(t.Context(), Options{Dir: filepath.Dir(p.s.path), Clock: func() time.Time { return p.now }})
		require.NoError(t, err)
		j, err := s.Job(t.Context(), playSite, "a")
		require.NoError(t, err)
		require.Equal(t, g.LeaseID, j.Lease)
		left := j.LeaseEnds.Sub(p.now)
		require.True(t, left >= 2*time.Minute && left <= 5*time.Minute, "%v of a lease are left after a step of %v", left, step)
		require.NoError(t, s.Close())
	}
	s, err := Open(t.Context(), Options{Dir: filepath.Dir(p.s.path), Clock: func() time.Time { return p.now }})
	require.NoError(t, err)
	p.now = p.now.Add(max(store.TombstoneMax, (store.Settings{}).WithDefaults().ResultRetention) + time.Second)
	_, err = s.Sweep(t.Context())
	require.NoError(t, err)
	_, err = s.Job(t.Context(), playSite, "b")
	require.ErrorIs(t, err, store.ErrNotFound)
	require.NoError(t, s.Close())
}

// What is read of a holder is what one of ours wrote, and nothing else is shown to a terminal.
func TestHolderOfALock(t *testing.T) {
	for name, c := range map[string]struct{ text, shown string }{
		"ours":    {"process 7 on host since then\n", "process 7 on host since then"},
		"nothing": {"", ""},
		"garbage": {"\x1b[2Jprocess\x00", ""},
		"lines":   {"a\nb", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := filepath.Join(dir, lockName)
			require.NoError(t, os.WriteFile(path, []byte(c.text), 0o600))
			f, err := os.Open(path)
			require.NoError(t, err)
			defer func() { require.NoError(t, f.Close()) }()
			require.NoError(t, syscall.Flock(int(f.Fd()), syscall.LOCK_EX))
			_, err = lock(t.Context(), dir)
			var locked *LockedError
			require.ErrorAs(t, err, &locked)
			require.Equal(t, LockedError{Path: dir, Holder: c.shown}, *locked)
		})
	}
}

// A lock that is a link is somebody else's file.
func TestLinkedLock(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "other")
	require.NoError(t, os.WriteFile(other, []byte("text"), 0o600))
	require.NoError(t, os.Symlink(other, filepath.Join(dir, lockName)))
	_, err := Open(t.Context(), Options{Dir: dir})
	require.ErrorIs(t, err, syscall.ELOOP)
	raw, err := os.ReadFile(other)
	require.NoError(t, err)
	require.Equal(t, "text", string(raw))
}

// A linked file is compacted where it is and keeps its mode; what an interrupted compaction left goes at the next start.
func TestCompactedInItsPlace(t *testing.T) {
	p := newPlay(t)
	for _, a := range p.acts()[:20] {
		require.NoError(t, a.ignored(), a.name)
	}
	held := p.holds()
	require.NoError(t, p.s.Close())
	dir, linked := filepath.Dir(p.s.path), filepath.Join(t.TempDir(), "elsewhere.db")
	raw, err := os.ReadFile(p.s.path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(linked, raw, 0o600))
	require.NoError(t, os.Chmod(linked, 0o640))
	require.NoError(t, os.Remove(p.s.path))
	require.NoError(t, os.Symlink(linked, p.s.path))

	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Compact(gone, dir)
	require.ErrorIs(t, err, context.Canceled)
	c, err := Compact(t.Context(), dir)
	require.NoError(t, err)
	require.Equal(t, int64(len(raw)), c.Before)
	info, err := os.Lstat(linked)
	require.NoError(t, err)
	require.Equal(t, c.After, info.Size())
	require.Equal(t, os.FileMode(0o640), info.Mode())

	left := p.s.path + compactSuffix
	require.NoError(t, os.WriteFile(left, raw[:5000], 0o600))
	s, err := Open(t.Context(), Options{Dir: dir})
	require.NoError(t, err)
	require.NoFileExists(t, left)
	require.Equal(t, held, holds(t, s.db))
	require.NoError(t, s.Close())
}

// An operation that nobody waits for any more keeps nothing, however long the queue stands still.
func TestWithdrawnOperationsKeepNothing(t *testing.T) {
	s := &Store{queue: queue{wake: make(chan struct{}, 1)}} // no committer: it hangs in the disk
	s.answers.New = func() any { return make(chan error, 1) }
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := s.Seal(ctx, playSite, wire.Grant{JobID: "a", LeaseID: "b"}, text1(1<<20, "x"))
		done <- err
	}()
	<-s.queue.wake
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	ops, _ := s.queue.take(nil)
	require.Len(t, ops, 1)
	require.Nil(t, ops[0].run)
}
