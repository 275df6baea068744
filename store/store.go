// Package store declares what a relay remembers of jobs in flight, and the one set of semantics that memory, disk and
// Valkey share (design, section 3).
//
//	queued --claim--> offered --accept--> awaiting-payload --seal--> ready --fetch--> running --result--> done
//	   ^                 | 5 s             | window over              | lease over     |
//	   +-----------------+-----------------+--------------------------+----------------+  release, lapse
//
// Every operation is a decision together with its write (rule 3), judged by the store's clock (rule 6). Lease-scoped
// operations name the grant (rule 5). An operation either happens whole or returns an error and changes nothing; it is
// on its medium before it returns and before anybody sees its event (rule 10). All methods may be called concurrently.
// A method blocks for the medium only, never for another party. Refusals are *Refusal; ErrUnavailable says that the
// medium is out for now and the call may be repeated.
//
// Envelopes are megabytes and are never copied: Raw belongs to the store once it was given, and nobody changes a Raw
// that the store answered. A stub's Raw stays the caller's.
package store

import (
	"context"
	"time"

	"pushrelay/wire"
)

// RoutingStore is the whole contract that store/storetest holds every implementation to.
type RoutingStore interface {
	SiteStore
	RunnerStore
	Presence
	Reader
	Keeper
}

// SiteStore is what a site's requests need. The site id always comes from authentication.
type SiteStore interface {
	// Enqueue publishes jobs, each on its own: answers stand in the stubs' order, refusals in Enqueued.Err
	// (ErrTooLate for a passed deadline, ErrOverQuota for too many jobs, ErrBadID). A key that is known, finished
	// and dropped ones included while their tombstone stands, answers its state and changes nothing (rule 4): that is
	// judged first, then the id, the deadline (passed when now is not before it), the quota. A dropped one's state is
	// Done. The quota counts what Stats.ByState counts: no tombstones, no dropped ones.
	Enqueue(ctx context.Context, site string, dialect wire.Dialect, stubs []wire.Stub) ([]Enqueued, error)

	// Sealing widens the payload window of the site's standing, unsealed grants to now + SealingWindow, once each.
	// It answers the grants that it widened now or before; others, offered ones too, are passed over. A widened one isn't
	// offered again before its window ends, unless the session that it was on offer to ends.
	Sealing(ctx context.Context, site string, grants []wire.Grant) ([]wire.Grant, error)

	// Seal stores the payload of the grant that stands: awaiting-payload (offered counts: naming it doesn't accept for
	// the runner, so an offered one is refused not-found) becomes ready and the unsealed waits are forgotten.
	// env.RecipientKeyID must be the key id of the device that claimed. An empty lease id (polled seals) matches the
	// standing grant by recipient alone. A second seal for the grant that took the first answers the state, Done too.
	// A cancelled grant takes its seal like any other; the payload is withheld.
	// Refusals: ErrNotFound, ErrTooLate with the state (done, or the grant or the recipient is not the standing one's).
	Seal(ctx context.Context, site string, grant wire.Grant, env wire.Envelope) (State, error)

	// Decline gives standing, accepted, unsealed grants back on the site's word; each counts as a wait in vain.
	Decline(ctx context.Context, site string, grants []wire.Grant) ([]wire.Grant, error)

	// Cancel asks to stop jobs; false for a job that the site doesn't have. Queued: dropped at once (notice
	// "cancelled"). Granted: the flag is set, EventCancel tells the holder, an unsealed one leaves the seal list, a
	// ready payload is withheld. Done, collected and dropped ones: true, nothing changes. Given back, a cancelled job is
	// dropped as cancelled before any count could drop it; the deadline drops as deadline.
	Cancel(ctx context.Context, site string, jobs []string) ([]bool, error)

	// Offer takes what awaits the site, isn't on offer to a session just now, and keeps this session's open offers of
	// that kind within max entries and bytes in all (one entry always fits when none is open); marks it as on offer
	// to session for the given time. Results and notices: the time doubles with each offer of the entry, to
	// MaxOffer. Oldest first, never offered before offered again. An answer (seal, decline, sealing, collect) or the
	// session's Detach ends an offer. Only who gets an entry pushes it.
	Offer(ctx context.Context, site, session string, what OfferKind, max int, bytes int64, span time.Duration) ([]Offered, error)

	// Collect says that the site has seen to these results and notices, also when it rejected them. Ciphertext goes, a
	// tombstone stays (State, grant, runner, disposition) until the deadline, at least TombstoneMin and at most
	// TombstoneMax from now. Repeatable, without moving that end; unknown grants are passed over. What is never
	// collected goes whole when its retention ends: then the key is free again.
	Collect(ctx context.Context, site string, grants []wire.Grant) error
}

// RunnerStore is what a daemon's requests need. The runner id always comes from authentication.
type RunnerStore interface {
	// Claim grants queued jobs (see Claim). ErrSuperseded when Number is not the runner's newest session, or when that
	// one ended. A job given back keeps its place by enqueueing. Of a route's UnsealedPerRoute, offered grants count,
	// cancelled ones don't. A result of the runner from a queue ends its refusal streak and the doubling there. Sites
	// never served, and owners alike, come before those served. Accepted at once: EventOffered and EventAwaiting.
	Claim(ctx context.Context, c Claim) ([]Claimed, error)

	// Accept accepts offered grants and stamps their payload window, now + PayloadWindow; already accepted ones are
	// left as they are. It answers those that don't stand for this runner; a done grant of its own is neither. Any later call that names a standing grant
	// (TakePayload, Complete, Renew, Resume, Release) accepts it too.
	Accept(ctx context.Context, runner string, grants []wire.Grant) (lost []wire.Grant, err error)

	// TakePayload answers the sealed payload; ready becomes running. Repeatable: the ninth take gives the grant back as
	// a lapse and answers ErrStaleLease. Refusals: the look-up's (see Refusal), ErrTerminal for a done job (judged
	// before unsealed), ErrTooLate when cancelled (before unsealed, so that nobody waits), ErrNotReady when unsealed.
	TakePayload(ctx context.Context, runner string, grant wire.Grant) (wire.Envelope, error)

	// Complete records the result; the first one stands for ever (rule 11). From awaiting-payload, ready and running it
	// records; for a done job it answers Duplicate to the grant that finished it and ErrStaleLease to another grant of
	// that runner. A cancelled running job completes with whichever result comes first. The payload goes.
	Complete(ctx context.Context, runner string, grant wire.Grant, env wire.Envelope, disposition string) (Completion, error)

	// Release gives back exactly these unfinished grants of the runner; others are passed over. It answers what it gave
	// back. ReleaseRefused: this runner never gets the job again. notFor above 0: not for that long, at most MaxNotFor.
	// Back in the queue a cancelled job is dropped. ReleaseRevoked makes an EventEnded with WhyWithdrawn, all others
	// WhyReleased or WhyRefused.
	Release(ctx context.Context, runner string, grants []wire.Grant, reason string, notFor time.Duration) (released []wire.Grant, err error)

	// Abandon gives back every unaccepted grant that session number of the runner was offered: the session was cut.
	// Accepted grants and those of other sessions stay. Doesn't count as a lapse or a wait.
	Abandon(ctx context.Context, runner string, number uint64) (returned []wire.Grant, err error)

	// Resume is a runner's return with session number: what it names and holds is accepted and renewed, what it names
	// and doesn't hold is lost (a done grant of its own is neither), what it holds and doesn't name goes back to the queue (WhyAbandoned; counts as a lapse when the
	// payload had been taken). ErrSuperseded when number is not the newest: nothing changes.
	Resume(ctx context.Context, runner string, number uint64, active []wire.Grant, leaseFor time.Duration) (Resumed, error)

	// Renew extends the leases of standing grants to now + leaseFor and answers the others as lost; a done grant of
	// this runner is neither. The payload window is not touched.
	Renew(ctx context.Context, runner string, grants []wire.Grant, leaseFor time.Duration) (lost []wire.Grant, err error)

	// CancelRequests answers the standing grants of the runner whose jobs were cancelled and aren't done.
	CancelRequests(ctx context.Context, runner string) ([]wire.Grant, error)

	// Held answers the runner's unfinished grants, oldest first.
	Held(ctx context.Context, runner string) ([]Job, error)
}

// Presence says on all replicas who is connected. It is not kept over a restart.
type Presence interface {
	// Attach numbers a party's session, or renews it: the same session keeps its number. A new session gets a number
	// above all that the party had; one that ended is new. It ends by itself after the given time.
	Attach(ctx context.Context, p Party, session string, span time.Duration) (number uint64, err error)

	// Detach ends a session and its open offers. An unknown session changes nothing.
	Detach(ctx context.Context, p Party, session string) error

	// Present reports whether the party has a session that hasn't ended. Polls attach a session of their own.
	Present(ctx context.Context, p Party) (bool, error)

	// Seen remembers what a runner said of itself; Everyone answers all runners seen. Both are a cache for operators:
	// key and owner are always asked of the projection.
	Seen(ctx context.Context, s Sighting) error
	Everyone(ctx context.Context) ([]Sighting, error)
}

// Reader answers questions; nothing it answers holds ciphertext but ResultEnvelope.
type Reader interface {
	// Backlog answers the queues that hold something claimable or waiting, of one site or, for "", of all.
	Backlog(ctx context.Context, site string) ([]Backlog, error)
	// Job answers one job of the site: ErrNotFound when there is none (a tombstone is a done job).
	Job(ctx context.Context, site, job string) (Job, error)
	// Jobs, Awaiting and Finished answer pages of a site's jobs in the order of their enqueueing: all, those that wait
	// for a seal (accepted, not cancelled), those done and uncollected. max is 1 to 1,000. "All" is what Stats.ByState
	// counts: no tombstones, no dropped ones.
	Jobs(ctx context.Context, site string, after Cursor, max int) (Page, error)
	Awaiting(ctx context.Context, site string, after Cursor, max int) (Page, error)
	Finished(ctx context.Context, site string, after Cursor, max int) (Page, error)
	// ResultEnvelope answers the ciphertext of an uncollected result.
	ResultEnvelope(ctx context.Context, site string, grant wire.Grant) (wire.Envelope, error)
	// Stats answers totals for operators, kept as running counts.
	Stats(ctx context.Context) (Stats, error)
	// SiteStats answers totals of one site, zero ones when nothing of it is kept, or, for "", of all that have any but zeros.
	SiteStats(ctx context.Context, site string) ([]SiteStats, error)
	// Barred answers which of these runners a Claim would pass the queued job by for, in their order: for its refusals, and
	// for having given it back. None for a job that isn't queued. ErrNotFound as Job.
	Barred(ctx context.Context, site, job string, runners []string) ([]Bar, error)
}

// Keeper is the store's own upkeep.
type Keeper interface {
	// Sweep fires at most 256 due times, earliest first: offers, windows, leases, deadlines, retention, presence.
	// Safe from all replicas at once: each due time fires once. When no sweep ran for over 5 s, leases first get the
	// gap, at least one lease, as grace, and payload windows likewise; a Claim that fires gives it too. After the clock was set
	// back nothing that was begun before lasts longer than what begins now.
	Sweep(ctx context.Context) (Swept, error)
	// Watch delivers events from now on. Watch first, then read.
	Watch(in Interest) Watcher
	// Now answers the store's time.
	Now(ctx context.Context) (time.Time, error)
	// Epoch names this memory: it changes when the store forgot.
	Epoch(ctx context.Context) (string, error)
	// Close ends watchers and frees the medium; calls after it answer ErrUnavailable.
	Close() error
}

// Medium is implemented besides by stores that keep things and can be out while reads go on.
type Medium interface {
	// Err answers why nothing can be kept just now, nil while commits succeed. It never blocks.
	Err() error
}

// Watcher is a bounded stream of events. An overflow or a reconnect shows as one EventResync: read again.
type Watcher interface {
	// Wait blocks until there is at least one event and answers all that wait, in order. After Close, or when the
	// store closed, it answers ErrUnavailable; it also ends with ctx. For one caller at a time, and the slice is good
	// until the next Wait: it is filled again.
	Wait(ctx context.Context) ([]Event, error)
	Close()
}
