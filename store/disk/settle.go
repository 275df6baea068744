package disk

import (
	"time"

	"go.etcd.io/bbolt"

	"pushrelay/store/memory"
)

// How much is settled at a time, at least.
const (
	settleEntries = 64       // twice what makes up for the commits between two times
	settleRecords = 64       // for each of these entries, on an average; they may also be all of one
	settleBytes   = 16 << 10 // written, likewise
	logMargin     = 32       // a log that is too long is made shorter by so many parts of its length
	logExcess     = 8        // times what the log should be, it is full: nothing is committed that makes it longer
)

const (
	idleAfter   = time.Second
	calmAfter   = 5 * time.Second // after a failure
	settleAfter = time.Second     // after settling failed
)

// settler is what is known of settling.
type settler struct {
	most int       // entries at a time
	next time.Time // when it may be tried, by the real clock
	bare bool      // the commit that is made settles nothing
}

// went notes that entries were settled. After a failure it is tried with few, which need little room, and then with more.
func (r *settler) went() { r.most = min(2*r.most, settleEntries) }

func (r *settler) failed(spent time.Duration) {
	r.most, r.next = 1, time.Now().Add(max(settleAfter, respite*spent))
}

// over reports whether a log of so much is longer than it should be.
func (l *limits) over(entries int, bytes int64, records int) bool {
	return entries > l.entries || bytes > l.bytes || records > l.records
}

// full reports that the log mustn't become longer.
func (s *Store) full() bool {
	l := limits{entries: logExcess * (s.limits.entries + 1), bytes: logExcess * s.limits.bytes, records: logExcess * s.limits.records}
	return l.over(len(s.tail.entries), s.tail.bytes, len(s.tail.loose))
}

// keepGroup commits what a group changed. On a disk that is full, settling may find no room where the group does, so that
// the group is tried without; large says that it is likely that it doesn't.
func (s *Store) keepGroup(large bool) error {
	r := &s.settler
	r.bare = !s.full() && (large && s.out.err != nil || time.Now().Before(r.next))
	err := s.commit(s.fill)
	if err == nil || !s.page.tried {
		return err
	}
	r.failed(s.spent)
	if s.out.uncertain || s.dead.Load() || s.full() {
		return err
	}
	r.bare = true
	return s.commit(s.fill)
}

// settle writes what the oldest entries hold that is of use where it belongs, and removes them: when the log is too long, or
// when all of it is to go.
func (s *Store) settle(tx *bbolt.Tx, all bool) error {
	p, t := &s.page, &s.tail
	entries, bytes, records := len(t.entries), t.bytes, len(t.loose)
	if s.settler.bare || entries == 0 || !all && !s.limits.over(entries, bytes, records) {
		return nil
	}
	p.tried = true
	to := s.limits
	to.entries, to.bytes, to.records = to.entries-to.entries/logMargin, to.bytes-to.bytes/logMargin, to.records-to.records/logMargin
	most := s.settler.most
	mostRecords, mostBytes := max(most*settleRecords, 2*p.changes), max(most*settleBytes, 2*len(p.b)) // more than comes in
	jobs, envelopes, log := tx.Bucket([]byte(jobBucket)), tx.Bucket([]byte(envelopeBucket)), tx.Bucket([]byte(logBucket))
	jobs.FillPercent, envelopes.FillPercent = fillPercent, fillPercent
	for from := len(s.arena); entries > 0 && p.settled < most && (all || to.over(entries, bytes, records)); {
		e := &t.entries[p.settled]
		for p.part = 0; p.part < len(e.seqs)+len(e.texts); p.part++ {
			if len(t.loose)-records >= mostRecords || len(s.arena)-from >= mostBytes {
				return nil // the entry stays until the next time; what of it is settled is so as the log has it
			}
			if at := p.part - len(e.seqs); at >= 0 {
				if err := s.settleText(log, envelopes, e.texts[at]); err != nil {
					return err
				}
				continue
			}
			if err := s.settleRecord(jobs, e.seqs[p.part]); err != nil {
				return err
			}
			records--
		}
		if err := log.DeleteBucket(seqKey(e.commit)); err != nil {
			return err
		}
		p.settled, p.part = p.settled+1, 0
		entries, bytes = entries-1, bytes-e.bytes
	}
	return nil
}

func (s *Store) settleRecord(jobs *bbolt.Bucket, seq uint64) error {
	switch l := s.tail.loose[seq]; {
	case l.gone && l.based:
		return jobs.Delete(seqKey(seq))
	case l.gone:
		return nil
	case l.raw != nil:
		return jobs.Put(seqKey(seq), l.raw)
	default:
		return jobs.Put(seqKey(seq), s.keep(func(b []byte) []byte { return appendRecord(b, l.rec, s.down) }))
	}
}

func (s *Store) settleText(log, envelopes *bbolt.Bucket, e inline) error {
	if e.Gone {
		return nil
	}
	raw, err := inlined(log, e.Sealed)
	if err == nil && raw == nil {
		err = errText
	}
	if err != nil {
		return err
	}
	moved := memory.Sealed{}
	moved.Raw = s.keep(func(b []byte) []byte { return append(b, raw...) })
	s.page.moved = append(s.page.moved, e.Sealed)
	return putText(envelopes, e.Seq, e.kind, &moved)
}

// settleAll settles what there is before the file is closed, or the next start finds it in the log.
func (s *Store) settleAll() {
	if s.out.err != nil || s.db == nil || s.dead.Load() || s.limits.leave {
		return
	}
	s.settler.bare = false
	for len(s.tail.entries) > 0 {
		if s.commit(func(tx *bbolt.Tx) error { return s.settle(tx, true) }) != nil {
			return
		}
	}
}

// idle reports that the log has entries which nobody added to for a while, and that they may be settled.
func (s *Store) idle() bool {
	return len(s.tail.entries) > 0 && s.out.err == nil && time.Since(s.tail.last) > idleAfter && time.Since(s.failure) > calmAfter &&
		!time.Now().Before(s.settler.next)
}
