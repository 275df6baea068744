package disk

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"
	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// format is the version of the file's layout.
const format = 1

// fileName is the database in its folder.
const fileName = "pushrelay.db"

// fillPercent is how full a page is after it was split. Keys rise, so nothing is put in between later.
const fillPercent = 0.85

// Buckets.
const (
	metaBucket     = "pushrelay" // format, epoch and state
	jobBucket      = "jobs"      // seq -> record
	logBucket      = "log"       // commit -> what it changed, until that is settled in the others
	envelopeBucket = "envelopes" // seq, kind, chunk -> text
	streakBucket   = "streaks"   // runner and queue -> streak
)

// Keys of the meta bucket.
const (
	formatKey = "format"
	epochKey  = "epoch"
	stateKey  = "state"
)

// pageSize is the file's, whatever the machine's is.
const pageSize = 8192

// boltOptions are those of every opening. The list of free pages isn't written with each commit but made when the file is
// opened: after a flood of envelopes it would be larger than the commits.
func boltOptions(readOnly bool) *bbolt.Options {
	return &bbolt.Options{
		Timeout: time.Second, ReadOnly: readOnly, PageSize: pageSize, NoFreelistSync: true,
		FreelistType: bbolt.FreelistMapType, NoStatistics: true,
	}
}

// makeDir makes the store's folder and lets its name last.
func makeDir(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return syncDir(filepath.Dir(dir))
}

// syncDir lets names in a folder last.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// create makes the file when there is none: whole under another name first, so that a file under its name is never half made.
func create(path string) error {
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	fresh := path + ".new"
	if err := remove(fresh); err != nil {
		return err
	}
	db, err := bbolt.Open(fresh, 0o600, boltOptions(false))
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		for _, name := range []string{metaBucket, logBucket, jobBucket, envelopeBucket, streakBucket} {
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
	if err = errors.Join(err, db.Close()); err != nil {
		return err
	}
	return replace(fresh, path)
}

// replace lets a whole file take a name.
func replace(fresh, path string) error {
	if err := os.Rename(fresh, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// openFile opens a file after it was judged from the outside: bbolt maps what it is given, and a damaged file would end the
// process.
func openFile(path string, readOnly bool) (*bbolt.DB, error) {
	if _, err := verify(path); err != nil {
		return nil, err
	}
	db, err := bbolt.Open(path, 0o600, boltOptions(readOnly))
	if errors.Is(err, berrors.ErrTimeout) {
		return nil, &LockedError{Path: path}
	}
	if err != nil {
		return nil, err
	}
	if err = guard(func() error { return judge(db, path) }); err == nil && !readOnly {
		err = settle(path)
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// settle writes the two pages that say which state the file has as they are, and lets all of the file last. They may be
// known to the system alone: a process was killed before it could sync them, or that failed and the system gave up on them.
// The next commit overwrites pages that only the state before those needs, which may be the one on the disk.
func settle(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	metas := make([]byte, 2*pageSize)
	if _, err = f.ReadAt(metas, 0); err == nil {
		_, err = f.WriteAt(metas, 0)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// judge answers whether a database is one of ours, of a format that this build reads.
func judge(db *bbolt.DB, path string) error {
	return db.View(func(tx *bbolt.Tx) error {
		meta := tx.Bucket([]byte(metaBucket))
		if meta == nil || meta.Get([]byte(formatKey)) == nil {
			return &ForeignError{Path: path, Reason: "it is another program's database"}
		}
		if v, _ := binary.Uvarint(meta.Get([]byte(formatKey))); v != format {
			return &VersionError{Path: path, Found: v, Supported: format}
		}
		for _, name := range []string{logBucket, jobBucket, envelopeBucket, streakBucket} {
			if tx.Bucket([]byte(name)) == nil {
				return &ForeignError{Path: path, Reason: "it has no part named " + name + ": it is damaged, or a build from before the first release wrote it"}
			}
		}
		return nil
	})
}

// state is what is kept beside records and streaks.
type state struct {
	commits uint64 // rises with each commit
	seq     uint64 // highest of a job so far
	ceiling uint64 // no session has a number above
	down    uint64 // ns by which the clock moved while the store was closed, in all its life; back as well, modulo 2^64
	entries uint64 // of the log
	at      int64  // of the commit, epoch ns
}

func (s *state) append(b []byte) []byte {
	from := len(b)
	b = append(b, 1)
	for _, n := range []uint64{s.commits, s.seq, s.ceiling, s.down, s.entries} {
		b = binary.AppendUvarint(b, n)
	}
	return appendSum(binary.AppendVarint(b, s.at), from, []byte(stateKey))
}

// readState answers the state of a file; the zero state before the first commit.
func readState(tx *bbolt.Tx) (state, error) {
	b := tx.Bucket([]byte(metaBucket)).Get([]byte(stateKey))
	if b == nil {
		return state{}, nil
	}
	body, ok := checked([]byte(stateKey), b)
	in := reader{b: body, bad: !ok}
	version := in.byte()
	s := state{commits: in.uint(), seq: in.uint(), ceiling: in.uint(), down: in.uint(), entries: in.uint(), at: in.int()}
	if in.bad || version != 1 || len(in.b) > 0 {
		return state{}, errUnreadable
	}
	return s, nil
}

func seqKey(seq uint64) []byte { return binary.BigEndian.AppendUint64(nil, seq) }
