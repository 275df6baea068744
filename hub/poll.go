package hub

import (
	"context"
	"time"

	"pushrelay/hub/projection"
	"pushrelay/session"
	"pushrelay/store"
	"pushrelay/wire"
)

// The Poll methods are what session/poll asks. They decide by the same store, projection and marks as sessions do; a
// caller that authenticated a moment ago is judged again by the projection that is in force now.

// Now is the relay's time: the store's, as it was last compared with ours.
func (h *Hub) Now() time.Time { return h.now() }

// pollDevice judges a polling daemon.
func pollDevice(cur *projection.Current, c session.Call) (*projection.Device, error) {
	dev, ok := cur.DeviceByRunner(c.Caller)
	switch {
	case !ok || !dev.Key.Equal(c.Key):
		return nil, errPollUnknown()
	case cur.Revoked(c.Caller):
		return nil, errPollRevoked()
	}
	return dev, nil
}

// PollHeartbeat renews exactly the leases that it names, and gives none back: a polling daemon leaves out those whose
// payload it hasn't, and those whose result it is sending. A daemon without any site left has lost all that it names.
func (h *Hub) PollHeartbeat(ctx context.Context, c session.Call, r *wire.HeartbeatRequest) (*wire.HeartbeatResponse, error) {
	cur := h.proj.Current()
	dev, err := pollDevice(cur, c)
	if err != nil {
		return nil, err
	}
	out := pollSites(cur, dev.Owner, c.Dialect)
	switch {
	case len(out.Sites) == 0:
		out.Lost = r.ActiveLeases
	case len(r.ActiveLeases) > 0:
		if out.Lost, err = h.store.Renew(ctx, dev.Runner, r.ActiveLeases, h.set.LeaseFor); err != nil {
			return nil, h.refusal(ctx, "renew", err)
		}
	}
	if out.Cancel, err = h.store.CancelRequests(ctx, dev.Runner); err != nil {
		return nil, h.refusal(ctx, "cancel requests", err)
	}
	out.ServerTime = h.now().UnixMilli()
	if h.polls.tell(dev.Runner, cur.Generation) {
		seen := store.Sighting{Runner: dev.Runner, Kinds: kindsOf(r.Capabilities), Paused: r.Paused, Dialect: c.Dialect}
		if err := h.store.Seen(ctx, seen); err != nil {
			h.storeFailed(ctx, "seen", err)
		}
	}
	return out, nil
}

// pollSites is what a heartbeat tells of sites, in its dialect.
func pollSites(cur *projection.Current, owner string, d wire.Dialect) *wire.HeartbeatResponse {
	sites := cur.SitesOf(owner)
	out := &wire.HeartbeatResponse{
		Sites: make(map[string]wire.PublicIdentity, len(sites)), AwaitingConsent: cur.AwaitingConsent(owner),
	}
	for _, s := range sites {
		out.Sites[s.KeyID] = s.Identity
		if len(s.Succeeds) == 0 || !d.Successions() {
			continue
		}
		line := wire.SuccessionLine{Succeeds: s.Succeeds}
		if until := s.RetiringUntil(); !until.IsZero() {
			line.RetiringUntil = until.UnixMilli()
		}
		if out.Successions == nil {
			out.Successions = map[string]wire.SuccessionLine{}
		}
		out.Successions[s.KeyID] = line
	}
	return out
}

// PollRelease gives back exactly what it names.
func (h *Hub) PollRelease(ctx context.Context, c session.Call, r *wire.ReleaseRequest) (*wire.ReleaseResponse, error) {
	dev, err := pollDevice(h.proj.Current(), c)
	if err != nil {
		return nil, err
	}
	released, err := h.store.Release(ctx, dev.Runner, r.Leases, r.Reason, h.releaseWait(r.Reason))
	if err != nil {
		return nil, h.refusal(ctx, "release", err)
	}
	out := &wire.ReleaseResponse{Released: make([]string, len(released))}
	for i, g := range released {
		out.Released[i] = g.JobID
	}
	return out, nil
}

// releaseWait is how long a runner isn't offered again what it gave back for that reason.
func (h *Hub) releaseWait(reason string) time.Duration {
	switch reason {
	case wire.ReleaseBackendDown, wire.ReleasePause, wire.ReleaseRevoked:
		return h.set.BackendDownWait
	}
	return 0
}
