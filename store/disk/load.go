package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/bbolt"

	"pushrelay/store"
	"pushrelay/store/memory"
)

// loaded is what a file holds.
type loaded struct {
	m     *memory.Machine
	epoch string
	state state
}

var errTwice = errors.New("another record has its key or its lease")

// load makes a machine of what a file holds. What can't be read is left out and told of.
func (s *Store) load(db *bbolt.DB) (*loaded, error) {
	now := s.clock()
	l := &loaded{m: memory.NewMachine(s.set, now)}
	err := guard(func() error { return db.View(func(tx *bbolt.Tx) error { return s.read(tx, l, now) }) })
	if err != nil {
		return nil, err
	}
	return l, nil
}

func (s *Store) read(tx *bbolt.Tx, l *loaded, now time.Time) (err error) {
	l.epoch = string(tx.Bucket([]byte(metaBucket)).Get([]byte(epochKey)))
	if l.state, err = readState(tx); err != nil {
		return &ForeignError{Path: s.path, Reason: "its state can't be read"}
	}
	if at := l.state.at; at != 0 {
		l.state.down += uint64(now.UnixNano() - at)
	}
	known := newSharer()
	last := uint64(0)
	longest := max(s.set.WithDefaults().ResultRetention, store.TombstoneMax)
	err = tx.Bucket([]byte(jobBucket)).ForEach(func(k, v []byte) error {
		if len(k) != 8 {
			s.observer.Unreadable(0, errUnreadable)
			return nil
		}
		last = binary.BigEndian.Uint64(k)
		r, err := decodeRecord(last, v, known, l.state.down)
		if r.State == store.Done { // a clock that was ahead mustn't keep it for longer than it may stay
			r.KeepUntil = min(r.KeepUntil, now.Add(longest).UnixNano())
		}
		if err == nil && !l.m.Load(r) {
			err = errTwice
		}
		if err != nil {
			s.observer.Unreadable(last, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = tx.Bucket([]byte(streakBucket)).ForEach(func(k, v []byte) error {
		streak, err := decodeStreak(k, v)
		if err != nil {
			s.observer.Unreadable(0, fmt.Errorf("a refusal streak: %w", err))
			return nil
		}
		l.m.LoadStreak(streak)
		return nil
	})
	l.m.Loaded(max(l.state.seq, last), l.state.ceiling)
	return err
}
