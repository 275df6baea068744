package daemon

import (
	"context"
	"errors"
	"time"

	"pushrelay/wire"
)

// Causes of a job's cancelled context, for context.Cause.
var (
	// ErrCanceled means that the site cancelled the job; the result says so.
	ErrCanceled = errors.New("daemon: the site cancelled the job")
	// ErrLost means that the grant is gone; nothing will be reported.
	ErrLost = errors.New("daemon: the grant is lost")
	// ErrStopped means that the daemon stops and gives the grant back.
	ErrStopped = errors.New("daemon: stopped")
)

// ErrUnavailable, wrapped in a Runner's error, means that the job never began because its backend is down: the grant is
// given back, so that another device may run it; the second time in a row an error is reported instead.
var ErrUnavailable = errors.New("daemon: the backend is unavailable")

// Runner does the work. Run is called from its own goroutine for each grant, at most Slots at once.
type Runner interface {
	// Run answers a job. ctx is cancelled with ErrCanceled, ErrLost or ErrStopped as its cause; Run must then end soon
	// and leave nothing running. An error becomes the job's error outcome: see RunError.
	Run(ctx context.Context, job Job) (Answer, error)
}

// Job is one verified, opened job.
type Job struct {
	Grant    wire.Grant
	Kind     string
	Owner    string // whose job it is
	Site     string // key id of the site that published it
	Purpose  string // version 2 only, may be empty
	Service  string // of the capability that the control plane's grant names; empty without a grant
	Size     string // small, medium, large or unbounded
	Deadline time.Time
	Prompt   Prompt
}

// Prompt is a payload's content: Text for llm.generate, Messages for llm.chat, Raw for all kinds.
type Prompt struct {
	Text     string
	System   string // may be empty
	Messages []Message
	Raw      []byte // the plaintext as the site wrote it
}

// Message is one turn of a chat.
type Message struct {
	Role    string
	Content string
}

// Answer is a job's success. Model and Backend fall back to those of the capability.
type Answer struct {
	Text    string
	Model   string // what actually ran
	Backend string // http or process
	Stop    string // end, length, stop-sequence or unknown; empty when nobody can know
}

// RunError is a failure that the site is told, sealed. Other errors are told as code "failed", retryable.
type RunError struct {
	Code      string // a word for programs
	Message   string // a sentence for people; may quote the backend
	Retryable bool   // the same job may succeed elsewhere or later
	Err       error  // may be nil
}

// Error gives code and message.
func (e *RunError) Error() string { return "daemon: " + e.Code + ": " + e.Message }

// Unwrap answers the cause, which may be nil.
func (e *RunError) Unwrap() error { return e.Err }
