// Package poll serves the clients that poll (design, section 8): a daemon's and a site's requests over HTTP, each signed
// by itself, on the same hub and store as the sessions.
//
//	POST /byollm/claim        {jobs, leaseMs}          held while nothing can be claimed
//	POST /byollm/fetch        {envelope}               held while the payload isn't sealed
//	POST /byollm/heartbeat    {sites, cancel, lost, serverTime, awaitingConsent, successions?}
//	POST /byollm/result       {accepted, duplicate?, state}
//	POST /byollm/release      {released}
//	POST /byollm/pair         see Pairing; nobody signs it
//	POST /relay/site/enqueue  {jobId, state}
//	POST /relay/site/payload  {state}
//	POST /relay/site/cancel   {cancelled}
//	GET  /relay/site/pending  {jobs}                   held while there is nothing to seal and no new result
//	GET  /relay/site/results  {jobs}
//
// What decides is the hub's; this package reads, authenticates, waits and writes. Every request passes the same checks in
// the same order (see checks.go), and every refusal is one of wire's errors with exactly its members: public clients
// read closed shapes, and one member too many makes them drop a whole answer.
//
// # Memory
//
// A body is read once its bytes were reserved: a long one's from the process's budget for bulk, of which a caller has 16 MiB
// at most and an address a quarter; one of up to 64 KiB from 32 MiB of its own; one of up to 4 KiB costs no more than its
// connection and waits for nothing. They are given back before a request waits for anything. So a held request, of which a
// caller has 128 at most, costs its connection (two goroutines and the buffers of net/http), one timer and what the hub keeps of it.
package poll
