package session

import (
	"context"
	"crypto/ed25519"

	"pushrelay/wire"
)

// Call says who made one authenticated request of a polling plane (design, section 8). A call is no session: it has no
// number, supersedes nobody, and its end gives nothing back but what it couldn't be told.
type Call struct {
	Caller  string            // runner or site id
	Dialect wire.Dialect      // that the request declared
	Key     ed25519.PublicKey // that signed it
	// Signature names the request: who sends it again sends the same. Never logged.
	Signature string
}

// Answer is what a call is answered: the pieces of Body, one after the other, then what More answers until it answers none.
type Answer struct {
	Body [][]byte
	More func(ctx context.Context) (pieces [][]byte, err error) // nil: nothing follows; an error cuts the answer off
	// Over, when not nil, is called once: whether all of it was handed to the connection of a client that was there.
	Over func(written bool)
}
