package storetest

import (
	"time"

	"pushrelay/store"
	"pushrelay/wire"
)

// model is the contract once more, slow and simple: no index, every question scans all jobs. It follows a store's
// free choices (lease ids, numbers, who is served first among equals) and judges each of them.
type model struct {
	set     store.Settings
	now     time.Time
	seq     int
	stamp   int
	jobs    map[store.Key]*mjob
	parties map[store.Party]*mparty
	streaks map[mqueue]*mstreak
	turns   map[store.Route]*mturn // of a route; of a site with an empty owner
	events  []store.Event          // of the running operation
}

// mjob is a job, a notice or a tombstone.
type mjob struct {
	store.Job   // as a read shows it; WindowEnds is the offer's end while Offered
	seq         int
	served      int // turn of its last grant
	queue       store.Queue
	dropped     store.Why
	keep        time.Time // of a done one
	number      uint64
	widened     bool
	sealed      bool
	payload     wire.Envelope
	result      wire.Envelope
	shun        map[string]time.Time
	offer       moffer
	uncertainly bool // widened after its offer had ended: whether it's offered again is left open
}

// moffer is where an entry stands with a site's sessions.
type moffer struct {
	id       string // of a notice, once seen
	session  string
	open     bool
	ends     time.Time
	attempts int
}

type mparty struct {
	last     uint64
	sessions map[string]*msession
}

type msession struct {
	number uint64
	ends   time.Time
}

type mqueue struct {
	runner string
	queue  store.Queue
}

type mstreak struct {
	n     int
	wait  time.Duration
	until time.Time
}

// mturn is when a site or route was served. A store may forget that of an empty one, so it's certain only till then.
type mturn struct {
	at      int
	certain bool
}

var never = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

func newModel(set store.Settings, now time.Time) *model {
	return &model{
		set: set.WithDefaults(), now: now, jobs: map[store.Key]*mjob{}, parties: map[store.Party]*mparty{},
		streaks: map[mqueue]*mstreak{}, turns: map[store.Route]*mturn{},
	}
}

func (m *model) tell(j *mjob, t store.EventType, why store.Why) *store.Event {
	m.events = append(m.events, store.Event{Type: t, Queue: j.queue, Job: j.Key.Job, Why: why})
	return &m.events[len(m.events)-1]
}

func (m *model) tellGrant(j *mjob, t store.EventType, why store.Why) *store.Event {
	e := m.tell(j, t, why)
	e.Lease, e.Runner = j.Lease, j.Runner
	return e
}

// live reports whether the job counts: neither dropped nor collected.
func (j *mjob) live() bool { return j.dropped == "" && !j.Collected }
func (j *mjob) held() bool { return j.State > store.Queued && j.State < store.Done }
func (j *mjob) bytes() int64 {
	return int64(len(j.payload.Raw)) + int64(len(j.result.Raw))
}

// awaits reports whether its site is to seal it.
func (j *mjob) awaits() bool {
	return j.State == store.AwaitingPayload && !j.Offered && !j.Cancelled
}

// due answers when something happens to the job by itself.
func (j *mjob) due() time.Time {
	var at time.Time
	switch j.State {
	case store.Queued:
		return j.Deadline
	case store.AwaitingPayload:
		at = j.WindowEnds
	case store.Ready, store.Running:
		at = j.LeaseEnds
	default:
		return j.keep
	}
	if at.After(j.Deadline) {
		return j.Deadline
	}
	return at
}

// fire does all that is due, earliest first. The tests keep it below MaxFired.
func (m *model) fire() {
	for {
		at := m.now.Add(1)
		var first func()
		for _, j := range m.jobs {
			if d := j.due(); d.Before(at) {
				at, first = d, func() { m.fireJob(j) }
			}
		}
		for p, party := range m.parties {
			for name, s := range party.sessions {
				if s.ends.Before(at) {
					at, first = s.ends, func() { m.endSession(p, name) }
				}
			}
		}
		if first == nil {
			return
		}
		first()
	}
}

func (m *model) fireJob(j *mjob) {
	switch {
	case j.State == store.Done:
		delete(m.jobs, j.Key)
	case !j.Deadline.After(m.now) && j.due().Equal(j.Deadline):
		m.drop(j, store.WhyDeadline)
	case j.Offered:
		m.end(j, store.WhyUnaccepted)
	case j.State == store.AwaitingPayload:
		j.Waits++
		m.end(j, store.WhyWindow)
	default:
		m.lapse(j, store.WhyLapsed)
	}
}

func (m *model) lapse(j *mjob, why store.Why) {
	if j.State == store.Running {
		j.Lapses++
	}
	m.end(j, why)
}

// end takes the grant off a job and puts it back, or drops it.
func (m *model) end(j *mjob, why store.Why) {
	m.tellGrant(j, store.EventEnded, why)
	m.forget(j)
	switch {
	case j.Cancelled:
		m.drop(j, store.WhyCancelled)
	case j.Waits >= store.MaxWaits:
		m.drop(j, store.WhyUnsealed)
	case j.Lapses >= store.MaxLapses:
		m.drop(j, store.WhyLapsed)
	default:
		m.tell(j, store.EventQueued, why)
	}
}

// forget makes it a queued job again, with its counts and shuns.
func (m *model) forget(j *mjob) {
	j.State, j.Since, j.Offered = store.Queued, m.now, false
	j.Lease, j.Runner, j.RunnerOwner, j.Device, j.number = "", "", "", "", 0
	j.Identity = wire.PublicIdentity{}
	j.WindowEnds, j.LeaseEnds, j.Takes = time.Time{}, time.Time{}, 0
	j.payload, j.widened, j.sealed, j.uncertainly, j.offer = wire.Envelope{}, false, false, false, moffer{}
}

func (m *model) drop(j *mjob, why store.Why) {
	if j.held() {
		m.tellGrant(j, store.EventEnded, why)
		m.forget(j)
	}
	j.State, j.Since, j.dropped, j.offer = store.Done, m.now, why, moffer{}
	j.keep = m.between(j.Deadline, store.NoticeMin, m.set.ResultRetention)
	m.tell(j, store.EventDropped, why)
}

// between answers t, but at least low and at most high from now.
func (m *model) between(t time.Time, low, high time.Duration) time.Time {
	d := min(max(t.Sub(m.now), low), max(low, high))
	return m.now.Add(d)
}

// look is the look-up that all lease-scoped calls share.
func (m *model) look(runner string, g wire.Grant) (*mjob, *store.Refusal) {
	for _, j := range m.jobs {
		if j.dropped == "" && j.Lease != "" && j.Lease == g.LeaseID && j.Key.Job == g.JobID {
			if j.Runner != runner {
				return nil, store.ErrNotHolder
			}
			return j, nil
		}
	}
	for _, j := range m.jobs {
		if j.dropped == "" && j.Lease != "" && j.Key.Job == g.JobID && j.Runner == runner {
			return nil, store.ErrStaleLease
		}
	}
	return nil, store.ErrNotFound
}

// standing answers the runner's unfinished job of the grant, or nil.
func (m *model) standing(runner string, g wire.Grant) *mjob {
	if j, err := m.look(runner, g); err == nil && j.held() {
		return j
	}
	return nil
}

func (m *model) accept(j *mjob) {
	if j.Offered {
		j.Offered = false
		j.WindowEnds = m.now.Add(m.set.PayloadWindow)
		m.tellGrant(j, store.EventAwaiting, "")
	}
}

func (m *model) siteBytes(site string) (n int64) {
	for _, j := range m.jobs {
		if j.Site == site {
			n += j.bytes()
		}
	}
	return n
}

func (m *model) siteJobs(site string) (n int) {
	for _, j := range m.jobs {
		if j.Site == site && j.live() {
			n++
		}
	}
	return n
}

func (m *model) endSession(p store.Party, name string) {
	party := m.parties[p]
	delete(party.sessions, name)
	if p.Role != store.SiteRole {
		return
	}
	for _, j := range m.jobs {
		if j.Site == p.ID && j.offer.session == name {
			j.offer.open, j.offer.session = false, ""
		}
	}
}

// newest answers the number that may claim and resume, 0 for none.
func (m *model) newest(runner string) uint64 {
	p := m.parties[store.Party{Role: store.RunnerRole, ID: runner}]
	if p == nil {
		return 0
	}
	for _, s := range p.sessions {
		if s.number == p.last {
			return p.last
		}
	}
	return 0
}
