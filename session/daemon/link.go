package daemon

import (
	"context"
	"errors"
	"time"

	"pushrelay/session"
	"pushrelay/session/internal/ask"
	"pushrelay/wire"
)

// link is one session, from its welcome to its end.
type link struct {
	conn   conn
	ctx    context.Context // ends with the session, or when a newer one took its place
	cancel context.CancelFunc

	lease, every time.Duration
	serverTime   time.Time // the relay's at at
	at           time.Time

	transfers chan struct{} // a place for each that may be under way
	kick      chan struct{} // there are grants to accept

	// Guarded by Daemon.mu.
	pending   []*work   // to accept
	confirmed time.Time // when the relay last answered for the grants, by both clocks
	wall      time.Time
	suspect   bool
}

// handler is a Daemon as the client's handler, so that its methods aren't part of the package's face.
type handler struct{ d *Daemon }

// Welcome begins a session.
func (h handler) Welcome(ctx context.Context, c *session.Conn, w wire.Welcome) {
	h.d.welcome(ctx, c, w)
}

// Push acts on one frame of the relay.
func (h handler) Push(_ context.Context, c *session.Conn, head wire.Head, frame []byte) {
	h.d.push(c, head, frame)
}

// Ended ends a session.
func (h handler) Ended(c *session.Conn, end session.End) { h.d.ended(c, end) }

func (d *Daemon) welcome(ctx context.Context, c conn, w wire.Welcome) {
	l := d.newLink(ctx, c, w)
	view := d.readSites(w.Sites, w.Successions)
	d.mu.Lock()
	old := d.link
	d.link = l
	d.sites = view
	waiting := d.ledger.in(awaiting) // before anything is pushed: what is accepted from now on gets its payload pushed
	d.touch()
	d.mu.Unlock()
	if old != nil {
		d.leave(old)
	}
	d.log.Info().Str("session", ask.Printable(c.SessionID())).Int("sites", len(view.listed)).Int("awaitingConsent", len(w.AwaitingConsent)).
		Int64("skewMs", w.SkewMs).Msg("connected")
	d.event(EventConnected, wire.Grant{}, "", c.SessionID())
	d.lose(w.Lost, "")
	d.cancelGrants(l, w.Cancel)
	d.work.Go(func() { d.acceptor(l) })
	d.work.Go(func() { d.heartbeat(l) })
	d.work.Go(func() { d.resume(l, waiting) })
}

func (d *Daemon) newLink(ctx context.Context, c conn, w wire.Welcome) *link {
	l := &link{
		conn: c, lease: millis(w.LeaseMs, time.Minute), every: millis(w.HeartbeatMs, 20*time.Second),
		serverTime: time.UnixMilli(w.ServerTime), at: time.Now(),
		transfers: make(chan struct{}, parallelTransfers), kick: make(chan struct{}, 1),
		confirmed: time.Now(), wall: d.cfg.wall().Round(0),
	}
	l.every = min(l.every, l.lease/3)
	l.ctx, l.cancel = context.WithCancel(ctx)
	return l
}

// millis reads a duration of the relay and keeps it within reason.
func millis(ms int64, otherwise time.Duration) time.Duration {
	if ms <= 0 || ms > int64(24*time.Hour/time.Millisecond) {
		return otherwise
	}
	return max(time.Duration(ms)*time.Millisecond, 10*time.Millisecond)
}

func (d *Daemon) ended(c conn, end session.End) {
	d.mu.Lock()
	l := d.link
	if l == nil || l.conn != c {
		d.mu.Unlock()
		return // replaced already
	}
	d.link = nil
	d.touch()
	d.mu.Unlock()
	d.leave(l)
	d.log.Info().Str("session", ask.Printable(c.SessionID())).Str("reason", string(end.Reason)).Msg("disconnected")
	d.event(EventDisconnected, wire.Grant{}, "", string(end.Reason))
}

// leave forgets what a session didn't accept: the relay puts that back by itself.
func (d *Daemon) leave(l *link) {
	l.cancel()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range l.pending {
		d.ledger.remove(w)
	}
	l.pending = nil
}

// push acts on one frame. A relay may send anything: what can't be read is logged and dropped.
func (d *Daemon) push(c conn, head wire.Head, frame []byte) {
	d.mu.Lock()
	l := d.link
	d.mu.Unlock()
	if l == nil || l.conn != c {
		return // of a session that was replaced
	}
	var err error
	switch head.Type {
	case wire.TypeClaimed:
		err = d.claimed(l, frame)
	case wire.TypePayload:
		err = d.payload(l, frame)
	case wire.TypeCancel, wire.TypeLost:
		err = d.grantsPush(l, head.Type, frame)
	case wire.TypeSites:
		err = d.sitesPush(frame)
	case wire.TypeRevoked:
		d.revoked()
	default:
		err = errors.New("daemon: a push of a type that this version doesn't know")
	}
	if err != nil {
		d.log.Warn().Str("error", ask.Saying(err)).Str("type", ask.Printable(string(head.Type))).Msg("a frame of the relay was dropped")
	}
}

func (d *Daemon) grantsPush(l *link, t wire.FrameType, frame []byte) error {
	f, err := wire.Decode[wire.GrantsPush](frame)
	if err != nil {
		return err
	}
	if t == wire.TypeCancel {
		d.cancelGrants(l, f.Grants)
		return nil
	}
	d.lose(f.Grants, f.Reason)
	if f.Reason == wire.LostUnaccepted {
		d.work.Go(func() { d.announce(l.ctx, l) }) // nothing more comes before the daemon says ready
	}
	return nil
}

// lose ends grants that are gone: what runs is stopped, nothing is reported.
func (d *Daemon) lose(grants []wire.Grant, reason string) {
	var gone []*work
	d.mu.Lock()
	for _, g := range grants {
		w := d.ledger.byGrant[g]
		if w == nil {
			continue
		}
		d.ledger.remove(w)
		if w.stop != nil {
			w.stop(ErrLost)
		}
		gone = append(gone, w)
	}
	d.touch()
	d.mu.Unlock()
	for _, w := range gone {
		d.forget(w)
		d.grantLog(w.grant).Str("reason", ask.Printable(reason)).Msg("the grant is lost")
		d.event(EventLost, w.grant, w.stub.Kind, reason)
	}
}

// cancelGrants acts on the site's cancels: what runs reports canceled, what hasn't begun is given back.
func (d *Daemon) cancelGrants(l *link, grants []wire.Grant) {
	var back []wire.Grant
	var told []*work
	d.mu.Lock()
	for _, g := range grants {
		w := d.ledger.byGrant[g]
		if w == nil || w.canceled || w.phase == finished {
			continue
		}
		w.canceled = true
		told = append(told, w)
		if w.phase == running {
			w.stop(ErrCanceled)
			continue
		}
		d.ledger.remove(w)
		back = append(back, g)
	}
	d.touch()
	d.mu.Unlock()
	for _, w := range told {
		d.event(EventCanceled, w.grant, w.stub.Kind, "")
	}
	d.releaseSoon(l, back, wire.ReleaseRefused)
}

// revoked stops all work: the owner ended the relationship. Results stay on disk, sealed, until a relay refuses them.
func (d *Daemon) revoked() {
	d.log.Warn().Msg("the relay says that this device was revoked; pair it again to go on")
	d.event(EventRevoked, wire.Grant{}, "", "")
	d.mu.Lock()
	var grants []wire.Grant
	for g, w := range d.ledger.byGrant {
		if w.phase != finished {
			grants = append(grants, g)
		}
	}
	d.mu.Unlock()
	d.lose(grants, wire.LostWithdrawn)
}
