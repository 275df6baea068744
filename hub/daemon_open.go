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

// admitDaemon numbers the session, settles what the runner holds and makes it the one that is served.
func (h *Hub) admitDaemon(ctx context.Context, a Arrival) (Peer, wire.Welcome, error) {
	dev, err := h.knownDevice(a)
	if err != nil {
		return nil, wire.Welcome{}, err
	}
	caps, err := wire.ParseCapabilities(a.Dialect, a.Hello.Capabilities)
	if err != nil {
		return nil, wire.Welcome{}, &session.EndError{Reason: session.ReasonBadFrame, Text: err.Error()}
	}
	d := &daemon{
		hub: h, link: a.Link, runner: dev.Runner, owner: dev.Owner, key: dev.Key, keyID: dev.KeyID,
		public: dev.Identity, dialect: a.Dialect,
		opened: time.Now(), client: a.Hello.Client, remote: a.Remote,
		asks: h.asksFor(a.Dialect), slots: a.Hello.Slots, paused: a.Hello.Paused, leases: map[string]*lease{},
	}
	d.canLocked(caps) // nobody else has it yet
	number, err := h.store.Attach(ctx, d.party(), a.Link.ID(), h.set.PresenceFor)
	if err != nil {
		return nil, wire.Welcome{}, h.busy(ctx, "attach", err)
	}
	d.number.Store(number)
	w, err := h.resume(ctx, a, d)
	if err != nil {
		h.detach(ctx, d.party(), a.Link.ID())
		return nil, wire.Welcome{}, err
	}
	older, ok := h.reg.add(d)
	if !ok {
		h.detach(ctx, d.party(), a.Link.ID())
		return nil, wire.Welcome{}, errSuperseded()
	}
	if older != nil {
		h.superseded(older)
	}
	cur := h.proj.Current()
	addSites(&w, cur, d.owner)
	d.told.Store(cur.Generation)
	h.judge(h.proj.Current(), d) // what came into force since the handshake began
	d.see(ctx)
	d.gained()
	return d, w, nil
}

func errSuperseded() error {
	return &session.EndError{Reason: session.ReasonSuperseded, Text: "a newer session of this runner was opened"}
}

func (h *Hub) knownDevice(a Arrival) (*projection.Device, error) {
	cur := h.proj.Current()
	dev, ok := cur.DeviceByRunner(a.Caller)
	switch {
	case !ok || !dev.Key.Equal(a.Key):
		return nil, &session.EndError{Reason: session.ReasonUnknown, Text: "unknown: this runner or its key isn't known here"}
	case cur.Revoked(a.Caller):
		return nil, &session.EndError{Reason: session.ReasonRevoked, Text: "this device was revoked"}
	}
	return dev, nil
}

// resume tells the store that the runner is back with what it named, and fills the welcome with what became of it.
func (h *Hub) resume(ctx context.Context, a Arrival, d *daemon) (wire.Welcome, error) {
	w, err := h.welcome(ctx, a)
	if err != nil {
		return w, h.busy(ctx, "epoch", err)
	}
	res, err := h.store.Resume(ctx, d.runner, d.number.Load(), a.Hello.ActiveLeases, h.set.LeaseFor)
	if errors.Is(err, store.ErrSuperseded) {
		return w, errSuperseded()
	}
	if err != nil {
		return w, h.busy(ctx, "resume", err)
	}
	w.Lost = res.Lost
	if len(res.Kept) == 0 {
		return w, nil
	}
	for _, g := range res.Kept {
		d.leases[g.LeaseID] = &lease{job: g.JobID, told: true}
	}
	held, err := h.store.Held(ctx, d.runner)
	if err != nil {
		return w, h.busy(ctx, "held", err)
	}
	for i := range held {
		if l := d.leases[held[i].Lease]; l != nil {
			l.site = held[i].Site
		}
	}
	if w.Cancel, err = h.store.CancelRequests(ctx, d.runner); err != nil {
		return w, h.busy(ctx, "cancel requests", err)
	}
	return w, nil
}

func addSites(w *wire.Welcome, cur *projection.Current, owner string) {
	f := sitesFrame(cur.Projection, owner)
	w.Sites, w.Successions, w.AwaitingConsent = f.Sites, f.Successions, f.AwaitingConsent
}

// sitesFrame tells a daemon whom it serves: by the current key's id, with the chain that leads to it. Who else the
// owner serves, or is served by, isn't told: membership never leaves the relay.
func sitesFrame(p *projection.Projection, owner string) wire.Sites {
	sites := p.SitesOf(owner)
	f := wire.Sites{
		Type: wire.TypeSites, Sites: make(map[string]wire.PublicIdentity, len(sites)), AwaitingConsent: p.AwaitingConsent(owner),
	}
	for _, s := range sites {
		f.Sites[s.KeyID] = s.Identity
		if len(s.Succeeds) > 0 {
			if f.Successions == nil {
				f.Successions = map[string][]wire.Succession{}
			}
			f.Successions[s.KeyID] = s.Succeeds
		}
	}
	return f
}

// Closed gives back what the session didn't accept, at once. It names its own number and session, so it does nothing to
// a successor whichever comes first.
func (d *daemon) Closed(session.End) {
	d.mu.Lock()
	d.ended = true
	d.mu.Unlock()
	d.hub.reg.remove(d)
	ctx, cancel := afterwards(context.Background())
	defer cancel()
	d.hub.detach(ctx, d.party(), d.link.ID()) // first, so that no claim for this number succeeds any more
	if _, err := d.hub.store.Abandon(ctx, d.runner, d.number.Load()); err != nil {
		d.hub.storeFailed(ctx, "abandon", err)
	}
}

func (h *Hub) detach(ctx context.Context, p store.Party, id string) {
	ctx, cancel := afterwards(ctx)
	defer cancel()
	if err := h.store.Detach(ctx, p, id); err != nil {
		h.storeFailed(ctx, "detach", err)
	}
}

// see remembers for operators what the daemon said of itself.
func (d *daemon) see(ctx context.Context) {
	d.mu.Lock()
	d.seen = time.Now()
	s := store.Sighting{Runner: d.runner, Kinds: d.kinds, Slots: d.slots, Paused: d.paused, Dialect: d.dialect}
	d.mu.Unlock()
	if err := d.hub.store.Seen(ctx, s); err != nil {
		d.hub.storeFailed(ctx, "seen", err)
	}
}

// canLocked takes what the daemon says that it can run; mu is held.
func (d *daemon) canLocked(caps []wire.Capability) {
	d.kinds = kindsOf(caps)
	if d.asks {
		d.caps = caps
	}
}

func kindsOf(caps []wire.Capability) []string {
	out := make([]string, 0, len(caps))
	seen := make(map[string]bool, len(caps))
	for _, c := range caps {
		if !seen[c.Kind] {
			seen[c.Kind] = true
			out = append(out, c.Kind)
		}
	}
	return out
}
