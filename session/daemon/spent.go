package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"pushrelay/wire"
)

const (
	spentName = "spent-grants.log"
	spentMax  = 4096 // entries of which at most half are still of interest, before the file is written anew
	// spentFor is how long a grant may be taken: after it, the record isn't needed.
	spentFor = (wire.GrantMaxAgeMs + wire.GrantAheadMs) * time.Millisecond
)

// errSpent means that the grant was taken before; errUnsure that the record of taken ones was damaged a moment ago.
var (
	errSpent  = errors.New("daemon: the grant was used before")
	errUnsure = errors.New("daemon: the record of used grants was damaged; grants are taken again when those in it are too old")
)

// spent records on disk which of the control plane's grants were taken, so that none is taken twice, after a crash neither.
// A record that was damaged is worth nothing, so nothing is taken until all grants that it may have named are too old.
// Lock order: disk, then mu.
type spent struct {
	path string
	disk sync.Mutex // guards file, held while it is written
	file *os.File

	mu     sync.Mutex
	until  map[string]time.Time // by grant id: when it doesn't matter any more
	unsure time.Time            // until then nothing is taken
	lines  int                  // in the file
	torn   bool                 // a write failed: the file is written anew before anything else
}

// spentLine is one line of the file: a grant, or that the record was damaged.
type spentLine struct {
	GrantID string `json:"grantId,omitzero"` // empty: nothing is taken until then
	Until   int64  `json:"until"`            // epoch ms
}

func openSpent(dir string, now time.Time) (s *spent, damaged bool, err error) {
	s = &spent{path: filepath.Join(dir, spentName), until: map[string]time.Time{}}
	raw, err := os.ReadFile(s.path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, false, fmt.Errorf("daemon: the record of used grants can't be read: %w", err)
	}
	// What follows the last line's end was never relied on: a grant is taken only once its whole line is on the disk.
	end := bytes.LastIndexByte(raw, '\n') + 1
	for line := range bytes.Lines(raw[:end]) {
		l, err := wire.Decode[spentLine](bytes.TrimSuffix(line, []byte("\n")))
		until := time.UnixMilli(l.Until)
		switch {
		case err != nil || l.Until <= 0 || l.GrantID == "" && until.After(now.Add(spentFor)):
			damaged = true
		case !until.After(now):
		case l.GrantID == "":
			s.unsure = until
		default:
			s.until[l.GrantID] = until
		}
	}
	if damaged {
		s.unsure = now.Add(spentFor)
	}
	return s, damaged, s.rewrite()
}

// rewrite writes the file anew with what still matters, and goes on there. disk is held, or nobody else has s yet.
func (s *spent) rewrite() error {
	var text []byte
	s.mu.Lock()
	lines := len(s.until)
	if !s.unsure.IsZero() {
		text = appendSpent(text, "", s.unsure)
	}
	for id, until := range s.until {
		text = appendSpent(text, id, until)
	}
	s.mu.Unlock()
	temp := s.path + ".new"
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("daemon: the record of used grants can't be written: %w", err)
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Sync())
	if err == nil {
		err = os.Rename(temp, s.path)
	}
	if err == nil {
		err = syncDir(filepath.Dir(s.path)) // or what is written from now on may be in a file without a name
	}
	if err != nil {
		return fmt.Errorf("daemon: the record of used grants can't be written: %w", errors.Join(err, f.Close()))
	}
	if s.file != nil {
		_ = s.file.Close() // all of it was written through
	}
	s.file = f
	s.mu.Lock()
	s.lines, s.torn = lines, false
	s.mu.Unlock()
	return nil
}

func appendSpent(dst []byte, id string, until time.Time) []byte {
	line, _ := wire.Encode(spentLine{GrantID: id, Until: until.UnixMilli()}) // plain strings encode
	return append(append(dst, line...), '\n')
}

// check reports whether a grant may be taken now.
func (s *spent) check(id string, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.checkLocked(id, now)
}

func (s *spent) checkLocked(id string, now time.Time) error {
	if now.Before(s.unsure) {
		return errUnsure
	}
	if until, ok := s.until[id]; ok && now.Before(until) {
		return errSpent
	}
	return nil
}

// burn takes grants, and answers those that may be used because they are on the disk now and weren't taken before. Whatever
// fails, none that it was given is usable a second time.
func (s *spent) burn(grants []*wire.SignedGrant, now time.Time) (good []bool, err error) {
	good = make([]bool, len(grants))
	s.disk.Lock()
	defer s.disk.Unlock()
	var text []byte
	s.mu.Lock()
	for i, g := range grants {
		if s.checkLocked(g.GrantID, now) != nil {
			continue
		}
		until := time.UnixMilli(g.IssuedAt).Add(spentFor)
		s.until[g.GrantID] = until
		s.lines++
		text = appendSpent(text, g.GrantID, until)
		good[i] = true
	}
	full := s.lines >= spentMax
	if full {
		for id, until := range s.until {
			if !now.Before(until) {
				delete(s.until, id)
			}
		}
		full = s.lines >= 2*len(s.until)
	}
	full = full || s.torn
	s.mu.Unlock()
	switch {
	case full: // it holds the new ones, too
		err = s.rewrite()
	case len(text) > 0:
		if _, err = s.file.Write(text); err == nil {
			err = s.file.Sync()
		}
	}
	if err != nil {
		s.mu.Lock()
		s.torn = true
		s.mu.Unlock()
		return make([]bool, len(grants)), err
	}
	return good, nil
}

func (s *spent) close() error { return s.file.Close() }
