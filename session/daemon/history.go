package daemon

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"pushrelay/wire"
)

const (
	historyName = "finished.log"
	historyPast = "finished.old.log"
	historyMax  = 4096 // grants in one file; there are two
	historyLine = 4 << 10
)

// history records finished grants on disk, so that none is run again: at least the last 4,096, at most twice as many.
// Lock order: disk, then mu.
type history struct {
	dir  string
	disk sync.Mutex // guards file, held while it is written
	file *os.File

	mu        sync.Mutex // guards the maps
	now, past map[wire.Grant]struct{}
}

// openHistory reads both files; lines that can't be read are counted and skipped.
func openHistory(dir string) (h *history, skipped int, err error) {
	h = &history{dir: dir}
	var bad int
	if h.past, skipped, err = readHistory(filepath.Join(dir, historyPast)); err != nil {
		return nil, 0, err
	}
	if h.now, bad, err = readHistory(filepath.Join(dir, historyName)); err != nil {
		return nil, 0, err
	}
	h.file, err = os.OpenFile(filepath.Join(dir, historyName), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, 0, fmt.Errorf("daemon: the record of finished grants can't be opened: %w", err)
	}
	if len(h.now)+bad > 0 { // a last line that is torn, or whole but for its end, must not swallow the next one
		_, err = h.file.WriteString("\n")
	}
	return h, skipped + bad, err
}

func readHistory(path string) (map[wire.Grant]struct{}, int, error) {
	out, skipped := map[wire.Grant]struct{}{}, 0
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return out, 0, nil
	}
	if err != nil {
		return nil, 0, fmt.Errorf("daemon: the record of finished grants can't be read: %w", err)
	}
	defer func() { _ = f.Close() }() // read only
	lines := bufio.NewScanner(f)
	lines.Buffer(make([]byte, 0, historyLine), historyLine)
	for lines.Scan() && len(out) < 2*historyMax {
		if len(lines.Bytes()) == 0 {
			continue
		}
		g, err := wire.Decode[wire.Grant](lines.Bytes())
		if err != nil || g.JobID == "" || g.LeaseID == "" {
			skipped++
			continue
		}
		out[g] = struct{}{}
	}
	if lines.Err() != nil {
		skipped++ // an endless line: what follows is lost, which only costs a check
	}
	return out, skipped, nil
}

func (h *history) has(g wire.Grant) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, a := h.now[g]
	_, b := h.past[g]
	return a || b
}

// add records a grant; an error means that only the disk doesn't know it.
func (h *history) add(g wire.Grant) error {
	h.disk.Lock()
	defer h.disk.Unlock()
	if h.has(g) {
		return nil
	}
	h.mu.Lock()
	h.now[g] = struct{}{}
	full := len(h.now) >= historyMax
	h.mu.Unlock()
	line, err := wire.Encode(g)
	if err != nil {
		return err
	}
	if _, err := h.file.Write(append(line, '\n')); err != nil {
		return err
	}
	if err := h.file.Sync(); err != nil {
		return err
	}
	if full {
		return h.turn()
	}
	return nil
}

// turn makes the current file the past one. disk is held.
func (h *history) turn() error {
	h.mu.Lock()
	h.past, h.now = h.now, map[wire.Grant]struct{}{}
	h.mu.Unlock()
	current := filepath.Join(h.dir, historyName)
	err := errors.Join(h.file.Close(), os.Rename(current, filepath.Join(h.dir, historyPast)))
	f, openErr := os.OpenFile(current, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if openErr == nil {
		h.file = f
	}
	return errors.Join(err, openErr)
}

func (h *history) close() error { return h.file.Close() }
