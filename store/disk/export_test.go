package disk

import (
	"context"
	"errors"
	"time"

	"pushrelay/store/memory"
)

// ErrAway is why commits fail while a test has taken the medium away.
var ErrAway = errors.New("the medium is away")

// Moments at which a commit can be made to fail.
const (
	BeforeCommit = beforeCommit
	AfterCommit  = afterCommit
)

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
		s.out.next = time.Time{}
		return none{}
	})
	return err
}

// FailLarge lets commits fail that bring an envelope of more than a page, as on a disk that is nearly full, or not any more.
func (s *Store) FailLarge(on bool) error {
	_, err := read(context.Background(), s, func(*memory.Machine) none {
		s.out.next, s.fault = time.Time{}, nil
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
