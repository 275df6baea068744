package site

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"strconv"
	"time"

	"pushrelay/session"
	"pushrelay/wire"
)

// ErrStopped means that Run is over, so that nothing can be sent any more.
var ErrStopped = errors.New("site: stopped")

func compare(a, b uint64) int { return cmp.Compare(a, b) }

func (c *Config) clientInfo() wire.ClientInfo {
	return wire.ClientInfo{Name: c.Name, Version: c.Version, Platform: runtime.GOOS + "/" + runtime.GOARCH}
}

// request sends a small request and reads its answer; errors that may pass are tried again.
func request[T any](ctx context.Context, l *link, build func(dst []byte, id string) []byte) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, requestPatience)
	defer cancel()
	var zero T
	for try := 1; ; try++ {
		raw, err := l.conn.Request(ctx, build)
		if err == nil {
			return read[T](raw)
		}
		if !passing(err) || try == maxTries || sleep(ctx, pause(try, err)) != nil {
			return zero, err
		}
	}
}

// errGarbled means that an answer of the relay can't be read: whether the request took effect is unknown.
var errGarbled = errors.New("site: the relay's answer can't be read")

// read decodes an answer. What is wrong with it isn't a refusal, so its error isn't one.
func read[T any](raw []byte) (T, error) {
	v, err := wire.Decode[T](raw)
	if err != nil {
		return v, errGarbled
	}
	return v, nil
}

// saying is an error as a log line may have it: a refusal's text comes from the relay.
func saying(err error) string { return printable(err.Error()) }

// passing reports a refusal after which the same request may succeed.
func passing(err error) bool {
	var e *wire.Error
	return errors.As(err, &e) && (e.Code == wire.CodeServerError || e.Code == wire.CodeRateLimited)
}

// ended reports that there is no answer because the session, or our patience, ended.
func ended(err error) bool {
	return errors.Is(err, session.ErrEnded) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// pause is how long to wait before the next try: what the relay asked for, else doubling from a quarter second to 30 s.
func pause(try int, err error) time.Duration {
	var e *wire.Error
	if errors.As(err, &e) && e.RetryAfter > 0 {
		return min(time.Duration(e.RetryAfter)*time.Second, 5*time.Minute)
	}
	return min(250*time.Millisecond<<min(try-1, 10), 30*time.Second)
}

func sleep(ctx context.Context, t time.Duration) error {
	timer := time.NewTimer(t)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// printable makes a peer's text fit for a log line: escaped, at most 200 bytes of it.
func printable(s string) string {
	const most = 200
	if len(s) > most {
		s = s[:most]
	}
	q := strconv.QuoteToASCII(s)
	return q[1 : len(q)-1]
}
