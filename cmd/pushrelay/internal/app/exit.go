package app

import (
	"errors"
	"fmt"

	"pushrelay/session"
)

// Exit codes of all commands. They are part of the interface: scripts rely on them.
const (
	ExitOK          = 0   // done
	ExitFailed      = 1   // something failed; the message says what
	ExitUsage       = 2   // the command line, the environment or the configuration is wrong: nothing was started
	ExitRefused     = 3   // the relay won't have this client: key, revocation or protocol version; trying again is no use
	ExitSome        = 4   // site submit: some jobs failed
	ExitNone        = 5   // site submit: no job succeeded
	ExitLocked      = 6   // the store's folder is in use by another process
	ExitDamaged     = 7   // the store's file is cut short, damaged or another program's; it was left as it is
	ExitFormat      = 8   // the store's file has a format that this build doesn't know; it was left as it is
	ExitInterrupted = 130 // stopped by a signal before the work was done, or a second signal cut a graceful stop short
)

// ExitError is an error with the exit code that it means.
type ExitError struct {
	Code int
	Err  error // nil: everything was said already
}

// Error answers the message, or "" when everything was said already.
func (e *ExitError) Error() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

// Unwrap answers the cause.
func (e *ExitError) Unwrap() error { return e.Err }

// Exitf builds an error for an exit code; %w keeps its cause.
func Exitf(code int, format string, args ...any) error {
	return &ExitError{Code: code, Err: fmt.Errorf(format, args...)}
}

// Usagef builds the error of a wrong setting; the message says what to do.
func Usagef(format string, args ...any) error { return Exitf(ExitUsage, format, args...) }

// Exit builds an error that only sets the exit code.
func Exit(code int) error { return &ExitError{Code: code} }

// CodeOf answers the exit code that an error means; any error without one has failed.
func CodeOf(err error) int {
	var exit *ExitError
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &exit):
		return exit.Code
	}
	return ExitFailed
}

// Refusal gives the end of a client that is no use to dial again its exit code; other errors stay as they are.
func Refusal(err error) error {
	var terminal *session.TerminalError
	if errors.As(err, &terminal) {
		return Exitf(ExitRefused, "%w", err)
	}
	return err
}
