package disk

import (
	"bytes"
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
	tail  tail
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
	c, err := readContents(tx, &l.state)
	if err != nil {
		return &ForeignError{Path: s.path, Reason: err.Error()}
	}
	known := newSharer()
	last := uint64(0)
	longest := max(s.set.WithDefaults().ResultRetention, store.TombstoneMax)
	l.tail = tail{loose: make(map[uint64]*loose, len(c.newest))}
	err = c.each(func(seq uint64, v []byte, based, inLog bool) error {
		last = max(last, seq)
		lo := &loose{gone: v == nil, based: based}
		if inLog {
			l.tail.loose[seq] = lo
		}
		if v == nil {
			return nil
		}
		r, err := decodeRecord(seq, v, known, l.state.down)
		if r.State == store.Done { // a clock that was ahead mustn't keep it for longer than it may stay
			r.KeepUntil = min(r.KeepUntil, now.Add(longest).UnixNano())
		}
		if err == nil {
			if lo.rec = l.m.Load(r); lo.rec == nil {
				err = errTwice
			}
		}
		if err != nil {
			lo.raw = bytes.Clone(v)
			c.leave(seq)
			s.observer.Unreadable(seq, err)
			return nil
		}
		c.locate(payloadKind, lo.rec.Payload)
		c.locate(resultKind, lo.rec.Result)
		return nil
	})
	if err != nil {
		return err
	}
	l.tail.entries = c.entries
	for i := range c.entries {
		l.tail.bytes += c.entries[i].bytes
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
