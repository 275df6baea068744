package session

import (
	"crypto/ed25519"

	"pushrelay/wire"
)

// Call says who made one authenticated request of a polling plane (design, section 8). A call is no session: it has no
// number, supersedes nobody, and its end gives nothing back but what it couldn't be told.
type Call struct {
	Caller  string            // runner or site id
	Dialect wire.Dialect      // that the request declared
	Key     ed25519.PublicKey // that signed it
}
