//go:build !unix

package daemon

import (
	"fmt"
	"os"
	"path/filepath"
)

// lockDir makes dir; on systems without advisory locks nothing keeps a second daemon out.
func lockDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("daemon: the state folder can't be made: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("daemon: the state folder can't be used: %w", err)
	}
	return f, nil
}
