package daemon

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"pushrelay/wire"
)

const (
	resultSuffix  = ".json"
	corruptSuffix = ".corrupt"
	tempPrefix    = ".new-"
	recordVersion = 1
	maxRecord     = wire.MaxEnvelopeBytes + 64<<10
)

var errCorrupt = errors.New("daemon: the result file is damaged")

// record is a finished result without its envelope, which stays on disk until it is sent.
type record struct {
	Version     int                 `json:"v"`
	Grant       wire.Grant          `json:"grant"`
	Site        string              `json:"site"`     // key id that the stub named
	SealedTo    wire.PublicIdentity `json:"sealedTo"` // an error that takes the result's place is sealed to it as well
	DeadlineAt  int64               `json:"deadlineAt"`
	Disposition string              `json:"disposition"`

	size int    // of the envelope, bytes
	kept []byte // the envelope, when it couldn't be written
}

// stored is a record as its file has it.
type stored struct {
	record
	Envelope jsontext.Value `json:"envelope"`
}

// shelf keeps finished results in a directory. Its methods may be called from any goroutine; one grant has one caller.
type shelf struct{ dir string }

// openShelf makes the directory and answers what is in it; damaged files are set aside and told to bad.
func openShelf(dir string, bad func(name string, err error)) (*shelf, []*record, error) {
	s := &shelf{dir: dir}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("daemon: the directory for results can't be made: %w", err)
	}
	if err := syncDir(filepath.Dir(dir)); err != nil { // what is kept in it is as safe as its own name
		return nil, nil, fmt.Errorf("daemon: the directory for results can't be kept: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("daemon: the directory for results can't be read: %w", err)
	}
	var out []*record
	for _, e := range entries {
		name := e.Name()
		switch {
		case strings.HasPrefix(name, tempPrefix):
			_ = os.Remove(filepath.Join(dir, name)) // never finished, so never sent
		case strings.HasSuffix(name, resultSuffix) && e.Type().IsRegular():
			r, err := s.read(name)
			if err != nil {
				bad(name, errors.Join(err, os.Rename(filepath.Join(dir, name), filepath.Join(dir, name+corruptSuffix))))
				continue
			}
			out = append(out, &r.record)
		}
	}
	return s, out, nil
}

func (s *shelf) read(name string) (stored, error) {
	f, err := os.Open(filepath.Join(s.dir, name))
	if err != nil {
		return stored{}, err
	}
	defer func() { _ = f.Close() }() // read only
	raw, err := io.ReadAll(io.LimitReader(f, maxRecord+1))
	if err != nil {
		return stored{}, err
	}
	if len(raw) > maxRecord {
		return stored{}, errCorrupt
	}
	r, err := wire.Decode[stored](raw)
	if err != nil || r.Version != recordVersion || resultName(r.Grant) != name || r.SealedTo.Verify() != nil {
		return stored{}, errCorrupt
	}
	e, err := wire.ParseEnvelope(r.Envelope)
	if err != nil || e.Direction != wire.DirectionResult || e.DeadlineAt != r.DeadlineAt {
		return stored{}, errCorrupt
	}
	r.size = len(r.Envelope)
	return r, nil
}

// put writes a result so that it survives a crash once put returned.
func (s *shelf) put(r *record, envelope []byte) error {
	raw, err := wire.Encode(stored{record: *r, Envelope: envelope})
	if err != nil {
		return fmt.Errorf("daemon: the result can't be written down: %w", err)
	}
	f, err := os.CreateTemp(s.dir, tempPrefix) // mode 0600
	if err != nil {
		return fmt.Errorf("daemon: the result can't be kept: %w", err)
	}
	_, err = f.Write(raw)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(s.dir, resultName(r.Grant)))
	}
	if err != nil {
		return fmt.Errorf("daemon: the result can't be kept: %w", errors.Join(err, os.Remove(f.Name())))
	}
	return syncDir(s.dir)
}

// envelope reads a result's envelope back.
func (s *shelf) envelope(r *record) ([]byte, error) {
	if r.kept != nil {
		return r.kept, nil
	}
	got, err := s.read(resultName(r.Grant))
	return got.Envelope, err
}

// drop forgets a result; it isn't there any more when drop returned.
func (s *shelf) drop(g wire.Grant) error {
	err := os.Remove(filepath.Join(s.dir, resultName(g)))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// resultName is a grant's file name: ids may hold any character, and a name that is too long for a file.
func resultName(g wire.Grant) string {
	h := sha256.New()
	_ = binary.Write(h, binary.BigEndian, uint32(len(g.JobID))) // a hash doesn't fail
	_, _ = io.WriteString(h, g.JobID)
	_, _ = io.WriteString(h, g.LeaseID)
	return hex.EncodeToString(h.Sum(nil)) + resultSuffix
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
