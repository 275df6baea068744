package disk

import (
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"

	"pushrelay/store"
)

// Report is what is in a store that is stopped.
type Report struct {
	Path       string
	Format     uint64
	Epoch      string
	Bytes      int64 // of the file
	Free       int64 // of those, bytes that hold nothing and are used again
	Jobs       map[store.State]int
	Notices    int // dropped jobs whose site wasn't told yet
	Tombstones int
	Unreadable int // records that this build can't read
	Sites      []SiteReport
	Oldest     time.Time // enqueueing of the oldest job that isn't a notice or a tombstone; zero when there is none
	Written    time.Time // last commit; zero when there was none
}

// SiteReport is what a site has in it. Bytes are those of its envelopes.
type SiteReport struct {
	Site    string
	Jobs    int
	Bytes   int64
	Records int // tombstones and notices included
	Oldest  time.Time
}

// Compacted is a file's size before and after Compact.
type Compacted struct{ Before, After int64 }

// Inspect reads the store in a folder without changing it. Errors are those of Open; a running store is locked.
func Inspect(ctx context.Context, dir string) (Report, error) {
	path := filepath.Join(dir, fileName)
	rep := Report{Path: path, Jobs: map[store.State]int{}}
	if err := exists(path); err != nil {
		return rep, err
	}
	held, err := lock(ctx, dir)
	if err != nil {
		return rep, err
	}
	defer held.Close()
	db, err := openFile(path)
	if err != nil {
		return rep, err
	}
	defer db.Close()
	sites := map[string]*SiteReport{}
	err = db.View(func(tx *bbolt.Tx) error {
		meta := tx.Bucket([]byte(metaBucket))
		rep.Format, _ = binary.Uvarint(meta.Get([]byte(formatKey)))
		rep.Epoch = string(meta.Get([]byte(epochKey)))
		rep.Bytes = tx.Size()
		return tx.Bucket([]byte(jobBucket)).ForEach(func(k, v []byte) error {
			r, payload, result, err := decodeRecord(binary.BigEndian.Uint64(k), v)
			if err != nil {
				rep.Unreadable++
				return nil
			}
			s := sites[r.Key.Site]
			if s == nil {
				s = &SiteReport{Site: r.Key.Site}
				sites[r.Key.Site] = s
			}
			s.Records++
			s.Bytes += int64(payload + result)
			switch at := time.Unix(0, r.EnqueuedAt).UTC(); {
			case r.Collected:
				rep.Tombstones++
			case r.Dropped != "":
				rep.Notices++
			default:
				s.Jobs++
				rep.Jobs[r.State]++
				if s.Oldest.IsZero() || at.Before(s.Oldest) {
					s.Oldest = at
				}
				if rep.Oldest.IsZero() || at.Before(rep.Oldest) {
					rep.Oldest = at
				}
			}
			return nil
		})
	})
	for _, s := range sites {
		rep.Sites = append(rep.Sites, *s)
	}
	return rep, err
}

// Compact writes the store in a folder anew without the room that nothing uses. The old file stands until the new one is whole.
func Compact(ctx context.Context, dir string) (Compacted, error) {
	path := filepath.Join(dir, fileName)
	info, err := os.Stat(path)
	if err != nil {
		return Compacted{}, err
	}
	held, err := lock(ctx, dir)
	if err != nil {
		return Compacted{}, err
	}
	defer held.Close()
	db, err := openFile(path)
	if err != nil {
		return Compacted{}, err
	}
	defer db.Close()
	fresh := path + ".compact"
	if err := os.Remove(fresh); err != nil && !os.IsNotExist(err) {
		return Compacted{}, err
	}
	to, err := bbolt.Open(fresh, 0o600, &bbolt.Options{Timeout: time.Second, NoFreelistSync: true})
	if err != nil {
		return Compacted{}, err
	}
	if err := bbolt.Compact(to, db, 1<<20); err != nil {
		_ = to.Close()
		return Compacted{}, err
	}
	if err := to.Close(); err != nil {
		return Compacted{}, err
	}
	after, err := os.Stat(fresh)
	if err != nil {
		return Compacted{}, err
	}
	if err := os.Rename(fresh, path); err != nil {
		return Compacted{}, err
	}
	d, err := os.Open(dir)
	if err != nil {
		return Compacted{}, err
	}
	defer d.Close()
	return Compacted{Before: info.Size(), After: after.Size()}, d.Sync()
}
