package hub

import (
	"context"
	"errors"
	"time"

	"pushrelay/hub/projection"
	"pushrelay/session"
	"pushrelay/store"
	"pushrelay/wire"
)

// heldClaim makes a daemon one polled claim: a candidate for routes like any other, which takes what it is told first and
// nothing after that. It is over when that is known, or when the daemon ended, and no claim for it runs any more.
type heldClaim struct {
	done chan struct{} // closed when it is over

	// Guarded by the daemon's mu. The daemon's ended says that it is let go.
	open  int  // claims that run, and grants that weren't delivered
	taken bool // it was granted something: nothing more is claimed for it, unless none of that may be told
	jobs  []wire.ClaimedJob
	why   *wire.Error // nil: nothing is wrong
	over  bool        // done is closed
}

// full reports whether nothing more is claimed; false for a session, which has none. The daemon's mu is held, as in all below.
func (c *heldClaim) full() bool { return c != nil && c.taken }

// settled is told of the end of a claim; what it granted is delivered next.
func (c *heldClaim) settled(d *daemon, granted bool) {
	if granted {
		c.taken = true
		return
	}
	c.open--
	c.close(d)
}

// deliver takes what of a claim's grants may be told.
func (c *heldClaim) deliver(d *daemon, jobs []wire.ClaimedJob) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c.jobs = append(c.jobs, jobs...)
	c.open--
	if c.taken = c.open > 0 || len(c.jobs) > 0; !c.taken {
		clear(d.leases) // it has none of what it was granted
	}
	c.close(d)
}

// close ends it once nothing runs any more.
func (c *heldClaim) close(d *daemon) {
	if c.open == 0 && (d.ended || len(c.jobs) > 0) && !c.over {
		c.over = true
		close(c.done)
	}
}

// finish lets no further claim begin, waits for those that run, and answers what it was granted.
func (c *heldClaim) finish(d *daemon) ([]wire.ClaimedJob, *wire.Error) {
	d.mu.Lock()
	d.ended = true
	c.close(d)
	d.mu.Unlock()
	<-c.done
	return c.jobs, c.why
}

// refusalOf is what a request is told whose caller isn't good any more.
func refusalOf(reason session.Reason, text string) *wire.Error {
	switch reason {
	case session.ReasonRevoked:
		return errPollRevoked()
	case session.ReasonUnknown:
		return errPollUnknown()
	}
	return wire.Unavailable(1, text)
}

func errPollRevoked() *wire.Error {
	return wire.Errorf(wire.CodeRevoked, "this device was revoked; pair again to come back")
}

func errPollUnknown() *wire.Error {
	return wire.Errorf(wire.CodeUnauthorized, "this caller or its key isn't known here any more")
}

// PollClaim answers with jobs, or with none once hold is over. A runner that holds a lease isn't held: it has heartbeats
// to send. Grants are offered until the answer is written; who isn't there for it gives them back.
func (h *Hub) PollClaim(ctx context.Context, c session.Call, r *wire.ClaimRequest, hold time.Duration) (session.Answer, error) {
	cur := h.proj.Current()
	dev, err := pollDevice(cur, c)
	if err != nil {
		return session.Answer{}, err
	}
	h.polls.reported(ctx, dev.Runner)
	if hold > 0 {
		held, err := h.store.Held(ctx, dev.Runner)
		if err != nil {
			return session.Answer{}, h.refusal(ctx, "held", err)
		}
		if len(held) > 0 {
			hold = 0
		}
	}
	d := h.newClaim(dev, c, r)
	h.reg.addClaim(d)
	defer h.reg.removeClaim(d)
	if now := h.proj.Current(); now != cur {
		h.judge(now, d) // what judges all claims may have passed before this was one of them
	}
	switch {
	case h.polls.replayed(dev.Runner, c.Signature):
		hold = 0 // its daemon has the answer to it, and whoever sends it again would only keep jobs from others
	case d.told.Load() != h.polls.applied.Load():
		// The sites changed since it was told of them: it would refuse the jobs of those that it doesn't know, for good.
		h.polls.forgive(dev.Runner)
		hold = 0
	case hold > 0:
		h.claimFor(ctx, d)
	default:
		h.claimNow(ctx, d)
	}
	d.await(ctx, hold)
	jobs, why := d.held.finish(d)
	h.polls.cooled(dev.Runner, d.cools)
	if why != nil || ctx.Err() != nil {
		h.unclaim(ctx, d, jobs)
		if why == nil {
			return session.Answer{}, ctx.Err()
		}
		return session.Answer{}, why
	}
	return h.answerClaim(ctx, d, jobs), nil
}

func (h *Hub) newClaim(dev *projection.Device, c session.Call, r *wire.ClaimRequest) *daemon {
	d := &daemon{
		hub: h, held: &heldClaim{done: make(chan struct{})}, runner: dev.Runner, owner: dev.Owner, key: dev.Key, keyID: dev.KeyID,
		public:  dev.Identity,
		dialect: c.Dialect, asks: h.asksFor(c.Dialect), slots: r.Max, leases: map[string]*lease{},
	}
	d.canLocked(r.Capabilities) // nobody else has it yet
	d.cools = h.polls.cools(dev.Runner)
	d.told.Store(h.polls.told(dev.Runner))
	return d
}

// claimNow asks the store itself, and not what is known of the routes: the daemon won't wait for what isn't known yet.
func (h *Hub) claimNow(ctx context.Context, d *daemon) {
	if h.stopped.Load() {
		return
	}
	cur := h.proj.Current()
	var list []store.Route
	for _, r := range cur.Routes(d.owner) {
		if d.carries(r.Owner == d.owner, false) && d.askable(store.Route(r)) && h.reg.ensureSite(h, r.Site).present(ctx) {
			list = append(list, store.Route(r))
		}
	}
	if n := d.reserve(d.slots); n > 0 {
		_, _ = h.claim(ctx, cur, d, list, n) // a failure is counted there, and this answer has no jobs
	}
}

// await waits until the claim ends by itself, its client hangs up, or its time is over.
func (d *daemon) await(ctx context.Context, hold time.Duration) {
	if hold <= 0 || d.hub.stopped.Load() {
		return
	}
	t := time.NewTimer(hold)
	defer t.Stop()
	select {
	case <-d.held.done:
	case <-ctx.Done():
	case <-t.C:
	}
}

// answerClaim writes the answer. What was written is accepted: a daemon that polls says no more about it.
func (h *Hub) answerClaim(ctx context.Context, d *daemon, jobs []wire.ClaimedJob) session.Answer {
	size := 64
	for i := range jobs {
		size += len(jobs[i].Stub.Raw) + 2*len(d.runner) + 256 + grantSize(jobs[i].Grant)
	}
	a := session.Answer{Body: [][]byte{wire.AppendClaimResponse(make([]byte, 0, size), jobs, h.set.LeaseFor.Milliseconds())}}
	if len(jobs) == 0 {
		return a
	}
	for i := range jobs {
		h.polls.took(jobs[i].Lease.ID, d.siteOf(jobs[i].Lease.ID))
	}
	a.Over = func(written bool) {
		if !written {
			h.unclaim(ctx, d, jobs)
			return
		}
		ctx, cancel := afterwards(ctx)
		defer cancel()
		if _, err := h.store.Accept(ctx, d.runner, grantsOf(jobs)); err != nil {
			h.storeFailed(ctx, "accept", err) // its fetch accepts, too
		}
	}
	return a
}

// unclaim gives back what a client never heard of, at once and to anybody.
func (h *Hub) unclaim(ctx context.Context, d *daemon, jobs []wire.ClaimedJob) {
	if len(jobs) == 0 {
		return
	}
	ctx, cancel := afterwards(ctx)
	defer cancel()
	if _, err := h.store.Release(ctx, d.runner, grantsOf(jobs), wire.ReleaseShutdown, 0); err != nil {
		h.storeFailed(ctx, "release", err) // its offer ends by itself
	}
}

func grantsOf(jobs []wire.ClaimedJob) []wire.Grant {
	out := make([]wire.Grant, len(jobs))
	for i := range jobs {
		out[i] = wire.Grant{JobID: jobs[i].Stub.ID, LeaseID: jobs[i].Lease.ID}
	}
	return out
}

// PollFetch answers with the payload. While it isn't sealed it waits for up to hold: the end of its window, a cancel or a
// revocation are told as soon as they happen. It waits for a store that fails, too: a daemon gives up a job for it.
func (h *Hub) PollFetch(ctx context.Context, c session.Call, r *wire.FetchRequest, hold time.Duration) (session.Answer, error) {
	a, err := h.takePayload(ctx, c, r.Grant)
	if hold <= 0 || !mayChange(err) {
		return a, h.fetchRefusal(ctx, err)
	}
	w, over := h.polls.wait(r.Grant.LeaseID)
	defer over()
	t := time.NewTimer(hold)
	defer t.Stop()
	for late := false; ; {
		a, err = h.takePayload(ctx, c, r.Grant)
		if late || h.stopped.Load() || !mayChange(err) {
			return a, h.fetchRefusal(ctx, err)
		}
		var again <-chan time.Time
		if !errors.Is(err, store.ErrNotReady) {
			again = time.After(storeAgain) // nobody tells
		}
		select {
		case <-w.moved:
		case <-again:
		case <-t.C:
			late = true
		case <-ctx.Done():
			return a, ctx.Err()
		}
	}
}

// A call that a daemon doesn't repeat is tried again while the store fails: so often, and the result for so long. Public
// clients give a request up after 30 s.
const (
	storeAgain    = 500 * time.Millisecond
	resultsInsist = 20 * time.Second
)

// mayChange reports whether asking again makes sense.
func mayChange(err error) bool {
	return errors.Is(err, store.ErrNotReady) || errors.Is(err, store.ErrUnavailable) || errors.Is(err, errNoRoom)
}

// errNoRoom is the end of a fetch that waited roomWait for memory, which others' slow answers have.
var errNoRoom = errors.New("hub: no room for a payload")

const roomWait = 5 * time.Second

// takePayload judges the caller and takes the payload once there is room for it.
func (h *Hub) takePayload(ctx context.Context, c session.Call, g wire.Grant) (session.Answer, error) {
	dev, err := pollDevice(h.proj.Current(), c)
	if err != nil {
		return session.Answer{}, err
	}
	waits, cancel := context.WithTimeout(ctx, roomWait)
	room, err := h.hold(waits, wire.MaxEnvelopeBytes)
	cancel()
	switch {
	case err == nil:
	case ctx.Err() == nil:
		return session.Answer{}, errNoRoom
	default:
		return session.Answer{}, err
	}
	env, err := h.store.TakePayload(ctx, dev.Runner, g)
	room.Keep(int64(len(env.Raw)))
	if err != nil {
		return session.Answer{}, err
	}
	h.obs.Count(CountPayloads, 1)
	return session.Answer{
		Body: [][]byte{wire.AppendFetchResponseHead(nil), env.Raw, wire.AppendTail(nil)},
		Over: func(bool) { room.Keep(0) },
	}, nil
}

// hold waits for bytes of the budget.
func (h *Hub) hold(ctx context.Context, n int64) (*session.Held, error) {
	if h.budget == nil {
		return nil, nil
	}
	return h.budget.Hold(ctx, n)
}

func (h *Hub) fetchRefusal(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrNotReady):
		return wire.Errorf(wire.CodeNotReady, "the payload isn't sealed yet; ask again")
	case errors.Is(err, errNoRoom):
		return wire.Errorf(wire.CodeNotReady, "the relay has no room for the payload just now; ask again")
	}
	return h.refusal(ctx, "take payload", err)
}

// PollResult records a result. A daemon that polls sends it once: while the store fails, an answer waits for it.
func (h *Hub) PollResult(ctx context.Context, c session.Call, r *wire.ResultRequest) (session.Answer, error) {
	dev, err := pollDevice(h.proj.Current(), c)
	if err != nil {
		return session.Answer{}, err
	}
	defer h.polls.reporting(dev.Runner)()
	if err := h.checkResult(dev.KeyID, h.polls.siteOf(r.Grant.LeaseID), r.Envelope); err != nil {
		return session.Answer{}, err
	}
	done, err := h.store.Complete(ctx, dev.Runner, r.Grant, r.Envelope, r.Disposition)
	for began := time.Now(); errors.Is(err, store.ErrUnavailable) && since(began) < resultsInsist && pause(ctx, storeAgain); {
		done, err = h.store.Complete(ctx, dev.Runner, r.Grant, r.Envelope, r.Disposition)
	}
	if err != nil {
		return session.Answer{}, h.refusal(ctx, "complete", err)
	}
	return session.Answer{Body: [][]byte{wire.AppendResultResponse(nil, done.Accepted, done.Duplicate, done.State.String())}}, nil
}
