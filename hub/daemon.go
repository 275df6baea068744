package hub

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"pushrelay/session"
	"pushrelay/store"
	"pushrelay/wire"
)

// daemon is one admitted session of a runner, or one of its polled claims that waits to be granted something.
type daemon struct {
	// Immutable.
	hub     *Hub
	link    Link
	held    *heldClaim // nil: a session
	runner  string
	owner   string // by the projection that admitted it
	key     edKey
	keyID   string
	public  wire.PublicIdentity
	dialect wire.Dialect
	asks    bool // it gets jobs with the control plane's grant only
	opened  time.Time
	client  wire.ClientInfo
	remote  string

	turn   turn
	own    ownRoutes     // of the turn
	told   atomic.Uint64 // generation of the projection whose sites it was told last
	number atomic.Uint64 // by the store; changes only when the session's presence had lapsed

	mu       sync.Mutex
	kinds    []string          // replaced, never changed
	caps     []wire.Capability // likewise; kept only where grants are asked for
	cools    map[store.Route]*coolness
	slots    int
	paused   bool
	deaf     bool // left an offer unanswered since its last ready
	ended    bool
	leases   map[string]*lease // unfinished ones, by lease id
	reserved int               // jobs that running claims asked for
	claiming int               // running claims
	removals uint64            // of leases; tells a resync that its read is old
	seen     time.Time
	out      outbox
}

// lease is an unfinished grant.
type lease struct {
	job, site string // site is empty when only the daemon named it
	told      bool   // the daemon knows it: it was pushed or named
	asking    bool   // its grant is being asked for; the daemon doesn't know it
	sent      bool   // its payload was put in line in this session
	cancelled bool   // a cancel was put in line in this session
}

// outbox is what the next turn pushes.
type outbox struct {
	ready  []wire.Grant
	cancel []wire.Grant
	lost   []lostGrant
	sites  bool
	room   bool
}

type lostGrant struct {
	wire.Grant
	reason string
}

func (d *daemon) party() store.Party { return store.Party{Role: store.RunnerRole, ID: d.runner} }

func (d *daemon) mark() { d.turn.mark(d.hub.pool, d) }

func (d *daemon) push(frame []byte) {
	d.hub.obs.Count(CountPushes, 1)
	d.link.Push(frame)
}

// end ends the session once; claims pass it by from now on.
func (d *daemon) end(reason session.Reason, text string) {
	d.mu.Lock()
	first := !d.ended
	d.ended = true
	if first && d.held != nil {
		d.held.why = refusalOf(reason, text)
		d.held.close(d)
	}
	d.mu.Unlock()
	if !first || d.held != nil {
		return
	}
	if reason == session.ReasonRevoked {
		if frame, err := wire.Encode(wire.Bare{Type: wire.TypeRevoked}); err == nil {
			d.push(frame)
		}
	}
	d.link.End(reason, text)
}

// offerable answers the daemon's load and slots, and how many of the waiting jobs it may take; 0 when it can't take any.
func (d *daemon) offerable(key store.Route, lanes []laneCount) (load, slots, fit int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.roomLocked() <= 0 {
		return 0, 0, 0
	}
	if !d.askableLocked(key) {
		return 0, 0, 0
	}
	own := key.Owner == d.owner
	for i := range lanes {
		l := &lanes[i]
		if l.dialect != d.dialect || !d.carries(own, l.private) || !slices.Contains(d.kinds, l.kind) {
			continue
		}
		fit += l.n
	}
	return len(d.leases) + d.reserved, d.slots, fit
}

// carries reports whether the daemon is offered its own owner's jobs, or other people's, private ones or not.
func (d *daemon) carries(own, private bool) bool {
	return own || (!private && (d.asks || d.dialect != wire.Dialect2))
}

func (d *daemon) roomLocked() int {
	if d.ended || d.paused || d.deaf || d.held.full() {
		return 0
	}
	return d.slots - len(d.leases) - d.reserved
}

func (d *daemon) room() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.roomLocked()
}

// reserve sets slots aside for a claim of at most want jobs and answers how many.
func (d *daemon) reserve(want int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := min(want, d.roomLocked())
	if n <= 0 {
		return 0
	}
	d.reserved += n
	d.claiming++
	if d.held != nil {
		d.held.open++
	}
	return n
}

// settle ends what reserve began: the granted jobs take their slots, and what was held back until they are known goes out.
func (d *daemon) settle(n int, granted []store.Claimed) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reserved -= n
	d.claiming--
	for i := range granted {
		g := &granted[i]
		d.leases[g.Lease] = &lease{job: g.Stub.ID, site: g.Site, told: !d.asks, asking: d.asks}
	}
	if d.claiming == 0 && len(d.out.cancel) > 0 {
		d.mark()
	}
	if d.held != nil {
		d.held.settled(d, len(granted) > 0)
	}
}

// claimOf fills what the daemon contributes to a claim; false when it ended meanwhile.
func (d *daemon) claimOf(n int) (store.Claim, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	slots := d.slots
	if d.held != nil {
		slots = wire.MaxSlots // a poll says how many more it takes, not how many it has
	}
	return store.Claim{
		Runner: d.runner, Number: d.number.Load(), Owner: d.owner, Device: d.keyID, Identity: d.public, Dialect: d.dialect,
		Kinds: d.kinds, Max: n, Slots: slots,
	}, !d.ended && !d.paused && !d.held.full()
}

// hold notes a grant that the store tells of.
func (d *daemon) hold(grant wire.Grant, site string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if l := d.leases[grant.LeaseID]; l != nil {
		l.site = site
		return
	}
	d.leases[grant.LeaseID] = &lease{job: grant.JobID, site: site}
}

// drop notes that a grant ended or is done; the daemon may have room now.
func (d *daemon) drop(leaseID string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.removals++
	if _, held := d.leases[leaseID]; !held {
		return
	}
	delete(d.leases, leaseID)
	d.out.room = true
	d.mark()
}

// readied puts a sealed payload in line, once in this session; a fetch gets it again.
func (d *daemon) readied(g wire.Grant) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if l := d.leases[g.LeaseID]; l != nil {
		if l.sent {
			return
		}
		l.sent = true
	}
	d.out.ready = append(d.out.ready, g)
	d.mark()
}

// unsent lets a resync put a payload in line again that couldn't be loaded.
func (d *daemon) unsent(leaseID string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if l := d.leases[leaseID]; l != nil {
		l.sent = false
	}
}

// cancelled puts a cancel in line, once in this session; heartbeats repeat it.
func (d *daemon) cancelled(g wire.Grant) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if l := d.leases[g.LeaseID]; l != nil {
		if l.cancelled {
			return
		}
		l.cancelled = true
		if l.asking {
			return // the daemon is never told of it
		}
	}
	d.out.cancel = append(d.out.cancel, g)
	d.mark()
}

// finished notes the end of a grant, and tells the daemon when it isn't the one who ended it.
func (d *daemon) finished(e *store.Event) {
	reason := lostReason(e.Why)
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.leases[e.Lease]
	told := l != nil && l.told
	switch e.Why {
	case store.WhyUnaccepted:
		if told && e.Number == d.number.Load() {
			d.deaf = true
		} else {
			reason = ""
		}
	case store.WhyAbandoned:
		if !told {
			reason = "" // it came back without it, so it knows
		}
	}
	if reason != "" && (l == nil || !l.asking) {
		d.out.lost = append(d.out.lost, lostGrant{e.Grant(), reason})
	}
	d.removals++
	delete(d.leases, e.Lease)
	d.out.room = true
	d.mark()
}

// lostReason is the word that a lost push carries; empty when the end is the daemon's own doing.
func lostReason(why store.Why) string {
	switch why {
	case store.WhyUnaccepted:
		return wire.LostUnaccepted
	case store.WhyWindow, store.WhyLapsed, store.WhyAbandoned:
		return wire.LostLapsed
	case store.WhyDeadline:
		return wire.LostDeadline
	case store.WhyWithdrawn, store.WhyDeclined:
		return wire.LostWithdrawn
	case store.WhyCancelled:
		return wire.LostCancelled
	}
	return ""
}

func (d *daemon) lose(reason string, grants ...wire.Grant) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, g := range grants {
		d.out.lost = append(d.out.lost, lostGrant{g, reason})
	}
	d.mark()
}

func (d *daemon) gained() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.out.room = true
	d.mark()
}

func (d *daemon) siteOf(leaseID string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if l := d.leases[leaseID]; l != nil {
		return l.site
	}
	return ""
}

// take empties the outbox, but for news of grants that a running claim may be about to tell.
func (d *daemon) take() outbox {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := d.out
	d.out = outbox{}
	if d.claiming == 0 {
		return out
	}
	known := func(id string) bool { l := d.leases[id]; return l != nil && l.told }
	out.cancel = slices.DeleteFunc(out.cancel, func(g wire.Grant) bool {
		if known(g.LeaseID) {
			return false
		}
		d.out.cancel = append(d.out.cancel, g)
		return true
	})
	return out
}

// work pushes what the outbox holds, then claims when there is room.
func (d *daemon) work(ctx context.Context) {
	d.turn.begin()
	defer d.turn.end(d.hub.pool, d)
	out := d.take()
	d.pushGrants(wire.TypeCancel, out.cancel, "")
	for len(out.lost) > 0 {
		reason := out.lost[0].reason
		var grants []wire.Grant
		out.lost = slices.DeleteFunc(out.lost, func(l lostGrant) bool {
			if l.reason == reason {
				grants = append(grants, l.Grant)
			}
			return l.reason == reason
		})
		d.pushGrants(wire.TypeLost, grants, reason)
	}
	if out.sites {
		d.pushSites()
	}
	for _, g := range out.ready {
		d.hub.obs.Count(CountPayloads, 1)
		d.link.PushBulk(d.payload(g))
	}
	if out.room {
		d.hub.claimFor(ctx, d)
	}
}

// pushGrants keeps each frame within the size of a text message.
func (d *daemon) pushGrants(t wire.FrameType, grants []wire.Grant, reason string) {
	for len(grants) > 0 {
		n, size := 0, 128
		for n < len(grants) && (n == 0 || size < wire.MaxTextBytes) {
			size += 2*(len(grants[n].JobID)+len(grants[n].LeaseID)) + 32
			n++
		}
		d.push(wire.AppendGrantsPush(make([]byte, 0, min(size, wire.MaxTextBytes)), t, grants[:n], reason))
		grants = grants[n:]
	}
}

// payload loads a sealed job when its turn to be sent has come; what can't be had any more isn't wanted any more.
func (d *daemon) payload(g wire.Grant) session.Loader {
	return func(ctx context.Context) ([][]byte, error) {
		env, err := d.hub.store.TakePayload(ctx, d.runner, g)
		if err != nil {
			if errors.Is(err, store.ErrUnavailable) {
				d.hub.storeFailed(ctx, "take payload", err)
				d.unsent(g.LeaseID)
			}
			return nil, nil
		}
		head := wire.AppendPayloadHead(make([]byte, 0, 64+len(g.JobID)+len(g.LeaseID)), g.JobID, g.LeaseID)
		return [][]byte{head, env.Raw, wire.AppendTail(nil)}, nil
	}
}

func (d *daemon) pushSites() {
	cur := d.hub.proj.Current()
	if d.told.Load() == cur.Generation {
		return
	}
	frame, err := wire.Encode(sitesFrame(cur.Projection, d.owner))
	if err == nil {
		d.push(frame)
	}
	d.told.Store(cur.Generation) // before its next claim looks
}
