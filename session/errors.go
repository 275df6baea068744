package session

import (
	"errors"
	"strings"

	"pushrelay/wire"
)

var (
	errNoType = errors.New("session: a frame without a type")
	errShape  = errors.New("session: not what was expected")

	// errUnwanted is a loader's nil: the frame isn't wanted any more.
	errUnwanted = errors.New("session: nothing to send")
	errTooLong  = errors.New("session: a frame over the limit was to be sent")

	errUnanswered = errors.New("session: a handler returned without an answer")
)

// ErrEnded is what a request gets when its session ended before the answer; whether it took effect is unknown.
var ErrEnded = errors.New("session: ended before the answer")

func isEnded(err error) bool { return errors.Is(err, ErrEnded) }

// isRefusal reports whether err is something that may be told to a peer.
func isRefusal(err error) bool {
	var e *wire.Error
	return errors.As(err, &e)
}

func joined(words []string) string { return strings.Join(words, ", ") }
