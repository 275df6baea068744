package store

import (
	"errors"
	"time"
)

// Code says why a call was refused.
type Code string

// Codes of refusals. The look-up of a lease-scoped call, alike in all: the lease id, if it belongs to the job named
// (held by another runner: not-holder); else a job of that id held by this runner under another lease: stale-lease;
// else not-found, which is also the answer for a job of others (rule 8).
const (
	CodeNotFound    Code = "not-found"
	CodeNotHolder   Code = "not-holder"
	CodeStaleLease  Code = "stale-lease"
	CodeNotReady    Code = "not-ready"
	CodeTerminal    Code = "terminal"
	CodeTooLate     Code = "too-late"
	CodeOverQuota   Code = "over-quota"
	CodeSuperseded  Code = "superseded"
	CodeBadID       Code = "bad-id"
	CodeUnavailable Code = "unavailable"
)

// Refusal is a typed answer that changed nothing. errors.Is compares codes only.
type Refusal struct {
	Code       Code
	State      State     // with too-late of a seal; else 0
	ServerTime time.Time // with too-late of an enqueue; else zero
}

// Error answers the code and the state.
func (r *Refusal) Error() string {
	if r.State != 0 {
		return "store: " + string(r.Code) + " (" + r.State.String() + ")"
	}
	return "store: " + string(r.Code)
}

// Is compares codes, so that errors.Is(err, ErrTooLate) holds whatever the state.
func (r *Refusal) Is(target error) bool {
	var t *Refusal
	return errors.As(target, &t) && t.Code == r.Code
}

// Sentinels for errors.Is.
var (
	ErrNotFound    = &Refusal{Code: CodeNotFound}
	ErrNotHolder   = &Refusal{Code: CodeNotHolder}
	ErrStaleLease  = &Refusal{Code: CodeStaleLease}
	ErrNotReady    = &Refusal{Code: CodeNotReady}
	ErrTerminal    = &Refusal{Code: CodeTerminal}
	ErrTooLate     = &Refusal{Code: CodeTooLate}
	ErrOverQuota   = &Refusal{Code: CodeOverQuota}
	ErrSuperseded  = &Refusal{Code: CodeSuperseded}
	ErrBadID       = &Refusal{Code: CodeBadID}
	ErrUnavailable = &Refusal{Code: CodeUnavailable}
)
