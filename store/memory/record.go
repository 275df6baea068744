package memory

import (
	"math"
	"time"

	"pushrelay/store"
	"pushrelay/wire"
)

// Record is all that the machine knows of one job. Every index follows from it. Times are epoch nanoseconds, 0 is none.
type Record struct {
	Key        store.Key
	Seq        uint64 // rises with each new job; the order of every list
	Stub       Stub
	State      store.State
	Cancelled  bool
	Collected  bool      // a tombstone: ids, grant and disposition only
	Dropped    store.Why // not empty: gone, with a notice under Lease; its State is Done
	EnqueuedAt int64
	Since      int64
	Deadline   int64
	KeepUntil  int64 // of results, notices and tombstones
	Waits      int
	Lapses     int
	Shun       map[string]int64 // runners that must not have it, and until when
	Served     uint64           // stamp of its last grant: when its route and site were served; orders a runner's grants

	Grant // of a job that is granted or done

	Result      *Sealed
	Disposition string
}

// Stub is a job's stub as its record keeps it: small, and with few pointers, as most records only wait.
type Stub struct {
	*Form
	Streaming  bool
	DeadlineAt int64 // epoch ms, as the site said
	Raw        []byte
}

// Form is what most stubs of a queue have alike; records share it and never change it.
type Form struct {
	Kind      string
	Owner     string
	Site      string // key id of the key that signed
	Audience  string
	Purpose   string
	SizeClass string
	Dialect   wire.Dialect
}

// Wire answers the stub as it came.
func (s *Stub) Wire(id string) wire.Stub {
	return wire.Stub{
		ID: id, Kind: s.Kind, Owner: s.Owner, Site: s.Site, Audience: s.Audience, Purpose: s.Purpose, SizeClass: s.SizeClass,
		Streaming: s.Streaming, DeadlineAt: s.DeadlineAt, Raw: s.Raw,
	}
}

// Grant is the right of one runner to the job. A job that goes back to the queue forgets it whole.
type Grant struct {
	Lease    string
	Runner   string
	Owner    string // the device's
	Device   string
	Identity *wire.PublicIdentity // the device's; shared, never changed. nil: none
	Number   uint64               // session that was offered it
	Offered  bool                 // not accepted yet
	Sealed   bool                 // took a payload once
	Widened  bool                 // its site said sealing
	Takes    int
	LeaseFor int64
	Lapse    int64 // end of the lease
	Window   int64 // end of the offer while Offered, then of the payload window; 0 once sealed
	Payload  *Sealed
}

// Sealed is an envelope of a record. A medium may take its text away and leave the header: Raw is nil then.
type Sealed struct {
	wire.Envelope
	Seq   uint64 // of its job
	Bytes int64  // of the text
	Sum   uint32 // of the text; this and what follows is for a medium
	At    uint64 // where the text is, 0 is its usual place
	Off   uint64
	Gone  bool // the record has it no more
}

// size answers an envelope's bytes; 0 for none.
func (e *Sealed) size() int64 {
	if e == nil {
		return 0
	}
	return e.Bytes
}

// forever is the time of what never ends.
const forever = math.MaxInt64

// job is a record with its places in the indexes.
type job struct {
	Record
	q     *queue
	due   due
	offer offer
	links [2]link
}

// finished reports whether nothing of the job's life is left to happen.
func (j *job) finished() bool { return j.State == store.Done }

// live reports whether the record is a job, neither a notice nor a tombstone.
func (j *job) live() bool { return j.Dropped == "" && !j.Collected }

// next answers when the job's next due time is.
func (j *job) next() int64 {
	switch j.State {
	case store.Queued:
		return j.Deadline
	case store.AwaitingPayload:
		return min(j.Window, j.Deadline)
	case store.Ready, store.Running:
		return min(j.Lapse, j.Deadline)
	}
	return j.KeepUntil
}

// shunned reports whether the runner may not have the job now. What would last longer than it can is over: the clock was
// set back.
func (j *job) shunned(runner string, now int64) bool {
	until := j.Shun[runner]
	return until > now && (until == forever || until-now <= int64(store.MaxNotFor))
}

// shun keeps the runner from the job until the given time. Entries that are over make room.
func (j *job) shun(runner string, until, now int64) {
	if j.Shun == nil {
		j.Shun = make(map[string]int64, 1)
	}
	for r, t := range j.Shun {
		if t <= now {
			delete(j.Shun, r)
		}
	}
	j.Shun[runner] = max(until, j.Shun[runner])
}

// grant answers the job's grant, or the notice's id.
func (j *job) grant() wire.Grant { return wire.Grant{JobID: j.Key.Job, LeaseID: j.Lease} }

// view answers what a read shows.
func (j *job) view() store.Job {
	v := store.Job{
		Key: j.Key, Stub: j.Stub.Wire(j.Key.Job), Dialect: j.Stub.Dialect, State: j.State, Offered: j.Offered, Cancelled: j.Cancelled,
		Runner: j.Runner, RunnerOwner: j.Owner, Device: j.Device,
		EnqueuedAt: moment(j.EnqueuedAt), Since: moment(j.Since), Deadline: moment(j.Deadline),
		LeaseEnds: moment(j.Lapse), Waits: j.Waits, Lapses: j.Lapses, Takes: j.Takes,
		Identity: j.identity(), Payload: j.Payload.size(), Result: j.Result.size(), Disposition: j.Disposition, Collected: j.Collected,
	}
	if !j.Offered && !j.finished() {
		v.WindowEnds = moment(j.Window)
	}
	if j.Dropped == "" {
		v.Lease = j.Lease
	}
	return v
}

// identity answers the identity of the grant's device.
func (g *Grant) identity() wire.PublicIdentity {
	if g.Identity == nil {
		return wire.PublicIdentity{}
	}
	return *g.Identity
}

// moment answers a time of nanoseconds, in UTC; the zero time for 0.
func moment(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns).UTC()
}

// link is a job's place in a chain.
type link struct{ prev, next *job }

// Chains that a job may stand in.
const (
	heldChain = iota
	openChain
)

// chain is a list of jobs in order of arrival. Additions and removals cost nothing.
type chain struct {
	head, tail *job
	n          int
}

func (c *chain) push(j *job, which int) {
	j.links[which] = link{prev: c.tail}
	if c.tail == nil {
		c.head = j
	} else {
		c.tail.links[which].next = j
	}
	c.tail = j
	c.n++
}

// sort puts a job where its grant's stamp belongs among those held.
func (c *chain) sort(j *job) {
	after := c.tail
	for after != nil && after.Served > j.Served {
		after = after.links[heldChain].prev
	}
	if after == c.tail {
		c.push(j, heldChain)
		return
	}
	next := c.head
	if after != nil {
		next = after.links[heldChain].next
		after.links[heldChain].next = j
	} else {
		c.head = j
	}
	j.links[heldChain] = link{prev: after, next: next}
	next.links[heldChain].prev = j
	c.n++
}

func (c *chain) remove(j *job, which int) {
	l := j.links[which]
	if l.prev == nil {
		c.head = l.next
	} else {
		l.prev.links[which].next = l.next
	}
	if l.next == nil {
		c.tail = l.prev
	} else {
		l.next.links[which].prev = l.prev
	}
	j.links[which] = link{}
	c.n--
}
