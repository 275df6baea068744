// Package ask is what both client ends share of asking the relay: small requests with their tries, and how a peer's
// text may stand in a log.
package ask

import (
	"context"
	"errors"
	"strconv"
	"time"

	"pushrelay/wire"
)

// patience is how long a small request may take, all its tries together.
const patience = 2 * time.Minute

// Asker makes requests in one session; *session.Conn is one.
type Asker interface {
	Request(ctx context.Context, build func(dst []byte, id string) []byte) ([]byte, error)
}

// Request sends a small request and reads its answer; refusals that may pass are tried again, so many times in all.
func Request[T any](ctx context.Context, c Asker, tries int, build func(dst []byte, id string) []byte) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var zero T
	for try := 1; ; try++ {
		raw, err := c.Request(ctx, build)
		if err == nil {
			return Read[T](raw)
		}
		if !Passing(err) || try == tries || Sleep(ctx, Pause(try, err)) != nil {
			return zero, err
		}
	}
}

// ErrGarbled means that an answer of the relay can't be read: whether the request took effect is unknown.
var ErrGarbled = errors.New("ask: the relay's answer can't be read")

// Read decodes an answer. What is wrong with it isn't a refusal, so its error is ErrGarbled.
func Read[T any](raw []byte) (T, error) {
	v, err := wire.Decode[T](raw)
	if err != nil {
		return v, ErrGarbled
	}
	return v, nil
}

// Passing reports a refusal after which the same request may succeed.
func Passing(err error) bool {
	var e *wire.Error
	return errors.As(err, &e) && (e.Code == wire.CodeServerError || e.Code == wire.CodeRateLimited)
}

// Pause is how long to wait before the next try: what the relay asked for, else doubling from a quarter second to 30 s.
func Pause(try int, err error) time.Duration {
	var e *wire.Error
	if errors.As(err, &e) && e.RetryAfter > 0 {
		return min(time.Duration(e.RetryAfter)*time.Second, 5*time.Minute)
	}
	return min(250*time.Millisecond<<min(try-1, 10), 30*time.Second)
}

// Sleep waits for so long, or until ctx ends and answers its error.
func Sleep(ctx context.Context, t time.Duration) error {
	timer := time.NewTimer(t)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Saying is an error as a log line may have it: a refusal's text comes from the relay.
func Saying(err error) string { return Printable(err.Error()) }

// Printable makes a peer's text fit for a log line: quoted characters escaped, at most 200 bytes of it.
func Printable(s string) string {
	const most = 200
	if len(s) > most {
		s = s[:most]
	}
	q := strconv.QuoteToASCII(s)
	return q[1 : len(q)-1]
}
