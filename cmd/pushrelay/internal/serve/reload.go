package serve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/rs/zerolog"

	"pushrelay/hub/projection"
)

const (
	// settle is how long a folder must be quiet before the file is read: writers change it in several steps.
	settle = 50 * time.Millisecond
	// patience is how long a file that changes without end is waited for.
	patience = time.Second
	// recheck finds changes that no notification told of, as on network file systems.
	recheck = 30 * time.Second
)

// reloader puts the projection's file in force whenever its contents change.
type reloader struct {
	path  string
	apply func(raw []byte) error
	log   zerolog.Logger
	now   chan struct{}
	// unreadable hears of each time that there was nothing to apply; may be nil.
	unreadable func()

	watcher *fsnotify.Watcher // nil: changes aren't told
	last    []byte            // what was read last, good or bad; the loop's
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

// open begins to watch. It watches the folder rather than the file: a rename over the file, and the links that
// orchestrators swap, would leave a watch on what is gone.
func (r *reloader) open() error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	if err := watcher.Add(filepath.Dir(r.path)); err != nil {
		return errors.Join(err, watcher.Close())
	}
	r.watcher = watcher
	return nil
}

// run reads the file when it changed, until ctx ends. Without open it still reads it now and then.
func (r *reloader) run(ctx context.Context) {
	var events <-chan fsnotify.Event
	var errs <-chan error
	if r.watcher != nil {
		defer r.watcher.Close()
		events, errs = r.watcher.Events, r.watcher.Errors
	}
	timer := time.NewTimer(recheck)
	defer timer.Stop()
	var since time.Time // the first change that wasn't read yet
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-events:
			if !r.concerns(event.Name) {
				continue
			}
			if since.IsZero() || time.Since(since) < patience {
				timer.Reset(settle)
			}
			if since.IsZero() {
				since = time.Now()
			}
		case err := <-errs:
			r.log.Warn().Err(err).Str("event", "projection-watch").Msg("the watch on the projection's folder stumbled")
			timer.Reset(settle)
		case <-timer.C:
			since = time.Time{}
			r.check(false)
			timer.Reset(recheck)
		case <-r.now:
			r.check(true)
		}
	}
}

// concerns reports whether a change in the folder may be the file's: by its name, or by a link of an orchestrator, whose
// names begin with two dots.
func (r *reloader) concerns(name string) bool {
	base := filepath.Base(name)
	return base == filepath.Base(r.path) || strings.HasPrefix(base, "..")
}

// check reads the file and applies it when it changed or when it is asked for; what can't be used changes nothing.
func (r *reloader) check(always bool) {
	raw, err := readProjection(r.path)
	if !always && bytes.Equal(raw, r.last) {
		return // as it was, or as unreadable as it was
	}
	r.last = raw
	if err == nil {
		err = r.apply(raw)
	} else if r.unreadable != nil {
		r.unreadable()
	}
	if err != nil {
		r.log.Error().Err(err).Str("event", "projection-kept").Str("path", r.path).
			Msg("the projection's file can't be used; the one in force stays")
	}
}
