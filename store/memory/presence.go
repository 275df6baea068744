package memory

import (
	"container/list"
	"slices"
	"strings"
	"time"

	"pushrelay/store"
)

// party is who is there. It is forgotten with its last session.
type party struct {
	sessions map[string]*session
	newest   uint64
}

// session is one connection of a party.
type session struct {
	party  store.Party
	id     string
	number uint64
	due    due
}

// maxSightings bounds what is remembered for operators; beyond, the longest unseen runner is forgotten.
const maxSightings = 1 << 16

// Attach is Presence's.
func (m *Machine) Attach(who store.Party, id string, span time.Duration) uint64 {
	p := m.parties[who]
	if p == nil {
		p = &party{sessions: make(map[string]*session, 1)}
		m.parties[who] = p
	}
	s := p.sessions[id]
	if s == nil {
		m.number++
		s = &session{party: who, id: id, number: m.number}
		s.due.s, s.due.seq = s, m.number
		p.sessions[id] = s
		p.newest = m.number
		m.online++
		m.tellSession(s, store.EventAttached)
	}
	m.dues.set(&s.due, m.now+int64(span))
	return s.number
}

// Attached reports whether the session is there.
func (m *Machine) Attached(who store.Party, id string) bool {
	p := m.parties[who]
	return p != nil && p.sessions[id] != nil
}

// Detach is Presence's.
func (m *Machine) Detach(who store.Party, id string) {
	if p := m.parties[who]; p != nil && p.sessions[id] != nil {
		m.endSession(p.sessions[id])
		return
	}
	if who.Role == store.SiteRole { // a session may be offered things without having attached
		m.endOffers(who.ID, id)
	}
}

func (m *Machine) endSession(s *session) {
	p := m.parties[s.party]
	m.touchEnd(p, s)
	delete(p.sessions, s.id)
	if len(p.sessions) == 0 {
		delete(m.parties, s.party)
	}
	m.dues.remove(&s.due)
	m.online--
	if s.party.Role == store.SiteRole {
		m.endOffers(s.party.ID, s.id)
	}
	m.tellSession(s, store.EventDetached)
}

func (m *Machine) tellSession(s *session, t store.EventType) {
	e := store.Event{Type: t, Party: s.party, Session: s.id, Number: s.number}
	if s.party.Role == store.SiteRole {
		e.Site = s.party.ID
	} else {
		e.Runner = s.party.ID
	}
	m.events = append(m.events, e)
}

// newest reports whether the number is the newest session that the runner had, and that one is there.
func (m *Machine) newest(runner string, number uint64) bool {
	p := m.parties[store.Party{Role: store.RunnerRole, ID: runner}]
	if p == nil || p.newest != number {
		return false
	}
	for _, s := range p.sessions {
		if s.number == number {
			return true
		}
	}
	return false
}

// Present is Presence's. A session whose time is over isn't counted, fired or not.
func (m *Machine) Present(who store.Party) bool {
	if p := m.parties[who]; p != nil {
		for _, s := range p.sessions {
			if s.due.at > m.now {
				return true
			}
		}
	}
	return false
}

// Seen is Presence's.
func (m *Machine) Seen(s store.Sighting) {
	s.At = moment(m.now)
	s.Kinds = slices.Clone(s.Kinds)
	if at := m.seen[s.Runner]; at != nil {
		at.Value = &s
		m.sightings.MoveToBack(at)
		return
	}
	if m.sightings.Len() >= maxSightings {
		old := m.sightings.Front()
		delete(m.seen, sighted(old).Runner)
		m.sightings.Remove(old)
	}
	m.seen[s.Runner] = m.sightings.PushBack(&s)
}

func sighted(at *list.Element) *store.Sighting {
	s, _ := at.Value.(*store.Sighting)
	return s
}

// Everyone is Presence's, sorted by runner.
func (m *Machine) Everyone() []store.Sighting {
	out := make([]store.Sighting, 0, m.sightings.Len())
	for at := m.sightings.Front(); at != nil; at = at.Next() {
		s := *sighted(at)
		s.Kinds = slices.Clone(s.Kinds)
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b store.Sighting) int { return strings.Compare(a.Runner, b.Runner) })
	return out
}
