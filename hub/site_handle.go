package hub

import (
	"context"
	"errors"
	"time"

	"pushrelay/hub/projection"
	"pushrelay/store"
	"pushrelay/wire"
)

// Handle answers one request of the site.
func (ss *siteSession) Handle(ctx context.Context, r Request) {
	var err error
	switch r.Type() {
	case wire.TypeEnqueue:
		err = ss.onEnqueue(ctx, r)
	case wire.TypeSeal:
		err = ss.onSeal(ctx, r)
	case wire.TypeSealing:
		err = ss.onGrants(ctx, r, func(ctx context.Context, site string, g []wire.Grant) error {
			_, err := ss.site.hub.store.Sealing(ctx, site, g)
			return err
		})
	case wire.TypeDecline:
		err = ss.onGrants(ctx, r, func(ctx context.Context, site string, g []wire.Grant) error {
			_, err := ss.site.hub.store.Decline(ctx, site, g)
			return err
		})
	case wire.TypeCollected:
		err = ss.onGrants(ctx, r, ss.site.hub.store.Collect)
	case wire.TypeCancel:
		err = ss.onCancel(ctx, r)
	default:
		err = wire.BadRequest("a site has no such request")
	}
	ss.site.hub.refuse(ctx, r, err)
}

func (ss *siteSession) onEnqueue(ctx context.Context, r Request) error {
	h := ss.site.hub
	f, err := wire.Decode[wire.Enqueue](r.Frame())
	if err != nil {
		return err
	}
	known, ok := h.proj.Current().SiteByID(ss.site.id)
	if !ok {
		return wire.Errorf(wire.CodeUnauthorized, "this site isn't known any more")
	}
	now := h.now()
	out := make([]wire.EnqueueState, len(f.Stubs))
	stubs := make([]wire.Stub, 0, len(f.Stubs))
	places := make([]int, 0, len(f.Stubs))
	for i, raw := range f.Stubs {
		stub, err := ss.readStub(known, raw, now)
		if err != nil {
			out[i] = h.refusedStub(ctx, stub.ID, err)
			continue
		}
		stubs, places = append(stubs, stub), append(places, i)
	}
	if len(stubs) > 0 {
		h.own.add(h.set.Shared, ss.site.id, stubs)
		answers, err := h.store.Enqueue(ctx, ss.site.id, ss.dialect, stubs)
		if err != nil {
			return err
		}
		for i, a := range answers {
			if a.Err != nil {
				out[places[i]] = h.refusedStub(ctx, a.JobID, a.Err)
				continue
			}
			out[places[i]] = wire.EnqueueState{JobID: a.JobID, State: a.State.String()}
		}
	}
	r.Reply(wire.AppendEnqueueReply(make([]byte, 0, 64+96*len(out)), r.ID(), out))
	return nil
}

// readStub reads a stub strictly in the session's dialect; the key that it names must sign for the site now.
func (ss *siteSession) readStub(known *projection.Site, raw []byte, now time.Time) (wire.Stub, error) {
	stub, err := wire.ParseStub(ss.dialect, raw)
	if err != nil {
		return wire.Stub{ID: stubID(raw)}, err
	}
	if !known.Signs(stub.Site, now) {
		return stub, errStubKey()
	}
	return stub, nil
}

// stubID finds the id of a stub that can't be read, so that its answer names it.
func stubID(raw []byte) string {
	v, err := wire.Decode[struct {
		ID string `json:"id"`
	}](raw)
	if err != nil || wire.CheckID(v.ID) != nil {
		return ""
	}
	return v.ID
}

func (h *Hub) refusedStub(ctx context.Context, id string, err error) wire.EnqueueState {
	e := h.refusal(ctx, "enqueue", err)
	return wire.EnqueueState{JobID: id, Error: string(e.Code), Message: e.Message, ServerTime: e.ServerTime, RetryAfter: e.RetryAfter}
}

func (ss *siteSession) onSeal(ctx context.Context, r Request) error {
	h := ss.site.hub
	f, err := wire.Decode[wire.Seal](r.Frame())
	if err != nil {
		return err
	}
	g := wire.Grant{JobID: f.JobID, LeaseID: f.LeaseID}
	env, err := wire.ParseEnvelope(f.Envelope)
	if err != nil {
		return err
	}
	known, _ := h.proj.Current().SiteByID(ss.site.id)
	if err := h.checkPayload(known, env); err != nil {
		return err
	}
	state, err := h.store.Seal(ctx, ss.site.id, g, kept(env, r.Frame()))
	if err == nil || errors.Is(err, store.ErrTooLate) {
		ss.answered(ctx, []wire.Grant{g})
	}
	if err != nil {
		return err
	}
	r.Reply(wire.AppendStateReply(nil, r.ID(), state.String()))
	return nil
}

// checkPayload reads the envelope's outside; known is nil where the site isn't known any more.
func (h *Hub) checkPayload(known *projection.Site, env wire.Envelope) error {
	if env.Direction != wire.DirectionPayload {
		return wire.BadRequest("envelope.direction must be payload")
	}
	now := h.now()
	if known == nil || !known.Signs(env.SenderKeyID, now) {
		return wire.BadRequest("envelope.senderKeyId must be the key id of a key that signs for this site now")
	}
	if env.DeadlineAt <= now.UnixMilli() {
		return wire.TooLate("the envelope's deadline has passed", "", now.UnixMilli())
	}
	return nil
}

// onGrants handles the requests that name grants and are answered by nothing.
func (ss *siteSession) onGrants(ctx context.Context, r Request, do func(context.Context, string, []wire.Grant) error) error {
	f, err := wire.Decode[wire.Grants](r.Frame())
	if err != nil {
		return err
	}
	if len(f.Grants) > 0 {
		if err := do(ctx, ss.site.id, f.Grants); err != nil {
			return err
		}
		ss.answered(ctx, f.Grants)
	}
	r.Reply(wire.AppendReplyOK(nil, r.ID()))
	return nil
}

func (ss *siteSession) onCancel(ctx context.Context, r Request) error {
	f, err := wire.Decode[wire.CancelJobs](r.Frame())
	if err != nil {
		return err
	}
	done, err := ss.site.hub.store.Cancel(ctx, ss.site.id, f.JobIDs)
	if err != nil {
		return err
	}
	frame, err := wire.Encode(wire.CancelReply{Type: wire.TypeReply, Re: r.ID(), Cancelled: done})
	if err != nil {
		return err
	}
	r.Reply(frame)
	return nil
}
