package disk

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"
)

// Compacted is a file's size before and after Compact.
type Compacted struct{ Before, After int64 }

// compactBytes is how much one transaction of a compaction writes.
const compactBytes = 8 << 20

// Compact writes the store in a folder anew, without the room that nothing uses. The store must be stopped. The old file
// stands until the new one is whole and written, and nothing is lost when it is interrupted. Errors are Open's.
func Compact(ctx context.Context, dir string) (c Compacted, err error) {
	path, held, err := holdDir(ctx, dir)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, unlock(held)) }()
	if path, err = filepath.EvalSymlinks(path); err != nil { // what a link names is made small where it is
		return c, err
	}
	fresh := path + compactSuffix
	if err := remove(fresh); err != nil {
		return c, err
	}
	if c, err = copyTo(ctx, fresh, path); err != nil {
		return c, errors.Join(err, remove(fresh))
	}
	return c, replace(fresh, path)
}

// compactSuffix is what the name of a file has that is being compacted.
const compactSuffix = ".compact"

// remove removes a file that may not be there.
func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// copyTo writes what a file holds into a fresh one, which gets its owner and mode.
func copyTo(ctx context.Context, fresh, path string) (c Compacted, err error) {
	was, err := os.Stat(path)
	if err != nil {
		return c, err
	}
	if err = copyAll(ctx, fresh, path); err != nil {
		return c, err
	}
	f, err := os.OpenFile(fresh, os.O_RDWR, 0)
	if err != nil {
		return c, err
	}
	err = give(f, was)
	if err == nil {
		err = f.Chmod(was.Mode().Perm())
	}
	is, statErr := f.Stat()
	if err = errors.Join(err, statErr, f.Sync(), f.Close()); err != nil {
		return c, err
	}
	return Compacted{was.Size(), is.Size()}, nil
}

func copyAll(ctx context.Context, fresh, path string) error {
	from, err := openFile(path, true)
	if err != nil {
		return err
	}
	if err := judgeLog(from, path); err != nil {
		return errors.Join(err, from.Close())
	}
	to, err := bbolt.Open(fresh, 0o600, boltOptions(false))
	if err != nil {
		return errors.Join(err, from.Close())
	}
	stop := context.AfterFunc(ctx, func() { _ = to.Close() }) // the next transaction isn't begun then
	err = guard(func() error { return bbolt.Compact(to, from, compactBytes) })
	if !stop() {
		err = ctx.Err()
	}
	return errors.Join(err, to.Close(), from.Close())
}

// holdDir locks the folder of a store that must be there.
func holdDir(ctx context.Context, dir string) (path string, held *os.File, err error) {
	path = filepath.Join(dir, fileName)
	if _, err := os.Stat(path); err != nil {
		return path, nil, err
	}
	held, err = lock(ctx, dir)
	return path, held, err
}
