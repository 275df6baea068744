package session

import "github.com/coder/websocket"

// Reason is why a session ended: one internal word, which Code maps to the wire (design, section 5, Ends). What clients do
// about a code is receivedEnd's. It is also the label of logs and metrics.
type Reason string

// Reasons that the relay decides.
const (
	ReasonGoingAway        Reason = "going-away"        // drain
	ReasonHandshakeTimeout Reason = "handshake-timeout" // no hello within 10 s
	ReasonIdle             Reason = "idle"              // 60 s of silence
	ReasonInternal         Reason = "internal"
	ReasonBusy             Reason = "busy"     // also a store outage in a handshake
	ReasonTooSlow          Reason = "too-slow" // the control lane overflowed, or a write made no progress
	ReasonUnknown          Reason = "unknown"  // caller or key not (or no longer) in the projection
	ReasonFlooding         Reason = "flooding" // too many requests unanswered
	ReasonTooLarge         Reason = "too-large"
	ReasonBadFrame         Reason = "bad-frame"
	ReasonSuperseded       Reason = "superseded" // a newer session of the same runner
	ReasonSignature        Reason = "signature"  // also a foreign nonce or relay
	ReasonRevoked          Reason = "revoked"
	ReasonVersion          Reason = "version"
)

// Reasons that the relay doesn't decide.
const (
	ReasonPeer   Reason = "peer"   // the other side sent a close frame
	ReasonCut    Reason = "cut"    // the connection broke
	ReasonClosed Reason = "closed" // a client closed its own session in order
)

// Retry is what a client does after an end.
type Retry uint8

// What clients do.
const (
	RetryBackoff    Retry = iota // after backoff; also every code that isn't known
	RetryNow                     // at once, jittered
	RetryThrice                  // after backoff, stop at the third in a row
	RetryLater                   // after 1 to 5 minutes: a projection may lag
	RetrySuperseded              // once after 30 to 60 s; stop at the third in 10 minutes
	RetryStop                    // terminal: say what to do and stop
)

// Code answers the close code of a reason that the relay decides, else 1006's place holder 0.
func (r Reason) Code() websocket.StatusCode {
	switch r {
	case ReasonClosed:
		return websocket.StatusNormalClosure
	case ReasonGoingAway:
		return websocket.StatusGoingAway
	case ReasonInternal:
		return websocket.StatusInternalError
	case ReasonBusy:
		return websocket.StatusTryAgainLater
	case ReasonFlooding:
		return websocket.StatusPolicyViolation
	case ReasonTooLarge:
		return websocket.StatusMessageTooBig
	case ReasonBadFrame:
		return 4400
	case ReasonUnknown, ReasonSignature:
		return 4401
	case ReasonRevoked:
		return 4403
	case ReasonHandshakeTimeout, ReasonIdle:
		return 4408
	case ReasonSuperseded:
		return 4409
	case ReasonVersion:
		return 4426
	case ReasonTooSlow:
		return 4429
	}
	return 0
}

// End says how a session ended, on either side.
type End struct {
	Reason Reason
	Code   websocket.StatusCode // as sent or received; 0 when there was no close frame
	Text   string               // as sent or received, at most 123 bytes; a client's text is untrusted
}
