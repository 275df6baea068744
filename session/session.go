// Package session is the relay's end of the push protocol, and the transport that both ends share (design, section 5).
package session

import (
	"context"
	"crypto/ed25519"

	"pushrelay/wire"
)

// Opener is what the hub implements: it decides on an authenticated session.
type Opener interface {
	// Open admits s and answers what its welcome says and who handles its requests. It may block on the store. Pushes
	// to s from here on are sent after the welcome. An error ends the handshake: an *EndError names its reason,
	// any other error is ReasonBusy. ctx ends with the session.
	Open(ctx context.Context, s *Session) (Peer, wire.Welcome, error)
}

// Peer handles one admitted session.
type Peer interface {
	// Handle acts on one request and answers it exactly once, through r. It runs on a worker, may block on the store,
	// and is ordered as section 5 says: frames of one job, and accept, ready, release, enqueue and all list frames
	// among all, in the order of arrival; heartbeats beside everything.
	Handle(ctx context.Context, r *Request)
	// Closed is called once, after the last Handle returned and the connection is gone.
	Closed(end End)
}

// Directory answers who may authenticate. It must not block.
type Directory interface {
	// Caller answers the keys that may sign for id now. Found false: we don't know it. role is wire.RoleDaemon or RoleSite.
	Caller(role, id string) (c Caller, found bool)
}

// Caller is what the projection knows of somebody who dials in.
type Caller struct {
	Keys    []ed25519.PublicKey // current first, then superseded ones within their window
	Revoked bool
}

// Loader answers a bulk frame's pieces when its turn to be sent has come; nil means that it is not wanted any more.
// The pieces are written as one frame, in order, and must not be changed afterwards. It may block on the store.
type Loader func(ctx context.Context) (pieces [][]byte, err error)

// EndError refuses a session in Open with a reason that the peer is told.
type EndError struct {
	Reason Reason
	Text   string
}

// Error answers reason and text.
func (e *EndError) Error() string { return "session: " + string(e.Reason) + ": " + e.Text }
