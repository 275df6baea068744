//go:build unix

package serve

import (
	"os/signal"
	"syscall"
)

// ignoreFileLimit makes a limit on the size of files a full disk, which is no reason to end.
func ignoreFileLimit() { signal.Ignore(syscall.SIGXFSZ) }
