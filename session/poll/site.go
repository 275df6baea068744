package poll

import (
	"context"
	"time"

	"pushrelay/session"
	"pushrelay/wire"
)

func enqueue(ctx context.Context, p *Planes, q *request) (session.Answer, error) {
	r, err := wire.ParseEnqueueRequest(q.Dialect, q.body.text)
	if err != nil {
		return session.Answer{}, err
	}
	if err := q.signedBy(r.SiteID); err != nil {
		return session.Answer{}, err
	}
	q.free()
	out, err := p.opts.Hub.PollEnqueue(ctx, q.Call, &r)
	return encoded(out, err)
}

func payload(ctx context.Context, p *Planes, q *request) (session.Answer, error) {
	r, err := wire.ParsePayloadRequest(q.Dialect, q.body.text)
	if err != nil {
		return session.Answer{}, err
	}
	if err := q.signedBy(r.SiteID); err != nil {
		return session.Answer{}, err
	}
	r.Envelope = q.kept(r.Envelope)
	out, err := p.opts.Hub.PollPayload(ctx, q.Call, &r)
	return encoded(out, err)
}

func cancel(ctx context.Context, p *Planes, q *request) (session.Answer, error) {
	r, err := wire.ParseCancelRequest(q.Dialect, q.body.text)
	if err != nil {
		return session.Answer{}, err
	}
	if err := q.signedBy(r.SiteID); err != nil {
		return session.Answer{}, err
	}
	q.free()
	out, err := p.opts.Hub.PollCancel(ctx, q.Call, &r)
	return encoded(out, err)
}

func pending(ctx context.Context, p *Planes, q *request) (session.Answer, error) {
	if err := q.querySite(); err != nil {
		return session.Answer{}, err
	}
	return p.hold(q, p.opts.HoldPending, func(hold time.Duration) (session.Answer, error) {
		return p.opts.Hub.PollPending(ctx, q.Call, hold)
	})
}

func results(ctx context.Context, p *Planes, q *request) (session.Answer, error) {
	if err := q.querySite(); err != nil {
		return session.Answer{}, err
	}
	return p.opts.Hub.PollResults(ctx, q.Call)
}

// querySite makes sure that the site that a query names is the signer. The query isn't signed; the name in it is a word
// of the shape, as in a body.
func (q *request) querySite() error {
	id := q.http.URL.Query()["siteId"]
	if len(id) != 1 || wire.CheckID(id[0]) != nil {
		return wire.BadRequest("siteId must be in the query, once")
	}
	return q.signedBy(id[0])
}
