//go:build linux && mount

package crash

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A file system of its own that is full. It needs root, so it is built only where that is promised: `make fulldisk`.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, syscall.Mount("pushrelay-test", dir, "tmpfs", 0, "size=16m"))
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, 0)) })
	ballast := filepath.Join(dir, "ballast")
	outlast(t, outage{
		data:    filepath.Join(dir, "data"),
		block:   func(w *world) { fill(w.t, ballast) },
		unblock: func(w *world) { require.NoError(w.t, os.Remove(ballast)) },
		says:    "no space left on device",
	})
}

// fill writes until there is no room left.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	require.NoError(t, err)
	block := make([]byte, 64<<10)
	for len(block) > 0 {
		if _, err = f.Write(block); err != nil {
			block = block[:len(block)/2]
		}
	}
	require.ErrorIs(t, errors.Join(err, f.Close()), syscall.ENOSPC)
}
