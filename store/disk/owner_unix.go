//go:build unix

package disk

import (
	"os"
	"syscall"
)

// give makes a file whose another one is: what root makes in a relay's folder, that relay must be able to open.
func give(f *os.File, like os.FileInfo) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	is, ok := info.Sys().(*syscall.Stat_t)
	want, known := like.Sys().(*syscall.Stat_t)
	if !ok || !known || is.Uid == want.Uid && is.Gid == want.Gid {
		return nil
	}
	return f.Chown(int(want.Uid), int(want.Gid))
}
