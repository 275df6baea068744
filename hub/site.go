package hub

import (
	"context"
	"slices"
	"sync"
	"time"

	"pushrelay/session"
	"pushrelay/store"
	"pushrelay/wire"
)

// site is a back end, with its sessions on this replica.
type site struct {
	hub  *Hub
	id   string
	turn turn

	mu       sync.Mutex
	sessions []*siteSession
	next     int // whose turn in the round it is
	want     [offerKinds]bool
	starved  [offerKinds]bool      // more waits than the sessions' windows take
	again    [offerKinds]time.Time // until then entries whose offer ended are asked for
	requeued []wire.Notice
	mutes    time.Time // since when no session answers seal requests; zero: one does, as far as known
	remote   presence  // of sessions on other replicas
	polls    sitePolls
}

const offerKinds = int(store.OfferNotices) + 1

// presence is what is known of a site without a session here.
type presence uint8

const (
	presenceUnknown presence = iota
	presentElsewhere
	absentElsewhere
)

// siteSession is one of a site's sessions.
type siteSession struct {
	// Immutable.
	site    *site
	link    Link
	dialect wire.Dialect
	key     edKey
	keyID   string
	opened  time.Time
	client  wire.ClientInfo
	remote  string

	// Guarded by site.mu.
	ended   bool
	answers uint64 // to offers
	open    map[string]openOffer
	counts  [offerKinds]int // of open, by kind
	bytes   int64           // of open results
	moving  map[string]moving
	silent  [offerKinds]bool
}

// moving is a result that is in line to a session, by its lease id: a large one takes longer than an offer on a slow link.
type moving struct {
	since time.Time
	until time.Time // a while after it was sent; zero: it wasn't yet
}

// openOffer is an entry on offer to a session, by its lease id.
type openOffer struct {
	kind     store.OfferKind
	bytes    int64
	ends     time.Time // on our clock
	received int64     // by the session when it was offered
	answers  uint64    // by the session when it was offered
}

// newSite is a site of which nothing is known yet, so there may be results that no poll was told of.
func newSite(h *Hub, id string) *site { return &site{hub: h, id: id, polls: sitePolls{news: true}} }

func (s *site) party() store.Party { return store.Party{Role: store.SiteRole, ID: s.id} }

func (s *site) mark() { s.turn.mark(s.hub.pool, s) }

// wants notes that something of these kinds may wait to be offered.
func (s *site) wants(kinds ...store.OfferKind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range kinds {
		s.want[k] = true
	}
	if len(s.sessions) > 0 || len(s.polls.waiting) > 0 {
		s.mark()
	}
}

func (s *site) wantsAll() { s.wants(store.OfferSeals, store.OfferResults, store.OfferNotices) }

func (s *site) moved(n wire.Notice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.sessions) == 0 {
		return
	}
	s.requeued = append(s.requeued, n)
	s.mark()
}

// present reports whether claims for the site make sense: a session here that answers, or one elsewhere. It may ask the
// store; a store that fails counts as absent until the next resync.
func (s *site) present(ctx context.Context) bool {
	s.mu.Lock()
	here, known := s.hereLocked(), s.remote
	s.mu.Unlock()
	if here || known == presentElsewhere {
		return true
	}
	if known == absentElsewhere {
		return false
	}
	there, err := s.hub.store.Present(ctx, s.party())
	if err != nil {
		s.hub.storeFailed(ctx, "present", err)
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remote = absentElsewhere
	if there {
		s.remote = presentElsewhere
	}
	return there
}

// hereLocked reports whether a session or a poll here answers for the site; mu is held.
func (s *site) hereLocked() bool {
	return (len(s.sessions) > 0 && s.mutes.IsZero()) || s.polls.present()
}

// arrived is told of a new session of the site on any replica, or of a poll.
func (s *site) arrived() {
	s.mu.Lock()
	s.remote = presentElsewhere
	s.mu.Unlock()
	s.hub.routes.markWaiting(s.id)
}

// unsure forgets what is known of other replicas' sessions.
func (s *site) unsure() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remote = presenceUnknown
}

func (s *site) list() []*siteSession {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sessions)
}

// admitSite makes the session one of its site's.
func (h *Hub) admitSite(ctx context.Context, a Arrival) (Peer, wire.Welcome, error) {
	known, ok := h.proj.Current().SiteByID(a.Caller)
	if !ok || !signs(known.Keys(h.now()), a.Key) {
		return nil, wire.Welcome{}, errUnknownSite()
	}
	s := h.reg.ensureSite(h, a.Caller)
	ss := &siteSession{
		site: s, link: a.Link, dialect: a.Dialect, key: a.Key, keyID: wire.KeyID(a.Key), opened: time.Now(),
		client: a.Hello.Client, remote: a.Remote, open: map[string]openOffer{}, moving: map[string]moving{},
	}
	w, err := h.welcome(ctx, a)
	if err != nil {
		return nil, wire.Welcome{}, h.busy(ctx, "epoch", err)
	}
	if !s.add(ss) {
		return nil, wire.Welcome{}, &session.EndError{Reason: session.ReasonBusy, Text: "this site has too many sessions here"}
	}
	if _, err := h.store.Attach(ctx, s.party(), a.Link.ID(), h.set.PresenceFor); err != nil {
		s.remove(ss)
		return nil, wire.Welcome{}, h.busy(ctx, "attach", err)
	}
	if err := h.judgeSite(h.proj.Current(), ss); err != nil {
		s.remove(ss)
		h.detach(ctx, s.party(), a.Link.ID())
		return nil, wire.Welcome{}, err
	}
	s.wantsAll()
	h.routes.markWaiting(s.id)
	return ss, w, nil
}

func errUnknownSite() error {
	return &session.EndError{Reason: session.ReasonUnknown, Text: "unknown: this site or its key isn't known here"}
}

func signs(keys []edKey, key edKey) bool {
	return slices.ContainsFunc(keys, func(k edKey) bool { return k.Equal(key) })
}

// add takes a session into the round, as one that answers; false when there are too many.
func (s *site) add(ss *siteSession) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.sessions) >= s.hub.set.SessionsPerSite {
		return false
	}
	s.sessions = append(s.sessions, ss)
	s.mutes = time.Time{}
	return true
}

// remove takes a session out of the round; what was on offer to it is offered to the others. Whether those that are left
// answer is judged by expire, which also tells the store.
func (s *site) remove(ss *siteSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ss.ended = true
	s.sessions = slices.DeleteFunc(s.sessions, func(o *siteSession) bool { return o == ss })
	s.remote = presenceUnknown
}

// Closed frees what was on offer to the session, so that the others get it at once.
func (ss *siteSession) Closed(session.End) {
	ss.site.remove(ss)
	ctx, cancel := afterwards(context.Background())
	defer cancel()
	ss.site.hub.detach(ctx, ss.site.party(), ss.link.ID())
	ss.site.wantsAll()
}

// end ends the session once.
func (ss *siteSession) end(reason session.Reason, text string) {
	ss.site.mu.Lock()
	first := !ss.ended
	ss.ended = true
	ss.site.mu.Unlock()
	if first {
		ss.link.End(reason, text)
	}
}

func (ss *siteSession) push(frame []byte) {
	ss.site.hub.obs.Count(CountPushes, 1)
	ss.link.Push(frame)
}

func (s *site) has(sessionID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.sessions, func(o *siteSession) bool { return o.link.ID() == sessionID })
}
