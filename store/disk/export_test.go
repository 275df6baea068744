package disk

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"pushrelay/store/memory"
)

// OpenLog is Open with a log of so many entries, and a Close that leaves it as it is, as a crash would.
func OpenLog(ctx context.Context, o Options, entries int) (*Store, error) {
	return openWith(ctx, o, limits{entries: entries, bytes: logBytes, records: logRecords, leave: true})
}

// ErrAway is why commits fail while a test has taken the medium away.
var ErrAway = errors.New("the medium is away")

// Moments at which a commit can be made to fail.
const (
	BeforeCommit = beforeCommit
	AfterCommit  = afterCommit
)

// Held is a store whose next commit waits, just before it happens.
type Held struct {
	Reached <-chan struct{} // closed when the commit waits
	Release func()
	commits atomic.Int64
}

// Commits is how many commits were begun since, the one that waits included.
func (h *Held) Commits() int { return int(h.commits.Load()) }

// Hold lets the next commit wait until it is released.
func (s *Store) Hold() *Held {
	reached, free := make(chan struct{}), make(chan struct{})
	h := &Held{Reached: reached, Release: func() { close(free) }}
	_, _ = read(context.Background(), s, func(*memory.Machine) none {
		s.fault = func(now step) error {
			if now == beforeCommit && h.commits.Add(1) == 1 {
				close(reached)
				<-free
			}
			return nil
		}
		return none{}
	})
	return h
}

// Waiting is how many operations the committer hasn't taken yet.
func (s *Store) Waiting() int {
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	runtime.Gosched()
	return len(s.queue.ops)
}

// FailAt lets commits fail at a moment until it is called with 0, which also lets the next change be tried at once.
func (s *Store) FailAt(at step) error {
	_, err := read(context.Background(), s, func(*memory.Machine) none {
		s.fault = nil
		if at != 0 {
			s.fault = func(now step) error {
				if now == at {
					return ErrAway
				}
				return nil
			}
		}
		s.out.next, s.settler.next = time.Time{}, time.Time{}
		return none{}
	})
	return err
}

// FailLarge lets commits fail that bring an envelope of more than a page, as on a disk that is nearly full, or not any more.
func (s *Store) FailLarge(on bool) error {
	_, err := read(context.Background(), s, func(*memory.Machine) none {
		s.out.next, s.settler.next, s.fault = time.Time{}, time.Time{}, nil
		if on {
			s.fault = func(step) error {
				for _, e := range s.fresh {
					if len(e.Raw) > pageSize {
						return ErrAway
					}
				}
				return nil
			}
		}
		return none{}
	})
	return err
}

// Texts names the kinds of envelopes of which the file has text.
func (s *Store) Texts(t testing.TB) (kinds []string) {
	t.Helper()
	_, err := ask(context.Background(), s, func(*memory.Machine) (none, error) {
		return none{}, s.db.View(func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte(envelopeBucket)).ForEach(func(k, _ []byte) error {
				kind := []string{"payload", "result"}[k[8]]
				if !slices.Contains(kinds, kind) {
					kinds = append(kinds, kind)
				}
				return nil
			})
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return kinds
}
