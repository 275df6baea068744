package store

import (
	"time"

	"pushrelay/wire"
)

// EventType is what happened. Events carry ids only and are hints: the store is the truth (rule 9).
type EventType uint8

// Events, with the fields each carries beside Site and Job. Queue fields (Owner, Kind, Private, Dialect) are on all job events.
const (
	// EventQueued: a job waits for a claim, new or back. Why is empty for a new one, else the end's.
	EventQueued EventType = iota + 1
	// EventOffered: a claim granted it. Lease, Runner, Number.
	EventOffered
	// EventAwaiting: the grant was accepted and waits for the site's seal. Lease, Runner.
	EventAwaiting
	// EventReady: sealed; the holder can have it. Lease, Runner.
	EventReady
	// EventRunning: the payload was taken for the first time. Lease, Runner.
	EventRunning
	// EventDone: a result awaits the site. Lease, Runner, Disposition, Age.
	EventDone
	// EventEnded: a grant ended without a result. Lease, Runner, Number, Why, Accepted. EventQueued or EventDropped follows.
	EventEnded
	// EventDropped: the job is gone and a notice awaits the site. Why.
	EventDropped
	// EventCancel: the holder must stop. Lease, Runner.
	EventCancel
	// EventCollected: a result or a notice was collected. Lease.
	EventCollected
	// EventAttached: a new session. Party, Session, Number. EventDetached: it ended, also by time.
	EventAttached
	EventDetached
	// EventResync: events were missed; read again.
	EventResync
)

// Why is the reason of an end or a drop.
type Why string

// Whys of EventEnded and of Offered notices.
const (
	WhyReleased   Why = "released"   // by the runner
	WhyRefused    Why = "refused"    // by the runner, for good
	WhyUnaccepted Why = "unaccepted" // the offer's time was over
	WhyCut        Why = "cut"        // the session ended before it accepted
	WhyWindow     Why = "window"     // the payload window was over
	WhyDeclined   Why = "declined"   // by the site
	WhyLapsed     Why = "lapsed"     // the lease was over, or the payload was taken too often
	WhyAbandoned  Why = "abandoned"  // the runner came back without it
	WhyWithdrawn  Why = "withdrawn"  // consent or device revoked
	WhyDeadline   Why = "deadline"   // drop or end
	WhyUnsealed   Why = "unsealed"   // drop: three waits in vain
	WhyCancelled  Why = "cancelled"  // drop or end
)

// Event tells of one change.
type Event struct {
	Type        EventType
	Queue       // Site and Owner of the job's route, kind, privacy, dialect
	Job         string
	Lease       string
	Runner      string
	Why         Why
	Disposition string
	Accepted    bool // EventEnded: the grant had been accepted
	Party       Party
	Session     string
	Number      uint64
	Age         time.Duration // EventDone: since it was enqueued, by the store's clock
	At          int64         // of a job: when it happened, by the store's clock; epoch nanoseconds, for events are copied a lot
}

// Grant answers the event's grant.
func (e *Event) Grant() wire.Grant { return wire.Grant{JobID: e.Job, LeaseID: e.Lease} }

// Interest narrows a watch. The zero value is everything; Sites limits job events and site parties to these.
type Interest struct {
	Sites []string
}
