package store

import (
	"time"

	"pushrelay/wire"
)

// Key names a job. Two sites may choose one id and never see each other.
type Key struct{ Site, Job string }

// Route is a pair that consent allows: jobs of Owner that Site publishes (rule 2).
type Route struct{ Site, Owner string }

// Queue is where jobs wait: one for each route, kind, privacy and dialect.
type Queue struct {
	Route
	Kind    string
	Private bool // audience self or private: only the owner's own devices
	Dialect wire.Dialect
}

// State is where a job stands. Cancelled is a flag beside it, not a state.
type State uint8

// States of a job, in the order of a life without trouble.
const (
	Queued State = iota + 1
	AwaitingPayload
	Ready
	Running
	Done
)

// String answers the state's name on the wire.
func (s State) String() string {
	switch s {
	case Queued:
		return "queued"
	case AwaitingPayload:
		return "awaiting-payload"
	case Ready:
		return "ready"
	case Running:
		return "running"
	case Done:
		return "done"
	}
	return "unknown"
}

// Role is a kind of party.
type Role uint8

// Roles of a party.
const (
	RunnerRole Role = iota + 1
	SiteRole
)

// Party is a runner or a site.
type Party struct {
	Role Role
	ID   string
}

// Claim asks for jobs for one runner.
type Claim struct {
	Runner string
	Number uint64 // of the asking session; 0 for a poll, which is never superseded
	Owner  string // the device's owner, by the projection
	Device string // key id that payloads must be sealed to
	// Identity is the device's public identity, which the store keeps beside a result: its site verifies it by these keys,
	// also when the device has left the projection meanwhile.
	Identity wire.PublicIdentity
	Dialect  wire.Dialect
	Routes   []Route // that stand and aren't paused; consent is a set of pairs, never a product
	Kinds    []string
	Max      int // at most so many now
	Slots    int // never more unfinished leases of this runner than this, counted inside
	// LeaseFor is how long the device has each job; OfferFor how long it may leave it unaccepted. 0: accepted at once.
	LeaseFor, OfferFor time.Duration
}

// Claimed is one grant.
type Claimed struct {
	Site      string
	Stub      wire.Stub
	Lease     string
	ExpiresAt time.Time
}

// Enqueued answers one stub of an Enqueue. Known: the key was there. Err is a *Refusal or nil.
type Enqueued struct {
	JobID string
	State State
	Known bool
	Err   error
}

// Completion answers a Complete.
type Completion struct {
	Accepted  bool
	Duplicate bool
	State     State // always Done
}

// Resumed answers a Resume.
type Resumed struct {
	Kept     []wire.Grant // named, held, renewed
	Lost     []wire.Grant // named, not held
	Returned []wire.Grant // held, not named: back in the queue or dropped
}

// OfferKind is what a site is offered.
type OfferKind uint8

// Kinds of offers.
const (
	OfferSeals OfferKind = iota + 1
	OfferResults
	OfferNotices
)

// Offered is one entry on offer. Grant.LeaseID of a notice is a fresh id by which it is collected.
type Offered struct {
	Grant       wire.Grant
	Owner       string              // the job's owner
	Runner      string              // seals and results
	RunnerOwner string              // seals and results
	Device      string              // seals and results: key id of the runner's device
	Identity    wire.PublicIdentity // seals and results: the device's, as it was when it claimed
	WindowEnds  time.Time
	LeaseEnds   time.Time
	Disposition string // results
	Bytes       int64  // results: of the envelope
	Why         Why    // notices
	Attempt     int    // 1 for the first offer
	OfferEnds   time.Time
}

// Job is what a read shows of a job. No ciphertext.
type Job struct {
	Key
	Stub        wire.Stub
	Dialect     wire.Dialect
	State       State
	Offered     bool // awaiting-payload, not accepted yet
	Cancelled   bool
	Lease       string
	Runner      string
	RunnerOwner string
	Device      string
	Identity    wire.PublicIdentity // the device's, as it was when it claimed; forgotten by a tombstone
	EnqueuedAt  time.Time
	Since       time.Time // in this state
	WindowEnds  time.Time // zero before accept and after seal
	LeaseEnds   time.Time
	Deadline    time.Time // as it counts, at most MaxDeadline ahead
	Waits       int       // payload windows in vain since the last seal
	Lapses      int
	Takes       int // of this grant's payload
	Payload     int64
	Result      int64
	Disposition string
	Collected   bool
}

// Cursor is where a page ended; the zero value begins. Opaque to callers.
type Cursor uint64

// Page is part of a list; Next is 0 at its end.
type Page struct {
	Jobs []Job
	Next Cursor
}

// Backlog tells of a queue that holds something.
type Backlog struct {
	Queue
	Waiting int
	Oldest  time.Time
}

// Sighting is what a runner said of itself.
type Sighting struct {
	Runner  string
	At      time.Time // stamped by the store
	Kinds   []string
	Slots   int
	Paused  bool
	Dialect wire.Dialect
}

// Stats are running totals of a store.
type Stats struct {
	ByState  map[State]int // uncollected done ones included
	Bytes    int64         // envelopes
	Notices  int           // uncollected
	Sites    int           // of which something is kept
	Sessions int
}

// SiteStats are running totals of one site.
type SiteStats struct {
	Site    string
	ByState [Done + 1]int // by State; as Stats.ByState counts
	Bytes   int64         // envelopes
	Notices int           // uncollected
}

// Bar says that a runner may not have a job for now.
type Bar struct {
	Runner string
	Until  time.Time // zero: for good
	Queue  bool      // for its refusals of other jobs of the queue; else of this one, or because it gave it back
}

// Swept tells what a Sweep did: Fired due times, and when the next is due (0: more is due now; negative: nothing is).
type Swept struct {
	Fired int
	Next  time.Duration
}
