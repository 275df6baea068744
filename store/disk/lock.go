package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	lockName = "pushrelay.lock"
	lockWait = 3 * time.Second
	lockStep = 50 * time.Millisecond
)

// lock makes this process the only one that has the folder. What it writes into the file says who it is.
func lock(ctx context.Context, dir string) (*os.File, error) {
	path := filepath.Join(dir, lockName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(lockWait); ; {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			_ = f.Close()
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		if time.Now().After(end) {
			holder, _ := os.ReadFile(path)
			_ = f.Close()
			return nil, &LockedError{Path: dir, Holder: strings.TrimSpace(string(holder))}
		}
		select {
		case <-time.After(lockStep):
		case <-ctx.Done():
			_ = f.Close()
			return nil, ctx.Err()
		}
	}
	host, _ := os.Hostname()
	who := fmt.Sprintf("process %d on %s since %s\n", os.Getpid(), host, time.Now().UTC().Format(time.RFC3339))
	if err = f.Truncate(0); err == nil {
		_, err = f.WriteAt([]byte(who), 0)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// unlock gives the folder back. The file stays: whoever waits for it has it open.
func unlock(f *os.File) error { return errors.Join(f.Truncate(0), f.Close()) }
