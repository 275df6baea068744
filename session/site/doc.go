// Package site is a publisher's end of the push protocol: it publishes jobs, seals their payloads to the devices that
// accept them, and hears of results.
//
// The life of a job here:
//
//	Submit ──enqueue──▶ known ──seal-request──▶ sealed to a device ──results──▶ OnResult ──collected──▶ gone
//	                      │  ▲                        │
//	                      │  └─────── requeued ───────┘
//	                      └──notices──▶ OnNotice ──collected──▶ gone
//
// Nothing is kept on disk: a job and its plaintext (or the function that loads it) stay in memory until its result or
// notice was handled. After a restart submit again what has no result; the relay knows each job by its id, so that this
// changes nothing. A site with many jobs gives Job.Load instead of Job.Payload, several processes of one site Config.Lookup.
//
// Results and notices come at least once: one counts as handled when its callback returned nil, and the same grant, or the
// same job with the same deadline, isn't called back again while this process remembers it.
//
// Locks: Site.mu guards jobs, lists and the link; nothing is sent, sealed, logged or called back while it is held.
package site
