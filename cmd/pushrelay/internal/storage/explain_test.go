package storage

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"pushrelay/cmd/pushrelay/internal/app"
	"pushrelay/store/disk"
)

func TestExplain(t *testing.T) {
	failed := func(err error) error { return &fs.PathError{Op: "open", Path: "/d/pushrelay.lock", Err: err} }
	cases := []struct {
		name string
		err  error
		code int
		want string
	}{
		{"nothing", nil, app.ExitOK, ""},
		{"in use", &disk.LockedError{}, app.ExitLocked, "stop that one"},
		{"damaged", &disk.ForeignError{}, app.ExitDamaged, "docs/storage.md"},
		{"another format", &disk.VersionError{}, app.ExitFormat, ""},
		{"no permission", failed(syscall.EACCES), app.ExitUsage, "able to write"},
		{"a read-only disk", failed(syscall.EROFS), app.ExitUsage, "able to write"},
		{"anything else", errors.New("odd"), app.ExitFailed, "odd"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			err := Explain("/d", c.err)
			if app.CodeOf(err) != c.code || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("code %d, %v", app.CodeOf(err), err)
			}
		})
	}
}
