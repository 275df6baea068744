package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/rs/zerolog"

	"pushrelay/hub/projection"
)

const (
	// settle is how long a folder must be quiet before the file is read: writers change it in several steps.
	settle = 50 * time.Millisecond
	// recheck finds changes that no notification told of, as on network file systems.
	recheck = 30 * time.Second
)

// reloader puts the projection's file in force whenever its contents change.
type reloader struct {
	path  string
	apply func(raw []byte) error
	log   zerolog.Logger
	last  []byte // what was read last, good or bad; the loop's
	now   chan struct{}
}

func newReloader(path string, first []byte, apply func([]byte) error, log zerolog.Logger) *reloader {
	return &reloader{path: path, last: first, apply: apply, log: log, now: make(chan struct{}, 1)}
}

// readProjection reads a projection's file, within what a projection may have.
func readProjection(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("the projection can't be read: %w", err)
	}
	defer file.Close()
	raw, err := io.ReadAll(io.LimitReader(file, projection.MaxBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the projection can't be read: %w", err)
	case len(raw) > projection.MaxBytes:
		return nil, fmt.Errorf("the projection in %s has over %d bytes", path, projection.MaxBytes)
	}
	return raw, nil
}

// Now asks for the file to be read again even when it didn't change, which puts it back in force after a push.
func (r *reloader) Now() {
	select {
	case r.now <- struct{}{}:
	default: // one is under way
	}
}

// run watches the folder rather than the file: a rename over the file, and the links that orchestrators swap, would
// leave a watch on what is gone. It ends with ctx.
func (r *reloader) run(ctx context.Context) {
	events := make(<-chan fsnotify.Event)
	errs := make(<-chan error)
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		defer watcher.Close()
		err = watcher.Add(filepath.Dir(r.path))
		events, errs = watcher.Events, watcher.Errors
	}
	if err != nil {
		r.log.Warn().Err(err).Str("event", "projection-unwatched").Dur("recheck", recheck).
			Msg("changes of the projection's folder aren't told; the file is read now and then, and at SIGHUP")
	}
	timer := time.NewTimer(recheck)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-events:
			timer.Reset(settle)
		case err := <-errs:
			r.log.Warn().Err(err).Str("event", "projection-watch").Msg("the watch on the projection's folder stumbled")
			timer.Reset(settle)
		case <-timer.C:
			r.check(false)
			timer.Reset(recheck)
		case <-r.now:
			r.check(true)
		}
	}
}

// check reads the file and applies it when it changed or when it is asked for; what can't be used changes nothing.
func (r *reloader) check(always bool) {
	raw, err := readProjection(r.path)
	if err == nil && !always && string(raw) == string(r.last) {
		return
	}
	if err == nil {
		r.last = raw
		err = r.apply(raw)
	} else if errors.Is(err, os.ErrNotExist) && !always && r.last == nil {
		return // said already
	} else {
		r.last = nil
	}
	if err != nil {
		r.log.Error().Err(err).Str("event", "projection-kept").Str("path", r.path).
			Msg("the projection's file can't be used; the one in force stays")
	}
}
