// Package storage is what a person does about the files of the disk store: what their errors mean, what is in them, and
// making them small again.
package storage

import (
	"errors"
	"io/fs"
	"syscall"

	"pushrelay/cmd/pushrelay/internal/app"
	"pushrelay/store/disk"
)

// Explain gives an error of opening the store in a folder its exit code and says what to do about it.
func Explain(dir string, err error) error {
	var locked *disk.LockedError
	var foreign *disk.ForeignError
	var version *disk.VersionError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &locked):
		return app.Exitf(app.ExitLocked, "%w; a folder belongs to one process at a time: stop that one, or name another folder", err)
	case errors.As(err, &foreign):
		return app.Exitf(app.ExitDamaged, "%w; put a copy back as docs/storage.md says, or name an empty folder, which forgets all jobs in flight", err)
	case errors.As(err, &version):
		return app.Exitf(app.ExitFormat, "%w", err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return app.Usagef("the folder %s can't be used: %w; this user must be able to write in it, also to look into it; or name another one", dir, err)
	}
	return app.Exitf(app.ExitFailed, "the store in %s can't be opened: %w", dir, err)
}
