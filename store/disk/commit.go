package disk

import (
	"errors"
	"fmt"
	"hash/crc32"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"

	"pushrelay/store"
	"pushrelay/store/memory"
)

// step is a moment at which a test lets a commit fail.
type step int

const (
	beforeCommit step = iota + 1 // nothing was written
	afterCommit                  // all was written, and then it's told as failed
	fileOpened                   // again, after a commit of which nobody knew
)

func (s *Store) fails(at step) error {
	if s.fault == nil {
		return nil
	}
	return s.fault(at)
}

// reserve is how many sessions' numbers one commit sets aside.
const reserve = 1 << 20

// commit writes what fill puts into a transaction, and the state. An error says that it isn't in the file, or, with
// s.out.uncertain, that it may be. mu is held, but not while the file is written.
func (s *Store) commit(fill func(*bbolt.Tx) error) error {
	defer s.spend(time.Now())
	if s.db == nil {
		return errors.New("the file isn't open")
	}
	next := state{commits: s.commits + 1, seq: s.m.Seq(), ceiling: s.ceiling, down: s.down, at: s.clock().UnixNano()}
	if next.ceiling < s.m.Number()+reserve/2 {
		next.ceiling = s.m.Number() + reserve
	}
	s.page.reset(next.commits)
	err := s.aside(func() error { return guard(func() error { return s.write(fill, &next) }) })
	for _, e := range s.fresh {
		if err == nil {
			e.Raw = nil // it is in the file
		}
	}
	clear(s.fresh)
	s.fresh, s.arena = s.fresh[:0], s.arena[:0]
	if cap(s.arena) > 1<<20 {
		s.arena = nil
	}
	s.written(&s.page, err)
	if err == nil {
		s.commits, s.ceiling = next.commits, next.ceiling
	}
	s.buried(err)
	return err
}

// spend notes how long something took that others waited for.
func (s *Store) spend(since time.Time) { s.spent = time.Since(since) }

// aside lets f write while others may ask for what is committed for certain.
func (s *Store) aside(f func() error) error {
	if s.out.uncertain {
		return f()
	}
	s.writing = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.writing = false
	}()
	return f()
}

// buried gives the database up when it panicked: its locks may be held for ever.
func (s *Store) buried(err error) {
	if p := (*panicError)(nil); errors.As(err, &p) && s.dead.CompareAndSwap(false, true) {
		s.err.Store(outcome{err})
	}
}

func (s *Store) write(fill func(*bbolt.Tx) error, next *state) error {
	tx, err := s.db.Begin(true)
	if err != nil {
		return err
	}
	err = fill(tx)
	if err == nil {
		next.entries = s.length()
		err = tx.Bucket([]byte(metaBucket)).Put([]byte(stateKey), s.keep(next.append))
	}
	if err == nil {
		err = s.fails(beforeCommit)
	}
	if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	if err = tx.Commit(); err == nil {
		err = s.fails(afterCommit)
	}
	if err != nil {
		s.out.uncertain = s.out.uncertain || !s.stands()
	}
	return err
}

// stands reports whether the file certainly has the state of the last commit that was told as done.
func (s *Store) stands() bool {
	var was state
	err := s.db.View(func(tx *bbolt.Tx) (err error) {
		was, err = readState(tx)
		return err
	})
	return err == nil && was.commits == s.commits
}

// fill puts what the group changed into a transaction.
func (s *Store) fill(tx *bbolt.Tx) error {
	envelopes := tx.Bucket([]byte(envelopeBucket))
	envelopes.FillPercent = fillPercent
	err := s.m.EachChange(func(c memory.Change) error { return s.change(envelopes, c) })
	if err == nil {
		err = s.page.put(tx.Bucket([]byte(logBucket)))
	}
	if err == nil {
		err = s.settle(tx, !s.m.Changed() && s.idle())
	}
	if err != nil {
		return err
	}
	return s.m.EachStreakChange(func(c memory.StreakChange) error { return s.putStreak(tx.Bucket([]byte(streakBucket)), c) })
}

// change adds a record's change to the entry, and to the bucket of envelopes what is too large for it.
func (s *Store) change(envelopes *bbolt.Bucket, c memory.Change) error {
	p := &s.page
	p.changes++
	var was, is [2]*memory.Sealed
	if c.Was != nil {
		was = [2]*memory.Sealed{c.Was.Payload, c.Was.Result}
	}
	if c.Is != nil {
		is = [2]*memory.Sealed{c.Is.Payload, c.Is.Result}
	}
	for i := range is {
		kind, was, is := byte(i), was[i], is[i]
		if was == is {
			continue
		}
		if was != nil {
			was.Gone = true
			p.dropped = append(p.dropped, was)
			if was.At == 0 {
				if err := deleteText(envelopes, c.Seq, kind, was); err != nil {
					return err
				}
			}
		}
		if is != nil {
			is.Sum, is.At = crc32.Checksum(is.Raw, castagnoli), keptAt(is, p.entry.commit)
			s.fresh = append(s.fresh, is)
			p.text(kind, is)
			if is.At == 0 {
				if err := putText(envelopes, c.Seq, kind, is); err != nil {
					return err
				}
			}
		}
	}
	if c.Is != nil {
		s.scratch = appendRecord(s.scratch[:0], c.Is, s.down)
		p.item(c.Seq, itemRecord, s.scratch)
		return nil
	}
	p.item(c.Seq, itemGone, nil)
	if l := s.tail.loose[c.Seq]; l != nil {
		l.gone = true
		p.gone = append(p.gone, l)
	}
	return nil
}

func (s *Store) putStreak(streaks *bbolt.Bucket, c memory.StreakChange) error {
	key := appendStreakKey(nil, c.Runner, c.Queue)
	if c.Is == nil {
		return streaks.Delete(key)
	}
	return streaks.Put(key, s.keep(func(b []byte) []byte { return appendStreak(b, key, c.Is) }))
}

// keep answers a value in the arena, where it stays until the commit is over.
func (s *Store) keep(encode func([]byte) []byte) []byte {
	from := len(s.arena)
	s.arena = encode(s.arena)
	return s.arena[from:len(s.arena):len(s.arena)]
}

// setAside commits that more sessions' numbers may be given. Only the committer calls it.
func (s *Store) setAside() error {
	if s.out.err != nil && !s.retry() {
		return store.ErrUnavailable
	}
	if err := s.commit(func(*bbolt.Tx) error { return nil }); err != nil {
		s.failed(err, false)
		return store.ErrUnavailable
	}
	if s.out.err != nil {
		s.succeeded(false)
	}
	return nil
}

// reopen reads the file again after a commit of which nobody knows whether it happened: what the file holds is the truth,
// once a commit on top of it succeeded.
func (s *Store) reopen() error {
	defer s.spend(time.Now())
	if s.db != nil {
		if err := s.db.Close(); err != nil {
			return err
		}
		s.db = nil
	}
	db, err := openFile(s.path, false)
	if err != nil {
		return err
	}
	s.db = db
	if err := s.fails(fileOpened); err != nil {
		return err
	}
	l, err := s.load(db)
	if err != nil {
		return err
	}
	old, tail, commits, ceiling, down := s.m, s.tail, s.commits, s.ceiling, s.down
	l.m.Adopt(s.m)
	s.m, s.tail, s.commits, s.ceiling, s.down = l.m, l.tail, l.state.commits, max(s.ceiling, l.state.ceiling), l.state.down
	if err := s.commit(func(*bbolt.Tx) error { return nil }); err != nil {
		s.m, s.tail, s.commits, s.ceiling, s.down = old, tail, commits, ceiling, down
		return err
	}
	s.out.uncertain = false
	s.watchers.Resync()
	return nil
}

// panicError is a panic of the database, or a fault of the file's mapping: a disk that can't be read, a file that was cut.
type panicError struct{ value any }

func (e *panicError) Error() string {
	return fmt.Sprintf("the database failed, and needs a new start of the process: %v", e.value)
}

// guard turns a panic into an error.
func guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = &panicError{p}
		}
	}()
	return f()
}
