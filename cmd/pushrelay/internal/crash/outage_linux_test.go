package crash

import (
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// A limit on the size of files stands for a full disk where nothing can be mounted: no file may be written to.
func TestNothingCanBeWritten(t *testing.T) {
	t.Parallel()
	var before syscall.Rlimit
	outlast(t, outage{
		block: func(w *world) {
			before = limitFiles(w, nil)
			none := syscall.Rlimit{Cur: 0, Max: before.Max}
			limitFiles(w, &none)
		},
		unblock: func(w *world) { limitFiles(w, &before) },
		says:    "file too large",
		total:   true,
	})
}

// limitFiles sets how large files the relay may write, in bytes, when next isn't nil, and answers what it was.
func limitFiles(w *world, next *syscall.Rlimit) (was syscall.Rlimit) {
	w.t.Helper()
	_, _, errno := syscall.Syscall6(syscall.SYS_PRLIMIT64, uintptr(w.relay.cmd.Process.Pid), syscall.RLIMIT_FSIZE,
		uintptr(unsafe.Pointer(next)), uintptr(unsafe.Pointer(&was)), 0, 0)
	require.Zero(w.t, errno)
	return was
}
