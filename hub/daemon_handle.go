package hub

import (
	"context"
	"time"

	"pushrelay/wire"
)

// Handle answers one request of the daemon. What it changes shows as pushes when the store's events arrive.
func (d *daemon) Handle(ctx context.Context, r Request) {
	var err error
	switch r.Type() {
	case wire.TypeReady:
		err = d.onReady(ctx, r)
	case wire.TypeAccept:
		err = d.onAccept(ctx, r)
	case wire.TypeFetch:
		err = d.onFetch(ctx, r)
	case wire.TypeHeartbeat:
		err = d.onHeartbeat(ctx, r)
	case wire.TypeResult:
		err = d.onResult(ctx, r)
	case wire.TypeRelease:
		err = d.onRelease(ctx, r)
	default:
		err = wire.BadRequest("a daemon has no such request")
	}
	d.hub.refuse(ctx, r, err)
}

// refuse answers a request whose handler failed; nil does nothing.
func (h *Hub) refuse(ctx context.Context, r Request, err error) {
	if err == nil {
		return
	}
	h.obs.Count(CountRefusedFrames, 1)
	r.Refuse(h.refusal(ctx, string(r.Type()), err))
}

func (d *daemon) onReady(ctx context.Context, r Request) error {
	f, err := wire.Decode[wire.Ready](r.Frame())
	if err != nil {
		return err
	}
	caps, err := wire.ParseCapabilities(d.dialect, f.Capabilities)
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.canLocked(caps)
	d.slots, d.paused, d.deaf = f.Slots, f.Paused, false
	d.mu.Unlock()
	r.Reply(wire.AppendReplyOK(nil, r.ID()))
	d.see(ctx)
	d.gained()
	return nil
}

func (d *daemon) onAccept(ctx context.Context, r Request) error {
	f, err := wire.Decode[wire.Grants](r.Frame())
	if err != nil {
		return err
	}
	lost, err := d.hub.store.Accept(ctx, d.runner, f.Grants)
	if err != nil {
		return err
	}
	r.Reply(wire.AppendAcceptReply(nil, r.ID(), lost))
	return nil
}

func (d *daemon) onFetch(_ context.Context, r Request) error {
	f, err := wire.Decode[wire.Fetch](r.Frame())
	if err != nil {
		return err
	}
	id := r.ID()
	r.ReplyBulk(func(ctx context.Context) ([][]byte, error) {
		env, err := d.hub.store.TakePayload(ctx, d.runner, f.Grant)
		if err != nil {
			return nil, d.hub.refusal(ctx, "take payload", err)
		}
		d.hub.obs.Count(CountPayloads, 1)
		return [][]byte{wire.AppendFetchReplyHead(nil, id), env.Raw, wire.AppendTail(nil)}, nil
	})
	return nil
}

func (d *daemon) onHeartbeat(ctx context.Context, r Request) error {
	f, err := wire.Decode[wire.Heartbeat](r.Frame())
	if err != nil {
		return err
	}
	var caps []wire.Capability
	if len(f.Capabilities) > 0 {
		if caps, err = wire.ParseCapabilities(d.dialect, f.Capabilities); err != nil {
			return err
		}
	}
	var lost []wire.Grant
	if len(f.ActiveLeases) > 0 {
		if lost, err = d.hub.store.Renew(ctx, d.runner, f.ActiveLeases, d.hub.set.LeaseFor); err != nil {
			return err
		}
	}
	cancel, err := d.hub.store.CancelRequests(ctx, d.runner)
	if err != nil {
		return err
	}
	awaiting := d.hub.proj.Current().AwaitingConsent(d.owner)
	r.Reply(wire.AppendHeartbeatReply(nil, r.ID(), cancel, lost, d.hub.now().UnixMilli(), awaiting))
	d.learn(ctx, caps, f.Paused)
	return nil
}

// learn takes what a heartbeat says beside its leases; nil is left as it was.
func (d *daemon) learn(ctx context.Context, caps []wire.Capability, paused *bool) {
	d.mu.Lock()
	changed := caps != nil || paused != nil
	if caps != nil {
		d.canLocked(caps)
	}
	if paused != nil {
		d.paused = *paused
	}
	stale := since(d.seen) > 10*time.Second
	d.mu.Unlock()
	if changed {
		d.gained()
	}
	if stale {
		d.see(ctx)
	}
}

func (d *daemon) onResult(ctx context.Context, r Request) error {
	f, err := wire.Decode[wire.Result](r.Frame())
	if err != nil {
		return err
	}
	env, err := wire.ParseEnvelope(f.Envelope)
	if err != nil {
		return err
	}
	if err := d.hub.checkResult(d.keyID, d.siteOf(f.Grant.LeaseID), env); err != nil {
		return err
	}
	done, err := d.hub.store.Complete(ctx, d.runner, f.Grant, kept(env, r.Frame()), f.Disposition)
	if err != nil {
		return err
	}
	r.Reply(wire.AppendResultReply(nil, r.ID(), done.Accepted, done.Duplicate, done.State.String()))
	return nil
}

// checkResult reads the envelope's outside; siteID is empty where it isn't known. A result may be sealed to a key that its
// site has retired: the work is done, and whether the old key still opens it is the site's to know.
func (h *Hub) checkResult(keyID, siteID string, env wire.Envelope) error {
	if env.Direction != wire.DirectionResult {
		return wire.BadRequest("envelope.direction must be result")
	}
	if env.SenderKeyID != keyID {
		return wire.BadRequest("envelope.senderKeyId must be the key id of this device")
	}
	site, ok := h.proj.Current().SiteByID(siteID)
	if ok && !site.Had(env.RecipientKeyID) {
		return wire.BadRequest("envelope.recipientKeyId must be the key id of the job's site")
	}
	return nil
}

func (d *daemon) onRelease(ctx context.Context, r Request) error {
	f, err := wire.Decode[wire.Release](r.Frame())
	if err != nil {
		return err
	}
	released, err := d.hub.store.Release(ctx, d.runner, f.Grants, f.Reason, d.hub.releaseWait(f.Reason))
	if err != nil {
		return err
	}
	r.Reply(wire.AppendReleaseReply(nil, r.ID(), released))
	return nil
}
