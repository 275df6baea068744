package poll

import (
	"bytes"
	"context"
	"time"

	"pushrelay/session"
	"pushrelay/wire"
)

func claim(ctx context.Context, p *Planes, q *request) (session.Answer, error) {
	r, err := wire.ParseClaimRequest(q.Dialect, q.body.text)
	if err != nil {
		return session.Answer{}, err
	}
	if err := q.signedBy(r.RunnerID); err != nil {
		return session.Answer{}, err
	}
	q.free()
	return p.hold(q, p.opts.HoldClaim, func(hold time.Duration) (session.Answer, error) {
		return p.opts.Hub.PollClaim(ctx, q.Call, &r, hold)
	})
}

func fetch(ctx context.Context, p *Planes, q *request) (session.Answer, error) {
	r, err := wire.ParseFetchRequest(q.Dialect, q.body.text)
	if err != nil {
		return session.Answer{}, err
	}
	if err := q.signedBy(r.RunnerID); err != nil {
		return session.Answer{}, err
	}
	q.free()
	return p.hold(q, p.opts.HoldFetch, func(hold time.Duration) (session.Answer, error) {
		return p.opts.Hub.PollFetch(ctx, q.Call, &r, hold)
	})
}

func heartbeat(ctx context.Context, p *Planes, q *request) (session.Answer, error) {
	r, err := wire.ParseHeartbeatRequest(q.Dialect, q.body.text)
	if err != nil {
		return session.Answer{}, err
	}
	if err := q.signedBy(r.RunnerID); err != nil {
		return session.Answer{}, err
	}
	q.free()
	out, err := p.opts.Hub.PollHeartbeat(ctx, q.Call, &r)
	return encoded(out, err)
}

func result(ctx context.Context, p *Planes, q *request) (session.Answer, error) {
	r, err := wire.ParseResultRequest(q.Dialect, q.body.text)
	if err != nil {
		return session.Answer{}, err
	}
	if err := q.signedBy(r.RunnerID); err != nil {
		return session.Answer{}, err
	}
	r.Envelope = q.kept(r.Envelope)
	return p.opts.Hub.PollResult(ctx, q.Call, &r)
}

func release(ctx context.Context, p *Planes, q *request) (session.Answer, error) {
	r, err := wire.ParseReleaseRequest(q.Dialect, q.body.text)
	if err != nil {
		return session.Answer{}, err
	}
	if err := q.signedBy(r.RunnerID); err != nil {
		return session.Answer{}, err
	}
	q.free()
	out, err := p.opts.Hub.PollRelease(ctx, q.Call, &r)
	return encoded(out, err)
}

func pair(ctx context.Context, p *Planes, q *request) (session.Answer, error) {
	if p.opts.Pairing == nil {
		return session.Answer{}, errUnpaired
	}
	text, err := p.opts.Pairing.Pair(ctx, q.Dialect, q.body.text, q.addr())
	return session.Answer{Body: [][]byte{text}}, err
}

// spareBytes is what a body may be longer than its envelope, for the envelope to be kept within it.
const spareBytes = 1 << 10

// kept is an envelope as the store gets it: with memory of its own where white space would be kept with it.
func (q *request) kept(env wire.Envelope) wire.Envelope {
	if cap(q.body.text)-len(env.Raw) > spareBytes {
		env.Raw = bytes.Clone(env.Raw)
	}
	return env
}

// encoded writes what the hub answered.
func encoded[T any](v *T, err error) (session.Answer, error) {
	if err != nil {
		return session.Answer{}, err
	}
	text, err := wire.Encode(*v)
	return session.Answer{Body: [][]byte{text}}, err
}
