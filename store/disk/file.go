package disk

import (
	"encoding/binary"
	"errors"
	"os"
	"time"

	"github.com/google/uuid"
	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"pushrelay/store/memory"
	"pushrelay/wire"
)

// format is the version of the file's layout.
const format = 1

// Buckets, and keys of the meta bucket.
const (
	metaBucket     = "pushrelay"
	jobBucket      = "jobs"
	envelopeBucket = "envelopes"

	formatKey = "format"
	epochKey  = "epoch"
	stateKey  = "state"
)

// chunkBytes is how an envelope is cut.
const chunkBytes = 16 << 10

func openFile(path string) (*bbolt.DB, error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout: time.Second, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType, NoStatistics: true,
	})
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return nil, &LockedError{Path: path}
	case errors.Is(err, berrors.ErrInvalid), errors.Is(err, berrors.ErrChecksum), errors.Is(err, berrors.ErrVersionMismatch):
		return nil, &ForeignError{Path: path, Reason: err.Error()}
	case err != nil:
		return nil, err
	}
	if err := prepare(db, path); err != nil {
		_ = db.Close()
		return nil, err
	}
	return db, nil
}

// prepare makes the buckets of an empty file and judges those of another.
func prepare(db *bbolt.DB, path string) error {
	return db.Update(func(tx *bbolt.Tx) error {
		if k, _ := tx.Cursor().First(); k != nil {
			meta := tx.Bucket([]byte(metaBucket))
			if meta == nil || tx.Bucket([]byte(jobBucket)) == nil || tx.Bucket([]byte(envelopeBucket)) == nil {
				return &ForeignError{Path: path, Reason: "it is another program's database"}
			}
			if v, _ := binary.Uvarint(meta.Get([]byte(formatKey))); v != format {
				return &VersionError{Path: path, Found: v, Supported: format}
			}
			return nil
		}
		for _, name := range []string{metaBucket, jobBucket, envelopeBucket} {
			if _, err := tx.CreateBucket([]byte(name)); err != nil {
				return err
			}
		}
		meta := tx.Bucket([]byte(metaBucket))
		if err := meta.Put([]byte(formatKey), binary.AppendUvarint(nil, format)); err != nil {
			return err
		}
		return meta.Put([]byte(epochKey), []byte(uuid.NewString()))
	})
}

func seqKey(seq uint64) []byte { return binary.BigEndian.AppendUint64(nil, seq) }

func chunkKey(seq uint64, kind byte, chunk uint64) []byte {
	b := append(seqKey(seq), kind)
	return binary.BigEndian.AppendUint16(b, uint16(chunk))
}

const (
	payloadKind byte = iota
	resultKind
)

// load rebuilds the machine from the file.
func (s *Store) load() error {
	now := s.clock()
	s.m = memory.NewMachine(s.set, now)
	s.m.Begin(now)
	return s.db.View(func(tx *bbolt.Tx) error {
		meta := tx.Bucket([]byte(metaBucket))
		s.epoch = string(meta.Get([]byte(epochKey)))
		in := reader{b: meta.Get([]byte(stateKey))}
		closed := int64(0)
		if len(in.b) > 0 {
			seq, number, at := in.uint(), in.uint(), in.int()
			s.m.Counted(seq, number)
			closed = max(0, now.UnixNano()-at)
		}
		envelopes := tx.Bucket([]byte(envelopeBucket))
		err := tx.Bucket([]byte(jobBucket)).ForEach(func(k, v []byte) error {
			seq := binary.BigEndian.Uint64(k)
			r, payload, result, err := decodeRecord(seq, v)
			if err != nil {
				if s.observer != nil {
					s.observer.Unreadable(seq, err)
				}
				return nil
			}
			if r.Payload != nil {
				r.Payload.Raw = readEnvelope(envelopes, seq, payloadKind, payload)
			}
			if r.Result != nil {
				r.Result.Raw = readEnvelope(envelopes, seq, resultKind, result)
			}
			s.m.Load(r)
			return nil
		})
		s.m.Grace(closed)
		s.m.Keep()
		return err
	})
}

func readEnvelope(b *bbolt.Bucket, seq uint64, kind byte, size uint64) []byte {
	out := make([]byte, 0, min(size, wire.MaxEnvelopeBytes))
	for i := uint64(0); uint64(len(out)) < size; i++ {
		c := b.Get(chunkKey(seq, kind, i))
		if c == nil {
			break
		}
		out = append(out, c...)
	}
	return out
}

// commit writes what changed. When that fails the machine is rebuilt from the file, so that nothing of it is seen.
func (s *Store) commit() error {
	changed := map[uint64]*memory.Record{}
	s.m.Changed(func(seq uint64, r *memory.Record) { changed[seq] = r })
	if len(changed) == 0 {
		return nil
	}
	err := s.db.Update(func(tx *bbolt.Tx) error {
		jobs, envelopes := tx.Bucket([]byte(jobBucket)), tx.Bucket([]byte(envelopeBucket))
		for seq, r := range changed {
			if r == nil {
				if err := jobs.Delete(seqKey(seq)); err != nil {
					return err
				}
				r = &memory.Record{}
			} else if err := jobs.Put(seqKey(seq), appendRecord(nil, r)); err != nil {
				return err
			}
			if err := writeEnvelope(envelopes, seq, payloadKind, r.Payload); err != nil {
				return err
			}
			if err := writeEnvelope(envelopes, seq, resultKind, r.Result); err != nil {
				return err
			}
		}
		seq, number := s.m.Counters()
		b := binary.AppendUvarint(binary.AppendUvarint(nil, seq), number)
		return tx.Bucket([]byte(metaBucket)).Put([]byte(stateKey), binary.AppendVarint(b, s.clock().UnixNano()))
	})
	if err != nil {
		return errors.Join(err, s.load())
	}
	if s.err != nil {
		s.err = nil
		if s.observer != nil {
			s.observer.Recovered(s.clock().Sub(s.failed))
		}
	}
	return nil
}

func writeEnvelope(b *bbolt.Bucket, seq uint64, kind byte, e *wire.Envelope) error {
	if e == nil {
		for i := uint64(0); b.Get(chunkKey(seq, kind, i)) != nil; i++ {
			if err := b.Delete(chunkKey(seq, kind, i)); err != nil {
				return err
			}
		}
		return nil
	}
	for i, raw := uint64(0), e.Raw; len(raw) > 0; i++ {
		n := min(len(raw), chunkBytes)
		if err := b.Put(chunkKey(seq, kind, i), raw[:n]); err != nil {
			return err
		}
		raw = raw[n:]
	}
	return nil
}

// exists reports whether there is a database in the folder.
func exists(path string) error {
	_, err := os.Stat(path)
	return err
}
