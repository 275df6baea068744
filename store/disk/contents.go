package disk

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"go.etcd.io/bbolt"

	"pushrelay/store/memory"
)

// contents is what a file holds: the buckets, and the log that goes before them.
type contents struct {
	tx      *bbolt.Tx
	entries []entry
	newest  map[uint64]newest
	texts   map[textKey]place
}

// newest is a record's state by the log.
type newest struct {
	v     []byte // belongs to the file; nil: there is none any more
	entry int    // the first that changed it
}

type textKey struct {
	seq  uint64
	kind byte
}

// place is where in the log a text is.
type place struct {
	entry  int
	at     uint64
	off, n uint64
}

// readContents reads the log. Of an entry that is damaged nobody knows what it changed, and of one that is missing neither:
// who went on without it would give finished jobs out again. So none is passed over.
func readContents(tx *bbolt.Tx, st *state) (*contents, error) {
	c := &contents{tx: tx, newest: make(map[uint64]newest), texts: make(map[textKey]place)}
	log := tx.Bucket([]byte(logBucket))
	err := log.ForEach(func(k, v []byte) error {
		b := log.Bucket(k)
		if v != nil || len(k) != 8 || b == nil {
			return errLog
		}
		v = b.Get([]byte(entryKey))
		c.entries = append(c.entries, entry{commit: binary.BigEndian.Uint64(k), bytes: int64(len(v))})
		if err := eachItem(k, v, c.item); err != nil {
			return fmt.Errorf("%w in the entry of commit %d, and nobody knows what that changed", err, binary.BigEndian.Uint64(k))
		}
		return nil
	})
	if n := uint64(len(c.entries)); err == nil && n != st.entries {
		err = fmt.Errorf("%w: it has %d entries and should have %d", errLog, n, st.entries)
	}
	return c, err
}

// judgeLog answers whether a file's log is whole.
func judgeLog(db *bbolt.DB, path string) error {
	return guard(func() error {
		return db.View(func(tx *bbolt.Tx) error {
			st, err := readState(tx)
			if err == nil {
				_, err = readContents(tx, &st)
			}
			if err != nil {
				return &ForeignError{Path: path, Reason: err.Error()}
			}
			return nil
		})
	})
}

// item takes in one of the last entry.
func (c *contents) item(it item) {
	at := len(c.entries) - 1
	e := &c.entries[at]
	switch it.kind {
	case itemRecord, itemGone:
		n, known := c.newest[it.seq]
		if !known {
			n.entry = at
			e.seqs = append(e.seqs, it.seq)
		}
		n.v = it.holds
		c.newest[it.seq] = n
	case itemPayload, itemResult:
		c.texts[textKey{it.seq, it.kind - itemPayload}] = place{at, e.commit, it.at, uint64(len(it.holds))}
	case itemPayloadAt, itemResultAt:
		delete(c.texts, textKey{it.seq, it.kind - itemPayloadAt})
	}
}

// each calls f for the newest state of each record, in the order of their numbers. based says that the bucket of jobs has one,
// inLog that the log does; v is nil when there is none any more.
func (c *contents) each(f func(seq uint64, v []byte, based, inLog bool) error) error {
	seqs := make([]uint64, 0, len(c.newest))
	for seq := range c.newest {
		seqs = append(seqs, seq)
	}
	slices.SortFunc(seqs, cmp.Compare[uint64])
	logged := func(based bool) error {
		seq := seqs[0]
		seqs = seqs[1:]
		return f(seq, c.newest[seq].v, based, true)
	}
	err := c.tx.Bucket([]byte(jobBucket)).ForEach(func(k, v []byte) error {
		if len(k) != 8 {
			return f(0, v, true, false)
		}
		seq := binary.BigEndian.Uint64(k)
		for len(seqs) > 0 && seqs[0] < seq {
			if err := logged(false); err != nil {
				return err
			}
		}
		if len(seqs) > 0 && seqs[0] == seq {
			return logged(true)
		}
		return f(seq, v, true, false)
	})
	for err == nil && len(seqs) > 0 {
		err = logged(false)
	}
	return err
}

// leave keeps the texts of a record that this build can't read.
func (c *contents) leave(seq uint64) {
	for _, kind := range []byte{payloadKind, resultKind} {
		if p, ok := c.texts[textKey{seq, kind}]; ok {
			c.locate(kind, &memory.Sealed{Seq: seq, Bytes: int64(p.n)})
		}
	}
}

// locate notes where an envelope's text is.
func (c *contents) locate(kind byte, e *memory.Sealed) {
	if e == nil {
		return
	}
	if p, ok := c.texts[textKey{e.Seq, kind}]; ok && !c.settled(&p, e.Seq, kind) {
		e.At, e.Off = p.at, p.off
		c.entries[p.entry].texts = append(c.entries[p.entry].texts, inline{e, kind})
	}
}

// settled reports whether a text is in its bucket already, as a part of the oldest entry may be. It is removed from there when
// nobody needs it any more, so that whatever is there is this one.
func (c *contents) settled(p *place, seq uint64, kind byte) bool {
	return p.entry == 0 && c.tx.Bucket([]byte(envelopeBucket)).Get(chunkKey(seq, kind, 0)) != nil
}
