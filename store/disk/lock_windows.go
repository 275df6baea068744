package disk

import (
	"os"

	"golang.org/x/sys/windows"
)

const (
	noFollow = 0
	errHeld  = windows.ERROR_LOCK_VIOLATION

	// lockedHigh places the byte that is locked far behind what the holder wrote of itself, which others must be able to read.
	lockedHigh = 1
)

// tryLock takes the lock, which goes with the process, or answers errHeld.
func tryLock(f *os.File) error {
	return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0,
		&windows.Overlapped{OffsetHigh: lockedHigh})
}
