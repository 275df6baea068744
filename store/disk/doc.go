// Package disk is the store that keeps, and the default: the state machine of store/memory with every change committed
// to one bbolt file before its call returns (design, section 3 and rule 10).
//
// # Promises
//
// What a call answered is in the file, through a kill -9 and a power cut. What isn't committed is seen by nobody: no answer,
// no read, no event. A commit that fails is undone whole, and its callers get store.ErrUnavailable, which may be repeated;
// when even the operating system can't say whether it failed, the file is read again and what it holds is the truth, so
// that such a call may turn out to have happened. While the medium is out, reads, presence and offers go on from what was
// committed last, changes are refused, Err says why, and a try every quarter of a second finds that the medium is back. On a
// disk that is nearly full small changes are tried by themselves, ahead of large envelopes: the file mostly has room for
// them, and leases are renewed.
//
// Presence, sightings and offers aren't kept. Session numbers go on above all earlier ones, sequence numbers and the epoch
// as they were. When a store opens, what was granted gets the time that the store was closed, at least one lease, as grace.
//
// # One goroutine that commits
//
// Between two commits the machine has what the file has, and callers run there at once what changes nothing that is kept:
// questions, presence, offers. All else they queue, and wait. Round by round the committer takes all that waits: first what
// changes nothing, then a group of the others, bounded in number and bytes. It runs the group on the machine, writes the
// records that changed in one transaction, commits, publishes the events and answers. While it writes, the next group
// gathers, and callers run at once only what sees nothing of the group: the text of a result, an offer of entries, of
// records that it didn't touch. A caller whose context ends before its operation ran is answered with the context's
// error; one that ran waits.
//
// # What a commit holds
//
// One entry of the log: each record that changed, under its sequence number, which are gone, and the text of new envelopes up
// to 16 KiB. In the bucket of envelopes the text of larger ones, in chunks, while that of collected, expired and replaced
// ones goes; the refusal streaks that changed; and one value with the numbers to go on from, the length of the log and the
// time. A record that came and went within the group is not written. When the log is too long, the oldest entries are settled
// by the same commit: what they hold that is still of use goes to the buckets of jobs and of envelopes. See log.go and
// settle.go.
//
// Envelopes' text leaves memory with its commit: the machine keeps the header, the size and the place. A caller that wants one
// gets a read transaction which the committer began before anything later could delete it, and copies from it.
//
// # Order of locks
//
// Store.mu, then queue.mu or those of the watchers, see store/memory. mu is held while operations run on the machine, and not
// while the file is written or an envelope is read; only a file that must be read again is read under it.
package disk
