package poll

import (
	"context"

	"pushrelay/wire"
)

func heartbeat(ctx context.Context, p *Planes, q *request) (reply, error) {
	r, err := wire.ParseHeartbeatRequest(q.Dialect, q.body.text)
	if err != nil {
		return reply{}, err
	}
	q.free()
	if err := q.signedBy(r.RunnerID); err != nil {
		return reply{}, err
	}
	out, err := p.opts.Hub.PollHeartbeat(ctx, q.Call, &r)
	return encoded(out, err)
}

func release(ctx context.Context, p *Planes, q *request) (reply, error) {
	r, err := wire.ParseReleaseRequest(q.Dialect, q.body.text)
	if err != nil {
		return reply{}, err
	}
	q.free()
	if err := q.signedBy(r.RunnerID); err != nil {
		return reply{}, err
	}
	out, err := p.opts.Hub.PollRelease(ctx, q.Call, &r)
	return encoded(out, err)
}

func pair(ctx context.Context, p *Planes, q *request) (reply, error) {
	if p.opts.Pairing == nil {
		return reply{}, errUnpaired
	}
	text, err := p.opts.Pairing.Pair(ctx, q.Dialect, q.body.text, q.addr())
	return reply{body: text}, err
}

// encoded writes what the hub answered.
func encoded[T any](v *T, err error) (reply, error) {
	if err != nil {
		return reply{}, err
	}
	text, err := wire.Encode(*v)
	return reply{body: text}, err
}
