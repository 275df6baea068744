package disk

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"pushrelay/store"
	"pushrelay/store/memory"
)

// Report is what is in a store that is stopped.
type Report struct {
	Path       string
	Format     uint64
	Epoch      string
	Bytes      int64 // of the file
	Free       int64 // of those, bytes that nothing uses now and that are used again
	Commits    uint64
	Written    time.Time // the last commit; zero when there was none
	Jobs       map[store.State]int
	Notices    int // dropped jobs of which the site wasn't told yet
	Tombstones int
	Envelopes  int64        // bytes
	Oldest     time.Time    // enqueueing of the oldest job; notices and tombstones don't count. Zero when there is none
	Unreadable int          // records that this build can't read
	Sites      []SiteReport // by name
}

// SiteReport is what a site has in a store.
type SiteReport struct {
	Site    string
	Jobs    int   // notices and tombstones don't count
	Records int   // they do
	Bytes   int64 // of envelopes
	Oldest  time.Time
}

// Inspect tells what is in the store of a folder and changes nothing. The store must be stopped; errors are Open's.
func Inspect(ctx context.Context, dir string) (rep Report, err error) {
	path, held, err := holdDir(ctx, dir)
	rep.Path, rep.Jobs = path, map[store.State]int{}
	if err != nil {
		return rep, err
	}
	defer func() { err = errors.Join(err, unlock(held)) }()
	info, err := os.Stat(path)
	if err != nil {
		return rep, err
	}
	v, err := verify(path)
	if err != nil {
		return rep, err
	}
	rep.Bytes, rep.Free = info.Size(), info.Size()-v.used
	db, err := openFile(path, true)
	if err != nil {
		return rep, err
	}
	err = guard(func() error { return db.View(rep.read) })
	return rep, errors.Join(err, db.Close())
}

func (rep *Report) read(tx *bbolt.Tx) error {
	meta := tx.Bucket([]byte(metaBucket))
	rep.Format, _ = binary.Uvarint(meta.Get([]byte(formatKey)))
	rep.Epoch = string(meta.Get([]byte(epochKey)))
	st, err := readState(tx)
	if err != nil {
		return &ForeignError{Path: rep.Path, Reason: "its state can't be read"}
	}
	rep.Commits = st.commits
	if st.at != 0 {
		rep.Written = time.Unix(0, st.at).UTC()
	}
	sites := map[string]*SiteReport{}
	known := newSharer()
	c, err := readContents(tx, &st)
	if err != nil {
		return &ForeignError{Path: rep.Path, Reason: err.Error()}
	}
	err = c.each(func(seq uint64, v []byte, _, _ bool) error {
		if v == nil {
			return nil
		}
		r, err := decodeRecord(seq, v, known, st.down)
		if err != nil {
			rep.Unreadable++
			return nil
		}
		s := sites[r.Key.Site]
		if s == nil {
			s = &SiteReport{Site: r.Key.Site}
			sites[r.Key.Site] = s
		}
		rep.count(&r, s)
		return nil
	})
	for _, s := range sites {
		rep.Sites = append(rep.Sites, *s)
	}
	slices.SortFunc(rep.Sites, func(a, b SiteReport) int { return cmp.Compare(a.Site, b.Site) })
	return err
}

func (rep *Report) count(r *memory.Record, s *SiteReport) {
	s.Records++
	for _, e := range []*memory.Sealed{r.Payload, r.Result} {
		if e != nil {
			s.Bytes += e.Bytes
		}
	}
	switch at := time.Unix(0, r.EnqueuedAt).UTC(); {
	case r.Collected:
		rep.Tombstones++
	case r.Dropped != "":
		rep.Notices++
	default:
		s.Jobs++
		rep.Jobs[r.State]++
		for _, oldest := range []*time.Time{&s.Oldest, &rep.Oldest} {
			if oldest.IsZero() || at.Before(*oldest) {
				*oldest = at
			}
		}
	}
}
