package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"pushrelay/store/memory"
)

// A job changes eight times in a second or two and is done. Its record would be written to a page somewhere in the file each
// time, and each such page is a request of its own to the disk: those were most of a commit's cost. So a commit writes what
// it changed, small envelopes too, as one entry in one run of pages. What an entry holds that is still of use is settled
// in its bucket later, when newer entries have made the log too long, or when nobody wants anything: see settle.go.
const (
	logEntries = 1024
	logBytes   = 16 << 20
	logRecords = 64 << 10
	inlineMost = 16 << 10 // a larger envelope goes to its bucket at once: it is likely to stay, and would be written twice
)

// Kinds of items of an entry. An item is its job's number, its kind, and, but for those from itemGone on, a length and so
// many bytes.
const (
	itemRecord byte = iota
	itemPayload
	itemResult
	itemGone      // there is no record any more
	itemPayloadAt // there is a payload, in the bucket of envelopes
	itemResultAt
	itemKinds
)

const (
	entryVersion = 1
	entryKey     = "entry"
)

// limits are those of the log.
type limits struct {
	entries, records int
	bytes            int64
	leave            bool // Close settles nothing, as a crash wouldn't
}

// tail is what is known of the log.
type tail struct {
	entries []entry // oldest first
	bytes   int64
	loose   map[uint64]*loose // records whose newest state is in the log
	last    time.Time         // when the last entry was written, by the real clock
}

// entry is what an entry is the first to have changed, and the envelopes whose text it has.
type entry struct {
	commit uint64
	bytes  int64
	seqs   []uint64
	texts  []inline
}

// inline is an envelope whose text is in the log.
type inline struct {
	*memory.Sealed
	kind byte
}

// loose is a record that isn't settled.
type loose struct {
	rec   *memory.Record // the machine's
	raw   []byte         // of one that this build can't read
	gone  bool
	based bool // the bucket of jobs has an older state
}

// page is the entry that a commit writes, and what is to be undone when that fails.
type page struct {
	entry   entry
	b       []byte
	sum     uint32 // of all but what items hold: records and envelopes have their own
	changes int    // records
	dropped []*memory.Sealed
	gone    []*loose
	settled int  // entries, oldest first
	part    int  // records, and then texts, of the entry after those
	tried   bool // to settle some
	moved   []*memory.Sealed
}

func (p *page) reset(commit uint64) {
	if cap(p.b) > 1<<20 {
		p.b = nil
	}
	clear(p.dropped)
	clear(p.gone)
	clear(p.moved)
	*p = page{entry: entry{commit: commit}, b: append(p.b[:0], entryVersion), dropped: p.dropped[:0], gone: p.gone[:0], moved: p.moved[:0]}
	p.sum = crc32.Checksum(p.b, castagnoli)
}

// item adds an item and answers where in the entry that begins which it holds.
func (p *page) item(seq uint64, kind byte, holds []byte) (at uint64) {
	from := len(p.b)
	p.b = append(binary.AppendUvarint(p.b, seq), kind)
	if kind < itemGone {
		p.b = binary.AppendUvarint(p.b, uint64(len(holds)))
	}
	p.sum = crc32.Update(p.sum, castagnoli, p.b[from:])
	at = uint64(len(p.b))
	p.b = append(p.b, holds...)
	return at
}

// text adds an envelope's text, or says that it is elsewhere.
func (p *page) text(kind byte, e *memory.Sealed) {
	if e.At == 0 {
		p.item(e.Seq, itemPayloadAt+kind, nil)
		return
	}
	e.Off = p.item(e.Seq, itemPayload+kind, e.Raw)
	p.entry.texts = append(p.entry.texts, inline{e, kind})
}

// put writes the entry: in a bucket of its own, or it would be written again with its neighbours.
func (p *page) put(log *bbolt.Bucket) error {
	if len(p.b) == 1 {
		return nil
	}
	key := seqKey(p.entry.commit)
	p.b = binary.LittleEndian.AppendUint32(p.b, crc32.Update(p.sum, castagnoli, key))
	p.entry.bytes = int64(len(p.b))
	b, err := log.CreateBucket(key)
	if err != nil {
		return err
	}
	return b.Put([]byte(entryKey), p.b)
}

// item is one of an entry.
type item struct {
	seq   uint64
	kind  byte
	holds []byte // belongs to the entry; nil from itemGone on
	at    uint64 // where in the entry that begins
}

// errLog says that an entry is not what was written. Nobody knows what it changed then.
var errLog = errors.New("its log is damaged")

// eachItem takes an entry apart. What items hold isn't judged; when an error is answered, items may have been, too.
func eachItem(key, v []byte, f func(item)) error {
	end := len(v) - 4
	if end < 1 || v[0] != entryVersion {
		return errLog
	}
	sum := crc32.Checksum(v[:1], castagnoli)
	for from := 1; from < end; {
		in := reader{b: v[from:end]}
		it := item{seq: in.uint(), kind: in.byte()}
		holds := it.kind < itemGone
		n := uint64(0)
		if holds {
			n = in.uint()
		}
		at := end - len(in.b)
		if holds {
			it.at, it.holds = uint64(at), in.take(n)
		}
		if in.bad || it.kind >= itemKinds {
			return errLog
		}
		sum = crc32.Update(sum, castagnoli, v[from:at])
		f(it)
		from = end - len(in.b)
	}
	if crc32.Update(sum, castagnoli, key) != binary.LittleEndian.Uint32(v[end:]) {
		return errLog
	}
	return nil
}

// keptAt is where a small envelope's text is to be; 0 is its bucket.
func keptAt(e *memory.Sealed, commit uint64) uint64 {
	if len(e.Raw) <= inlineMost {
		return commit
	}
	return 0
}

// inlined answers a text that is in the log; nil when its entry isn't there any more.
func inlined(log *bbolt.Bucket, e *memory.Sealed) ([]byte, error) {
	b := log.Bucket(seqKey(e.At))
	if b == nil {
		return nil, nil
	}
	v := b.Get([]byte(entryKey))
	if e.Off > uint64(len(v)) || uint64(e.Bytes) > uint64(len(v))-e.Off {
		return nil, fmt.Errorf("%w: entry %d", errLog, e.At)
	}
	return v[e.Off : e.Off+uint64(e.Bytes)], nil
}

// length answers how many entries the log will have after the commit that is made.
func (s *Store) length() uint64 {
	n := len(s.tail.entries) - s.page.settled
	if s.page.entry.bytes > 0 {
		n++
	}
	return uint64(n)
}

// written notes what a commit did to the log, or undoes what was noted for it.
func (s *Store) written(p *page, err error) {
	if err != nil {
		for _, e := range p.dropped {
			e.Gone = false
		}
		for _, l := range p.gone {
			l.gone = false
		}
		return
	}
	t := &s.tail
	for i := range p.settled {
		for _, seq := range t.entries[i].seqs {
			delete(t.loose, seq)
		}
		t.bytes -= t.entries[i].bytes
	}
	for _, e := range p.moved {
		e.At, e.Off = 0, 0
	}
	t.entries = slices.Delete(t.entries, 0, p.settled)
	if p.part > 0 {
		e := &t.entries[0]
		n := min(p.part, len(e.seqs))
		for _, seq := range e.seqs[:n] {
			delete(t.loose, seq)
		}
		e.seqs, e.texts = e.seqs[n:], e.texts[p.part-n:]
	}
	if p.settled+p.part > 0 {
		s.settler.went()
		if len(t.entries) == 0 {
			t.loose = make(map[uint64]*loose) // a map doesn't give back what it took
		}
	}
	if p.entry.bytes > 0 {
		s.loosen(&p.entry)
		t.entries = append(t.entries, p.entry)
		t.bytes += p.entry.bytes
		t.last = time.Now()
	}
}

// loosen notes what the group changed as not settled.
func (s *Store) loosen(e *entry) {
	_ = s.m.EachChange(func(c memory.Change) error {
		l := s.tail.loose[c.Seq]
		if l == nil {
			l = &loose{based: c.Was != nil}
			s.tail.loose[c.Seq] = l
			e.seqs = append(e.seqs, c.Seq)
		}
		l.rec, l.raw, l.gone = c.Is, nil, c.Is == nil
		return nil
	})
}
