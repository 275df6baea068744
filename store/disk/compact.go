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
	info, err := os.Stat(path)
	if err != nil {
		return c, err
	}
	c.Before = info.Size()
	fresh := path + ".compact"
	if err := remove(fresh); err != nil {
		return c, err
	}
	if err := copyTo(fresh, path); err != nil {
		return c, errors.Join(err, remove(fresh))
	}
	if info, err = os.Stat(fresh); err != nil {
		return c, err
	}
	c.After = info.Size()
	return c, replace(fresh, path)
}

// remove removes a file that may not be there.
func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// copyTo writes what a file holds into a fresh one.
func copyTo(fresh, path string) error {
	from, err := openFile(path, true)
	if err != nil {
		return err
	}
	to, err := bbolt.Open(fresh, 0o600, boltOptions(false))
	if err != nil {
		return errors.Join(err, from.Close())
	}
	err = guard(func() error { return bbolt.Compact(to, from, compactBytes) })
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
