package site

import (
	"context"
	"errors"
	"fmt"
	"time"

	"pushrelay/session/internal/ask"
	"pushrelay/wire"
	"pushrelay/wire/seal"
)

// Why a payload isn't sealed.
var (
	errUnknown   = errors.New("jobs that this process didn't publish; another process of the site may have them")
	errWithdrawn = errors.New("cancelled")
	errExpired   = errors.New("its payload is gone")
)

// task is one grant to seal for.
type task struct {
	job   wire.SealJob
	entry *entry // nil until Lookup found it
	big   bool   // the relay was told that it takes longer
}

func (t *task) grant() wire.Grant { return wire.Grant{JobID: t.job.JobID, LeaseID: t.job.LeaseID} }

// sealRequest seals to the devices that accepted. What is unknown is declined in one frame, and what is large announced
// in one, before the sealing itself, which takes time.
func (s *Site) sealRequest(l *link, frame []byte) error {
	f, err := wire.Decode[wire.SealRequest](frame)
	if err != nil {
		return err
	}
	if len(f.Jobs) > wire.MaxList {
		return errors.New("site: too many seal requests at once")
	}
	tasks, unknown, large := s.sort(l, f.Jobs)
	if len(unknown) > 0 {
		s.work.Go(func() { s.decline(l, unknown, errUnknown) })
	}
	announced := make(chan struct{})
	s.work.Go(func() {
		defer close(announced)
		s.sealing(l, large)
	})
	for _, t := range tasks {
		s.event(EventAsked, t.job.JobID, t.job.LeaseID, t.job.RunnerID)
		s.work.Go(func() {
			defer s.doneSealing(l, t)
			if t.big {
				<-announced // a long upload mustn't begin before the relay waits for it
			}
			s.sealFor(l, t)
		})
	}
	return nil
}

// sort takes seal requests in, except copies of those that are being worked on.
func (s *Site) sort(l *link, jobs []wire.SealJob) (tasks []*task, unknown, large []wire.Grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range jobs {
		t := &task{job: j, entry: s.jobs[j.JobID]}
		if _, working := l.sealing[t.grant()]; working {
			continue
		}
		if t.entry == nil && s.cfg.Lookup == nil {
			unknown = append(unknown, t.grant())
			continue
		}
		if t.entry != nil && len(t.entry.payload) > plainOver {
			t.big = true
			large = append(large, t.grant())
		}
		l.sealing[t.grant()] = struct{}{}
		tasks = append(tasks, t)
	}
	return tasks, unknown, large
}

func (s *Site) doneSealing(l *link, t *task) {
	s.mu.Lock()
	delete(l.sealing, t.grant())
	s.mu.Unlock()
}

// sealFor seals one payload to one device and hands it over, as often as the relay can't take it just now: who gave up would
// have its job counted as not sealed. Between tries others have the turn.
func (s *Site) sealFor(l *link, t *task) {
	for try := 1; ; try++ {
		again := s.sealOnce(l, t)
		if again == nil || ask.Sleep(l.ctx, ask.Pause(try, again)) != nil {
			return
		}
	}
}

// sealOnce answers the refusal after which it is to be tried again.
func (s *Site) sealOnce(l *link, t *task) (again error) {
	select {
	case l.seals <- struct{}{}:
		defer func() { <-l.seals }()
	case <-l.ctx.Done():
		return nil
	}
	raw, err := s.envelope(l, t)
	if err != nil {
		if l.ctx.Err() == nil {
			s.decline(l, []wire.Grant{t.grant()}, err)
		}
		return nil
	}
	if len(raw) > sealingOver && !t.big {
		t.big = true
		s.sealing(l, []wire.Grant{t.grant()})
	}
	return s.hand(l, t, raw)
}

// envelope answers the envelope for a grant: the one made before, when the relay may not have it yet, or a new one.
func (s *Site) envelope(l *link, t *task) ([]byte, error) {
	if err := s.find(l.ctx, t); err != nil {
		return nil, err
	}
	keyID, err := s.device(t.job.RunnerID, t.job.Device)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	e, withdrawn, kept := t.entry, t.entry.withdrawn, t.entry.sealed
	s.mu.Unlock()
	if withdrawn {
		return nil, errWithdrawn
	}
	if kept != nil && kept.leaseID == t.job.LeaseID && kept.keyID == keyID {
		return kept.raw, nil
	}
	plain, err := s.plaintext(l, t)
	if err != nil {
		return nil, err
	}
	env, err := seal.Seal(s.cfg.Keys, t.job.Device, seal.Context{
		JobID: t.job.JobID, Direction: wire.DirectionPayload, DeadlineAt: e.deadlineAt,
	}, plain)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	if len(e.sealedTo) >= maxSealedTo {
		clear(e.sealedTo) // no honest relay moves a job so often
	}
	e.sealed = &sealed{leaseID: t.job.LeaseID, keyID: keyID, raw: env.Raw}
	e.sealedTo[t.job.LeaseID] = keyID
	s.mu.Unlock()
	return env.Raw, nil
}

// find asks Lookup for a job that another process of the site submitted. It isn't put into the book: whoever submitted it
// enqueues it again when the relay lost its memory.
func (s *Site) find(ctx context.Context, t *task) error {
	if t.entry != nil {
		return nil
	}
	j, found, err := s.cfg.Lookup(ctx, t.job.JobID)
	if err != nil {
		return fmt.Errorf("site: Lookup: %w", err)
	}
	if !found {
		return errUnknown
	}
	j.ID = t.job.JobID
	t.entry, err = s.newEntry(j)
	return err
}

// device verifies who is to read a payload, or wrote a result.
func (s *Site) device(runnerID string, device wire.PublicIdentity) (keyID string, err error) {
	if err := device.Verify(); err != nil {
		return "", err
	}
	if keyID, err = device.KeyID(); err != nil {
		return "", err
	}
	if s.cfg.Trust != nil {
		if err := s.cfg.Trust(runnerID, device); err != nil {
			return "", fmt.Errorf("site: the device isn't trusted: %w", err)
		}
	}
	return keyID, nil
}

// plaintext answers what to seal. When loading takes long the relay is told, so that the device's grant stands meanwhile.
func (s *Site) plaintext(l *link, t *task) ([]byte, error) {
	s.mu.Lock()
	payload := t.entry.payload
	s.mu.Unlock()
	if t.entry.load == nil {
		if len(payload) == 0 {
			return nil, errExpired
		}
		return payload, nil
	}
	ctx, cancel := context.WithTimeout(l.ctx, time.Minute)
	defer cancel()
	slow := time.AfterFunc(sealingAfter, func() { s.sealing(l, []wire.Grant{t.grant()}) })
	plain, err := t.entry.load(ctx)
	t.big = !slow.Stop()
	if err != nil {
		return nil, fmt.Errorf("site: Load: %w", err)
	}
	return plain, nil
}

// sealing tells the relay that sealing takes longer; none is fine. Its failure costs the longer window, no more.
func (s *Site) sealing(l *link, grants []wire.Grant) {
	if len(grants) == 0 {
		return
	}
	_, err := ask.Request[wire.OKReply](l.ctx, l.conn, maxTries, func(dst []byte, id string) []byte {
		return wire.AppendGrants(dst, wire.TypeSealing, id, grants)
	})
	if err != nil && !ended(err) {
		s.log.Warn().Str("error", ask.Saying(err)).Int("jobs", len(grants)).Msg("the relay doesn't wait longer for these payloads")
	}
}

// decline says that nothing will be sealed for these grants, so that nobody waits.
func (s *Site) decline(l *link, grants []wire.Grant, why error) {
	line := s.log.Warn()
	if errors.Is(why, errUnknown) && s.strangers.Swap(true) {
		line = s.log.Debug() // there may be thousands of them
	}
	line.Str("why", ask.Saying(why)).Int("jobs", len(grants)).Msg("payloads are not sealed")
	_, err := ask.Request[wire.OKReply](l.ctx, l.conn, maxTries, func(dst []byte, id string) []byte {
		return wire.AppendGrants(dst, wire.TypeDecline, id, grants)
	})
	if err != nil && !ended(err) {
		s.log.Warn().Str("error", ask.Saying(err)).Msg("a decline wasn't taken; the device waits for nothing")
	}
	for _, g := range grants {
		s.event(EventDeclined, g.JobID, g.LeaseID, "")
	}
}

// hand sends a sealed payload and answers a refusal that may pass. When the session ends the relay asks again.
func (s *Site) hand(l *link, t *task, raw []byte) (again error) {
	g := t.grant()
	answer, err := l.conn.RequestBulk(l.ctx, func(id string) [][]byte {
		return [][]byte{wire.AppendSealHead(nil, id, g.JobID, g.LeaseID), raw, wire.AppendTail(nil)}
	})
	if err == nil {
		_, err = ask.Read[wire.StateReply](answer)
	}
	switch {
	case ended(err):
	case err != nil && ask.Passing(err):
		s.log.Debug().Str("error", ask.Saying(err)).Str("job", ask.Printable(g.JobID)).Msg("a sealed payload isn't taken just now")
		return err
	default:
		s.handed(t, err)
	}
	return nil
}

func (s *Site) handed(t *task, err error) {
	s.mu.Lock()
	if k := t.entry.sealed; k != nil && k.leaseID == t.job.LeaseID {
		t.entry.sealed = nil
	}
	s.mu.Unlock()
	if err != nil {
		s.log.Info().Str("error", ask.Saying(err)).Str("job", ask.Printable(t.job.JobID)).Msg("a sealed payload came too late")
		return
	}
	s.event(EventSealed, t.job.JobID, t.job.LeaseID, "")
}
