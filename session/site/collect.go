package site

import (
	"context"
	"slices"

	"pushrelay/session/internal/ask"
	"pushrelay/wire"
)

// collected tells the relay, soon, that a grant is handled.
func (s *Site) collected(g wire.Grant) {
	s.mu.Lock()
	if len(s.toTell) < maxRemembered { // beyond, the relay offers it again
		s.toTell = append(s.toTell, g)
	}
	l := s.link
	s.mu.Unlock()
	if l != nil {
		poke(l.collect)
	}
}

// collector sends what was handled; while one frame is under way the next one gathers.
func (s *Site) collector(l *link) {
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-l.collect:
		}
		for s.collectSome(l) {
		}
	}
}

// told forgets what the relay knows. A newer session may have told the same meanwhile, so the place in the list says
// nothing. mu is held.
func (s *Site) told(batch []wire.Grant) {
	known := make(map[wire.Grant]struct{}, len(batch))
	for _, g := range batch {
		known[g] = struct{}{}
	}
	s.toTell = slices.DeleteFunc(s.toTell, func(g wire.Grant) bool {
		_, ok := known[g]
		return ok
	})
	if len(s.toTell) == 0 {
		s.toTell = nil
	}
}

func (s *Site) collectSome(l *link) bool {
	s.mu.Lock()
	n := min(len(s.toTell), wire.MaxList)
	batch := append([]wire.Grant(nil), s.toTell[:n]...)
	s.telling = n
	s.mu.Unlock()
	if n == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(l.ctx, requestPatience)
	defer cancel()
	_, err := ask.Request[wire.OKReply](ctx, l.conn, maxTries, func(dst []byte, id string) []byte {
		return wire.AppendGrants(dst, wire.TypeCollected, id, batch)
	})
	passing := err != nil && ask.Passing(err)
	s.mu.Lock()
	s.telling = 0
	if !ended(err) && !passing { // else it is told again, by the next session at the latest
		s.told(batch)
	}
	s.touch()
	s.mu.Unlock()
	if passing {
		return ask.Sleep(l.ctx, ask.Pause(maxTries, err)) == nil
	}
	if err != nil {
		if !ended(err) {
			s.log.Warn().Str("error", ask.Saying(err)).Int("jobs", n).Msg("handled results couldn't be collected; the relay offers them again")
		}
		return false
	}
	for _, g := range batch {
		s.event(EventCollected, g.JobID, g.LeaseID, "")
	}
	return true
}
