// Package hub owns who is connected and turns the store's events into pushes (design, section 6).
//
//	session.Server --Open--> Hub ------ store.RoutingStore
//	      |  Request          |  Watch --> dispatch: mark what is dirty
//	      +--Handle--> peer --+            pool: claim for a route, flush a daemon, offer to a site
//
// Requests of peers change the store and answer; they push nothing. Every push follows from a store event, or from a
// resync that derives the same from the store's reads (rule 9). The goroutine that reads events only marks: it notes what
// a daemon, a site or a route has to be told and puts it in line once. Workers of an elastic pool take turns, at most one
// for each of them, so what was marked meanwhile leaves as one list frame.
//
// # Decisions
//
//   - A route's waiting jobs are counted by queue from events. The count only decides whom to ask: too high costs an
//     empty claim, and a resync corrects it.
//   - Among more than 64 daemons that could take a route, a random part is compared, and all only when none of it has room.
//   - Sites are absent when no replica holds a session of theirs. A site none of whose sessions answered a seal request
//     for 2 s counts as absent until one answers, or for MuteFor, then it is tried again.
//   - A result outlives its device: the keys of one that left the projection are remembered for two days, so that its site
//     can verify what it did before. One whose device this replica never knew is left out and counted.
//
// # Polls
//
// Clients that poll go through the same store, marks and turns (poll*.go). A held claim is a daemon with a heldClaim instead
// of a link; a held pending is a party that seals are offered to; a held fetch waits for the events of its grant. What was
// granted or offered for a client that is gone before its answer is written goes back at once.
//
// # Signed grants
//
// Where the control plane signs grants (hub/grants), daemons whose dialect has them get nothing without one:
//
//	store.Claim -> Submit -> one of the Asker's few goroutines -> pushed with its grant, or given back
//
// The jobs have their slots meanwhile, and their daemon isn't told of them. The time of the offer is longer by what asking
// may take, so that the daemon has its own 5 s in any case; silence of the control plane gives back. The pool's workers never
// wait for it.
//
// # Locks
//
// In this order, each held for a few map operations only, never during I/O, encoding or store calls:
//
//	registry.mu | routes.mu  ->  route.mu  ->  site.mu  ->  daemon.mu  ->  pool.mu
//
// No lock of one kind is taken while another of the same kind is held.
package hub
