// Package wire is the vocabulary that both planes of the relay share: identities, signatures, envelopes, stubs and
// errors, the frames of the push protocol byollm.push.v1, and the bodies of the polling planes. It does no I/O and
// holds no private key and no plaintext (rule 1); sealing is wire/seal's.
//
// # A job's way over the frames
//
//	site                              relay                             daemon
//	 |  enqueue {stubs}                 |                                  |
//	 |--------------------------------->|  claimed {jobs, leaseMs}         |
//	 |                                  |--------------------------------->|
//	 |                                  |  accept {grants}                 |
//	 |  seal-request {jobs}             |<---------------------------------|
//	 |<---------------------------------|                                  |
//	 |  seal {jobId, leaseId, envelope} |                                  |
//	 |--------------------------------->|  payload {jobId, leaseId, ...}   |
//	 |                                  |--------------------------------->|
//	 |                                  |  heartbeat {activeLeases}        |
//	 |                                  |<---------------------------------|
//	 |  results {jobs}                  |  result {grant, envelope, ...}   |
//	 |<---------------------------------|<---------------------------------|
//	 |  collected {grants}              |                                  |
//	 |--------------------------------->|                                  |
//
// A frame is one JSON object with a type (see FrameType). Requests carry an id of 1 to 64 bytes; the answer is a reply
// or an error frame that names it in re. Pushes have neither id nor answer. Times are epoch milliseconds and durations
// milliseconds, unless a field says seconds. Nothing is ever null. Unknown members of frames are ignored; stubs,
// envelopes, identities, capabilities and polling bodies are closed shapes, in which they are refused.
//
// # Handshake, both roles
//
//	challenge  relay->client  {nonce, serverTime, versions}
//	hello      client->relay  {caller, issuedAt, signature, body}        at most 16 KiB; body: see HelloBody
//	welcome    relay->client  {sessionId, epoch, serverTime, skewMs, leaseMs, heartbeatMs, pingMs, maxFrameBytes,
//	                           relayVersion, sites?, successions?, awaitingConsent?, cancel?, lost?}
//
// # Both roles, afterwards
//
//	reply      relay->client  {re, ...}                                  a request's answer
//	error      relay->client  {re?, error, message, ...}                 a request's refusal, see Error
//	credit     both ways      {stream, bytes}                            so many more bytes of that stream may come
//	goaway     relay->client  {reason, reconnectAfterMs}                 stay, and dial again after that
//
// # A daemon's session
//
//	ready      request        {capabilities, slots, paused}              -> {}
//	claimed    push           {jobs: [stub + lease, grant?], leaseMs}    offered for 5 s
//	accept     request        {grants}                                   -> {lost}
//	payload    push           {jobId, leaseId, envelope}
//	fetch      request        {grant}                                    -> {envelope}
//	heartbeat  request        {activeLeases, capabilities?, paused?}     -> {cancel, lost, serverTime, awaitingConsent}
//	result     request        {grant, disposition, envelope}             -> {accepted, duplicate?, state}
//	release    request        {grants, reason}                           -> {released}
//	cancel     push           {grants}                                   stop, then report
//	lost       push           {grants, reason}                           stop, report nothing
//	sites      push           {sites, successions?, awaitingConsent}     replaces what was known
//	revoked    push           {}                                         the relationship ended
//
// # A site's session
//
//	enqueue      request      {stubs}                                    -> {jobs: [{jobId, state} or {jobId, error, ...}]}
//	seal-request push         {jobs: [{jobId, leaseId, runnerId, device, awaitingUntil, leaseExpiresAt}]}
//	sealing      request      {grants}                                   -> {}; before an envelope over 256 KiB
//	seal         request      {jobId, leaseId, envelope}                 -> {state}
//	decline      request      {grants}                                   -> {}
//	results      push         {jobs: [{jobId, leaseId, disposition, runnerId, runnerOwner, device, envelope}]}
//	notices      push         {jobs: [{jobId, leaseId, why}]}            gone, until collected
//	requeued     push         {jobs: [{jobId, why}]}                     moved, for information
//	collected    request      {grants}                                   -> {}
//	cancel       request      {jobIds}                                   -> {cancelled: [bool]}
//
// # On the connection
//
// A frame of up to MaxTextBytes is one text message. A longer one, up to MaxFrameBytes, is cut into binary messages:
//
//	bytes 0..3  stream, uint32 big-endian
//	byte  4     flags: 1 last, 2 abort, 4 first
//	bytes 5..8  in a first part only: the frame's whole length, uint32 big-endian
//	then        1 to MaxPartBytes of the frame; none in an abort
//
// # Reading and writing
//
// DecodeHead or PeekHead say what a frame is; Decode reads it as its type, checks its limits and leaves raw members as
// slices of the frame. Frequent frames have Append functions; those with an envelope write head and tail around bytes
// that are sent as they are stored. Encode writes all others. Readers report *Error with code bad-request, whose
// messages name a member and never repeat what the peer wrote, so they can be sent back.
package wire
