package session

import (
	"context"
	"errors"
)

// ErrEnded is what a request gets when its session ended before the answer; whether it took effect is unknown.
var ErrEnded = errors.New("session: ended before the answer")

// TerminalError ends Run: dialling again would not help. Its text says what to do.
type TerminalError struct {
	End    End    // of the last session; zero when the upgrade was refused
	Status int    // of the refused upgrade, else 0
	Do     string // what a person should do
}

// Error says what happened and what to do.
func (e *TerminalError) Error() string { return e.Do }

// Client keeps one session with a relay up.
type Client struct{}

// NewClient checks cfg.
func NewClient(cfg ClientConfig) (*Client, error) { return &Client{}, nil }

// Run dials, keeps the session and dials again after each end as its code asks, until ctx ends, Close was called, the
// relay closed with 1000 (nil each), or an end is terminal (*TerminalError).
func (c *Client) Run(ctx context.Context) error { return nil }

// Conn is one authenticated session on a client.
type Conn struct{}

// SessionID is the relay's name of the session.
func (c *Conn) SessionID() string { return "" }

// Request sends a request and waits for its reply. build appends the frame, with the id given, to dst. An error frame
// becomes a *wire.Error; ErrEnded says that the session is gone. When ctx ends first the request stays sent.
func (c *Conn) Request(ctx context.Context, build func(dst []byte, id string) []byte) ([]byte, error) {
	return nil, ErrEnded
}

// RequestBulk is Request for a frame given in pieces, on the bulk lane, in parts when it is longer than 32 KiB.
func (c *Conn) RequestBulk(ctx context.Context, build func(id string) [][]byte) ([]byte, error) {
	return nil, ErrEnded
}

// Close ends the session in order with 1000; Run returns nil after it.
func (c *Conn) Close(reason string) {}

// Done is closed when the session is gone.
func (c *Conn) Done() <-chan struct{} { return nil }

// End says how the session ended; zero before Done is closed.
func (c *Conn) End() End { return End{} }
