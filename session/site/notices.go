package site

import (
	"errors"

	"github.com/rs/zerolog"

	"pushrelay/session/internal/ask"
	"pushrelay/wire"
)

// Why of notices that this package makes itself, beside the relay's deadline, unsealed, lapsed and cancelled.
const (
	WhyCancelled = "cancelled"
	WhyRefused   = "refused" // with the code: the relay lost its memory and doesn't take the job again
)

// Notice says that a job is over without a result.
type Notice struct {
	JobID string
	Why   string // deadline, unsealed, lapsed, cancelled, or a word of this package
}

// notices takes jobs that the relay dropped.
func (s *Site) notices(frame []byte) error {
	f, err := wire.Decode[wire.Notices](frame)
	if err != nil {
		return err
	}
	if len(f.Jobs) > maxQueuedResults {
		return errors.New("site: too many notices at once")
	}
	for _, n := range f.Jobs {
		g := wire.Grant{JobID: n.JobID, LeaseID: n.LeaseID}
		if !s.admit(g, 0) {
			continue
		}
		s.work.Go(func() {
			defer s.leave(g, 0)
			if s.place() {
				defer s.vacate()
				s.notice(g, n)
			}
		})
	}
	return nil
}

func (s *Site) notice(g wire.Grant, n wire.Notice) {
	s.mu.Lock()
	seen := s.handled.seen(g)
	s.mu.Unlock()
	if !seen {
		if err := s.tell(Notice{JobID: n.JobID, Why: n.Why}); err != nil {
			return
		}
	}
	s.mu.Lock()
	if g.LeaseID != "" {
		s.handled.add(g)
	}
	s.finish(n.JobID)
	s.mu.Unlock()
	if g.LeaseID != "" {
		s.collected(g)
	}
}

// noticed tells of an end that this package found out itself; there is nothing to collect.
func (s *Site) noticed(n Notice) {
	s.work.Go(func() {
		if s.place() {
			defer s.vacate()
			_ = s.tell(n) // logged there
		}
	})
}

// unhandled begins the line about a callback's error.
func (s *Site) unhandled(err error) *zerolog.Event {
	if errors.Is(err, ErrElsewhere) {
		return s.log.Debug()
	}
	return s.log.Warn()
}

func (s *Site) tell(n Notice) error {
	if s.cfg.OnNotice != nil {
		if err := guard(func() error { return s.cfg.OnNotice(s.calls, n) }); err != nil {
			s.unhandled(err).Str("error", ask.Saying(err)).Str("job", ask.Printable(n.JobID)).Msg("a notice wasn't handled")
			return err
		}
	}
	s.event(EventNotice, n.JobID, "", n.Why)
	return nil
}

func (s *Site) requeued(frame []byte) error {
	f, err := wire.Decode[wire.Notices](frame)
	if err != nil {
		return err
	}
	for _, n := range f.Jobs {
		s.event(EventRequeued, n.JobID, n.LeaseID, n.Why)
	}
	return nil
}
