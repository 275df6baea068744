//go:build unix

package disk

import (
	"os"
	"syscall"
)

const (
	noFollow = syscall.O_NOFOLLOW
	errHeld  = syscall.EWOULDBLOCK
)

// tryLock takes the lock, which goes with the process, or answers errHeld.
func tryLock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }
