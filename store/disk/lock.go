package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"
)

const (
	lockName = "pushrelay.lock"
	lockWait = 3 * time.Second
	lockStep = 50 * time.Millisecond
)

// lock makes this process the only one that has the folder. What it writes into the file says who it is.
func lock(ctx context.Context, dir string) (*os.File, error) {
	path := filepath.Join(dir, lockName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|noFollow, 0o600)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(dir); err == nil && os.Geteuid() == 0 {
		_ = give(f, info)
	}
	for end := time.Now().Add(lockWait); ; {
		err = tryLock(f)
		if err == nil {
			break
		}
		if !errors.Is(err, errHeld) {
			_ = f.Close()
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		if time.Now().After(end) {
			holder := holderOf(f)
			_ = f.Close()
			return nil, &LockedError{Path: dir, Holder: holder}
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
	if f.Truncate(0) == nil {
		_, _ = f.WriteAt([]byte(who), 0) // a full disk has no room for it, and is no reason not to begin
	}
	return f, nil
}

// maxHolder bounds what is read of a holder: anybody may have written to the file.
const maxHolder = 256

// holderOf answers what the holder of a lock wrote of itself, "" for what none of ours wrote.
func holderOf(f *os.File) string {
	b := make([]byte, maxHolder)
	n, _ := f.ReadAt(b, 0)
	who := strings.TrimSpace(string(b[:n]))
	if strings.ContainsFunc(who, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return ""
	}
	return who
}

// unlock gives the folder back. The file stays: whoever waits for it has it open.
func unlock(f *os.File) error { return errors.Join(f.Truncate(0), f.Close()) }
