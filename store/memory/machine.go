package memory

import (
	"container/list"
	"crypto/rand"
	"time"

	"github.com/google/uuid"

	"pushrelay/store"
	"pushrelay/wire"
)

// Machine is the state machine of section 3 with its indexes, in memory and without a lock: one caller at a time. Each
// operation begins with Begin, decides and changes through the moves of moves.go, and leaves its events in Events.
//
// Indexes follow from the records: leave takes a record off its places and enter puts it where it belongs now
// (place.go), so a record can also be put back as it was.
type Machine struct {
	set    store.Settings
	now    int64
	events []store.Event
	ids    ids

	jobs    map[store.Key]*job
	leases  map[string]*job // grants that stand, of done jobs, and ids of notices
	holders map[holding]int // records whose grant is this runner's, by job id: two sites may choose one id
	sites   map[string]*site
	runners map[string]*runner
	parties map[store.Party]*party
	dues    dues

	seq     uint64 // of jobs
	stamp   uint64 // of turns and offers
	number  uint64 // of sessions; for all parties, so that a forgotten one never gets a number again
	swept   int64  // the last Sweep
	byState [store.Done + 1]int
	bytes   int64
	notices int
	online  int // sessions

	journal *journal // of the group that runs; nil outside of one, and where nothing is kept
	notes   *journal // the last group's, for the next

	streaks   list.List // of *Streak, the longest untouched first
	sightings list.List // of *store.Sighting, the longest unseen first
	seen      map[string]*list.Element

	turns []*site  // scratch of Claim
	named []*route // scratch of Claim
	claim uint64   // number of the running claim, marks its routes
}

// holding is a runner with a job id that it holds or finished.
type holding struct{ runner, job string }

// site is all that hangs on one site. It lives as long as a record or an offering session of it does.
type site struct {
	id       string
	records  int // tombstones and notices included
	jobs     int // queued to done and uncollected
	byState  [store.Done + 1]int
	notices  int
	bytes    int64
	routes   map[string]*route // by owner
	waiting  map[*queue]struct{}
	all      ordered
	awaiting ordered
	finished ordered
	shelves  [3]shelf
	sessions map[string]*audience

	served uint64 // stamp of the last grant
	mark   uint64 // claim that it takes part in
	order  int
	turns  []*route
}

// route is a site's jobs of one owner. It lives as long as a record of it does, so turns outlive an empty queue.
type route struct {
	store.Route
	site     *site
	records  int
	waiting  int
	unsealed int // grants that wait for their seal, offered ones included, cancelled ones not
	queues   map[lane]*queue

	served uint64
	mark   uint64
	order  int
	picked uint64 // claim that picks belong to
	picks  []pick
}

// lane names a queue within its route.
type lane struct {
	kind    string
	private bool
	dialect string
}

// queue is the jobs of a route, kind, privacy and dialect that wait. It lives as long as a record of it does.
type queue struct {
	store.Queue
	route   *route
	records int
	jobs    ordered
	mark    uint64  // claim that reads it
	forms   []*Form // of late
}

// maxForms bounds how many forms a queue remembers. Sites use one or two; one that makes up a new purpose for each job
// costs itself the sharing, and nobody a search.
const maxForms = 8

// form answers the form that the queue's records share for such a stub: a hundred thousand jobs that wait are so many times
// fewer objects and pointers for the collector to visit.
func (q *queue) form(s *wire.Stub) *Form {
	f := Form{
		Kind: q.Kind, Owner: q.Owner, Dialect: q.Dialect,
		Site: s.Site, Audience: s.Audience, Purpose: s.Purpose, SizeClass: s.SizeClass,
	}
	for _, known := range q.forms {
		if *known == f {
			return known
		}
	}
	if len(q.forms) == maxForms {
		q.forms = append(q.forms[:0], q.forms[1:]...)
	}
	kept := f // f itself needn't leave the stack
	q.forms = append(q.forms, &kept)
	return &kept
}

// runner is what a runner holds and which queues it must wait for. It lives as long as there is any of that.
type runner struct {
	held    chain
	known   []known              // routes of its last claims
	last    *wire.PublicIdentity // of its last claim's device, so that its grants share one
	streaks map[store.Queue]*list.Element
}

func (s *site) turn() (uint64, int)  { return s.served, s.order }
func (r *route) turn() (uint64, int) { return r.served, r.order }

// NewMachine makes an empty machine. Settings that are zero get their defaults.
func NewMachine(set store.Settings, now time.Time) *Machine {
	return &Machine{
		set:     set.WithDefaults(),
		now:     now.UnixNano(),
		swept:   now.UnixNano(),
		jobs:    make(map[store.Key]*job),
		leases:  make(map[string]*job),
		holders: make(map[holding]int),
		sites:   make(map[string]*site),
		runners: make(map[string]*runner),
		parties: make(map[store.Party]*party),
		seen:    make(map[string]*list.Element),
	}
}

// Begin starts an operation at the given time and forgets the events of the last one.
func (m *Machine) Begin(now time.Time) {
	m.now = now.UnixNano()
	if cap(m.events) > 4096 {
		m.events = nil
	}
	m.events = m.events[:0]
}

// Events answers what happened since Begin, in order. The slice is good until the next Begin.
func (m *Machine) Events() []store.Event { return m.events }

// tell adds an event of a job.
func (m *Machine) tell(j *job, t store.EventType, why store.Why) {
	m.events = append(m.events, store.Event{Type: t, Queue: j.q.Queue, Job: j.Key.Job, Why: why, At: m.now})
}

// tellGrant adds an event of a job's grant.
func (m *Machine) tellGrant(j *job, t store.EventType, why store.Why) *store.Event {
	m.events = append(m.events, store.Event{
		Type: t, Queue: j.q.Queue, Job: j.Key.Job, Lease: j.Lease, Runner: j.Runner, Why: why, At: m.now,
	})
	return &m.events[len(m.events)-1]
}

func (m *Machine) nextStamp() uint64 { m.stamp++; return m.stamp }

// queueOf answers the queue of a new job, with its site and route.
func (m *Machine) queueOf(q store.Queue) *queue {
	s := m.sites[q.Site]
	if s == nil {
		s = &site{id: q.Site, routes: make(map[string]*route), waiting: make(map[*queue]struct{})}
		m.sites[q.Site] = s
	}
	r := s.routes[q.Owner]
	if r == nil {
		r = &route{Route: q.Route, site: s, queues: make(map[lane]*queue, 1)}
		s.routes[q.Owner] = r
	}
	l := lane{q.Kind, q.Private, string(q.Dialect)}
	w := r.queues[l]
	if w == nil {
		w = &queue{Queue: q, route: r}
		r.queues[l] = w
	}
	return w
}

func (m *Machine) runner(id string) *runner {
	r := m.runners[id]
	if r == nil {
		r = &runner{}
		m.runners[id] = r
	}
	return r
}

// identity answers the identity of a claim's device for its grants; nil for none.
func (m *Machine) identity(c *store.Claim) *wire.PublicIdentity {
	if c.Identity == (wire.PublicIdentity{}) {
		return nil
	}
	r := m.runner(c.Runner)
	if r.last == nil || *r.last != c.Identity {
		id := c.Identity
		r.last = &id
	}
	return r.last
}

// tidyRunner frees the record of a runner that holds nothing and waits for nothing.
func (m *Machine) tidyRunner(id string) {
	if r := m.runners[id]; r != nil && r.held.n == 0 && len(r.streaks) == 0 {
		delete(m.runners, id)
	}
}

// tidySite frees the record of a site that has nothing.
func (m *Machine) tidySite(s *site) {
	if s.records == 0 && len(s.sessions) == 0 {
		delete(m.sites, s.id)
	}
}

// ids makes version 4 UUIDs from a pool of random bytes.
type ids struct {
	pool [512]byte
	left int
}

// next answers a fresh id. Reading from crypto/rand never fails, by its documentation.
func (p *ids) next() string {
	if p.left == 0 {
		_, _ = rand.Read(p.pool[:])
		p.left = len(p.pool)
	}
	var u uuid.UUID
	copy(u[:], p.pool[p.left-len(u):p.left])
	p.left -= len(u)
	u[6] = u[6]&0x0f | 0x40
	u[8] = u[8]&0x3f | 0x80
	return u.String()
}
