package hub

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"pushrelay/session"
	"pushrelay/store"
	"pushrelay/wire"
)

// refusal maps what the store answers to what a peer is told (design, section 4). Messages tell a person what it means;
// they name nothing that the peer doesn't know.
func (h *Hub) refusal(ctx context.Context, what string, err error) *wire.Error {
	var asked *wire.Error
	if errors.As(err, &asked) {
		return asked
	}
	var r *store.Refusal
	if !errors.As(err, &r) {
		return h.unavailable(ctx, what, err)
	}
	switch r.Code {
	case store.CodeNotFound:
		return wire.Errorf(wire.CodeNotFound, "there is no such job or grant")
	case store.CodeNotHolder, store.CodeStaleLease:
		return wire.Errorf(wire.CodeForbidden, "this grant isn't yours any more; stop its work")
	case store.CodeNotReady:
		return wire.Errorf(wire.CodeNotReady, "the payload isn't sealed yet; it will be pushed")
	case store.CodeTerminal:
		return wire.TooLate("the job is done", store.Done.String(), 0)
	case store.CodeTooLate:
		state := ""
		if r.State != 0 {
			state = r.State.String()
		}
		var at int64
		if !r.ServerTime.IsZero() {
			at = r.ServerTime.UnixMilli()
		}
		return wire.TooLate("it is too late for this; stop", state, at)
	case store.CodeOverQuota:
		return wire.RateLimited(30, "the site has as many jobs on the relay as it may, results that it hasn't taken included; take those, and try again")
	case store.CodeSuperseded:
		return wire.Errorf(wire.CodeForbidden, "a newer session of this runner was opened")
	case store.CodeBadID:
		return wire.BadRequest("an id must have 1 to %d bytes and no U+0000", wire.MaxIDBytes)
	}
	return h.unavailable(ctx, what, err)
}

// unavailable answers a call that the store failed. The longer the outage, the later clients are asked to come again,
// each at another time: what they resend may be megabytes.
func (h *Hub) unavailable(ctx context.Context, what string, err error) *wire.Error {
	h.storeFailed(ctx, what, err)
	most := min(1+int(h.upset.lasts()/retryPerOutage), maxRetryAfter)
	return wire.Unavailable(1+rand.IntN(most), "the relay can't do this just now; try again")
}

// retryPerOutage is how much outage adds a second to the longest time until a client comes again, maxRetryAfter where
// that ends.
const (
	retryPerOutage = 4 * time.Second
	maxRetryAfter  = 15
)

// spareBytes is what a frame may be longer than its envelope, for the envelope to be kept within it.
const spareBytes = 1 << 10

// kept is an envelope as the store gets it. The members of a frame that the relay ignores may be megabytes, and nobody would
// count them: then the envelope gets memory of its own.
func kept(env wire.Envelope, frame []byte) wire.Envelope {
	if len(frame)-len(env.Raw) > spareBytes {
		env.Raw = bytes.Clone(env.Raw)
	}
	return env
}

// busy ends a handshake that the store failed.
func (h *Hub) busy(ctx context.Context, what string, err error) error {
	h.storeFailed(ctx, what, err)
	return &session.EndError{Reason: session.ReasonBusy, Text: "the relay's store is out for now; come back"}
}

// trouble remembers that the store fails, so that an outage is logged once at its beginning and once at its end.
type trouble struct {
	mu     sync.Mutex
	since  time.Time
	failed int
}

// storeFailed counts and logs a failure of the store itself; refusals and ended contexts are none.
func (h *Hub) storeFailed(ctx context.Context, what string, err error) {
	var r *store.Refusal
	if err == nil || ctx.Err() != nil || (errors.As(err, &r) && r.Code != store.CodeUnavailable) {
		return
	}
	h.obs.Count(CountStoreErrors, 1)
	h.upset.mu.Lock()
	first := h.upset.failed == 0
	if first {
		h.upset.since = time.Now()
	}
	h.upset.failed++
	h.upset.mu.Unlock()
	if first {
		h.log.Error().Err(err).AnErr("medium", h.mediumErr()).Str("event", "store-failing").Str("call", what).
			Msg("the store fails; sessions stay, work waits until it is back")
	}
}

// lasts answers for how long the store has been failing.
func (t *trouble) lasts() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failed == 0 {
		return 0
	}
	return since(t.since)
}

// storeWorks is called by the loops after a read that went well, which says little of a medium that takes no writes.
func (h *Hub) storeWorks() {
	if h.mediumErr() != nil {
		return
	}
	h.upset.mu.Lock()
	failed, began := h.upset.failed, h.upset.since
	h.upset.failed = 0
	h.upset.mu.Unlock()
	if failed > 0 {
		h.log.Info().Str("event", "store-working").Int("failed_calls", failed).
			Str("after", since(began).Round(time.Millisecond).String()).Msg("the store works again")
	}
}

// mediumErr answers why the store can't keep anything just now, nil when it can or doesn't say.
func (h *Hub) mediumErr() error {
	if medium, ok := h.store.(store.Medium); ok {
		return medium.Err()
	}
	return nil
}
