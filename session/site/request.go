package site

import (
	"cmp"
	"context"
	"errors"
	"runtime"

	"pushrelay/session"
	"pushrelay/wire"
)

// ErrStopped means that Run is over, so that nothing can be sent any more.
var ErrStopped = errors.New("site: stopped")

func compare(a, b uint64) int { return cmp.Compare(a, b) }

func (c *Config) clientInfo() wire.ClientInfo {
	return wire.ClientInfo{Name: c.Name, Version: c.Version, Platform: runtime.GOOS + "/" + runtime.GOARCH}
}

// ended reports that there is no answer because the session, or our patience, ended.
func ended(err error) bool {
	return errors.Is(err, session.ErrEnded) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
