package disk

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"go.etcd.io/bbolt"

	"pushrelay/store"
	"pushrelay/store/memory"
	"pushrelay/wire"
)

// Kinds of envelopes of a job.
const (
	payloadKind byte = iota
	resultKind
)

// chunkBytes is how an envelope's text is cut. bbolt puts two to four values on a leaf however large they are, and
// rewrites a leaf whole: so many of these, with what stands beside them, fill pages to the end.
const chunkBytes = 2*pageSize - 40

// chunkKey is the place of a chunk: job, kind, number.
func chunkKey(seq uint64, kind byte, chunk int) []byte {
	b := make([]byte, 0, 11)
	b = append(binary.BigEndian.AppendUint64(b, seq), kind)
	return binary.BigEndian.AppendUint16(b, uint16(chunk))
}

func putText(b *bbolt.Bucket, seq uint64, kind byte, e *memory.Sealed) error {
	if e == nil {
		return nil
	}
	for i, raw := 0, e.Raw; len(raw) > 0; i++ {
		n := min(len(raw), chunkBytes)
		if err := b.Put(chunkKey(seq, kind, i), raw[:n]); err != nil {
			return err
		}
		raw = raw[n:]
	}
	return nil
}

func deleteText(b *bbolt.Bucket, seq uint64, kind byte, e *memory.Sealed) error {
	if e == nil {
		return nil
	}
	for i := range int((e.Bytes + chunkBytes - 1) / chunkBytes) {
		if err := b.Delete(chunkKey(seq, kind, i)); err != nil {
			return err
		}
	}
	return nil
}

// text is an envelope that a caller wants.
type text struct {
	memory.Sealed
	from *memory.Sealed // the record's
	kind byte
	tx   *bbolt.Tx // sees the text when it isn't in memory
}

// lend gives whoever wants an envelope a view of the file as it is now.
func (s *Store) lend(t *text) error {
	if t.Raw != nil || t.Bytes == 0 {
		return nil
	}
	if t.from.Gone { // one that came with whoever asked took it away; who asks again hears of that
		return store.ErrUnavailable
	}
	t.At, t.Off = t.from.At, t.from.Off // the commit since may have moved it
	if s.db == nil || s.dead.Load() {
		return store.ErrUnavailable
	}
	err := guard(func() (err error) {
		t.tx, err = s.db.Begin(false)
		return err
	})
	if err != nil {
		s.buried(err)
		return store.ErrUnavailable
	}
	return nil
}

// fetch answers an envelope with its text. Reading takes no lock and waits for nobody.
func fetch(
	ctx context.Context, s *Store, keeps bool, kind byte, fits func(*memory.Machine) bool, f func(*memory.Machine) (*memory.Sealed, error),
) (wire.Envelope, error) {
	t := text{kind: kind}
	_, err := await(ctx, s, &op{keeps: keeps, want: &t, fits: fits}, func(m *memory.Machine) (none, error) {
		e, err := f(m)
		if err == nil {
			t.Sealed, t.from = *e, e
		}
		return none{}, err
	})
	if err == nil && t.tx != nil {
		if err = t.read(); err != nil {
			if s.Err() == nil { // else the file may be ahead of what callers see
				s.observer.Unreadable(t.Seq, fmt.Errorf("an envelope: %w", err))
			}
			err = store.ErrUnavailable
		}
	}
	if err != nil {
		return wire.Envelope{}, err
	}
	return t.Envelope, nil
}

var errText = errors.New("its text isn't what was written")

// read copies the text and ends the view.
func (t *text) read() error {
	return guard(func() error {
		defer func() { _ = t.tx.Rollback() }()
		return t.copy()
	})
}

func (t *text) copy() error {
	raw, in := make([]byte, 0, t.Bytes), []byte(nil)
	if t.At != 0 {
		var err error
		if in, err = inlined(t.tx.Bucket([]byte(logBucket)), &t.Sealed); err != nil {
			return err
		}
		raw = append(raw, in...)
	}
	if in == nil { // or a commit moved it that was under way when the view was taken
		c := t.tx.Bucket([]byte(envelopeBucket)).Cursor()
		prefix := chunkKey(t.Seq, t.kind, 0)[:9]
		for k, v := c.Seek(prefix); len(k) == len(prefix)+2 && string(k[:len(prefix)]) == string(prefix); k, v = c.Next() {
			if int64(len(raw)+len(v)) > t.Bytes {
				return errText
			}
			raw = append(raw, v...)
		}
	}
	if int64(len(raw)) != t.Bytes || crc32.Checksum(raw, castagnoli) != t.Sum {
		return errText
	}
	t.Raw = raw
	return nil
}
