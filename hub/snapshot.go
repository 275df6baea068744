package hub

import (
	"cmp"
	"slices"
	"time"

	"pushrelay/store"
	"pushrelay/wire"
)

// Snapshot is who is connected to this replica, for operators. It holds no keys and no content.
type Snapshot struct {
	At         time.Time
	Generation uint64 // of the projection
	Draining   bool
	Daemons    []DaemonView // by runner
	Sites      []SiteView   // by id
	Waiting    []RouteView  // by site and owner; counts are hints
	Polling    PollingView
}

// PollingView counts what clients that poll have here. Grants are those that a poll took and nobody finished yet.
type PollingView struct{ Runners, HeldClaims, HeldFetches, Grants int }

// DaemonView is one connected daemon. Client is what it says of itself: untrusted text.
type DaemonView struct {
	Session, Runner, Owner string
	Dialect                wire.Dialect
	Client                 wire.ClientInfo
	Remote                 string
	Opened                 time.Time
	Kinds                  []string
	Slots, Leases          int
	Paused, Deaf           bool
}

// SiteView is one site with its sessions here.
type SiteView struct {
	ID       string
	Present  bool // its jobs are claimed, as far as known
	Polls    int  // requests of it under way that poll
	Sessions []SiteSessionView
}

// SiteSessionView is one session of a site. Client is what it says of itself: untrusted text.
type SiteSessionView struct {
	Session string
	Dialect wire.Dialect
	Client  wire.ClientInfo
	Remote  string
	Opened  time.Time
	Seals   int // seal requests on offer to it
	Results int
	Notices int
	Silent  bool // leaves seal requests unanswered
}

// RouteView is a route on which jobs wait.
type RouteView struct {
	store.Route
	Waiting int
}

// Snapshot copies what is known now. It blocks nobody for longer than one party's copy.
func (h *Hub) Snapshot() Snapshot {
	out := Snapshot{At: h.now(), Generation: h.proj.Current().Generation, Draining: h.draining.Load()}
	for _, d := range h.reg.allDaemons() {
		out.Daemons = append(out.Daemons, d.view())
	}
	for _, s := range h.reg.allSites() {
		if v := s.view(); len(v.Sessions) > 0 || v.Present {
			out.Sites = append(out.Sites, v)
		}
	}
	out.Polling = h.polls.view()
	out.Polling.HeldClaims = len(h.reg.allClaims())
	for _, r := range h.routes.snapshot() {
		if n := r.total.Load(); n > 0 {
			out.Waiting = append(out.Waiting, RouteView{Route: r.key, Waiting: int(n)})
		}
	}
	slices.SortFunc(out.Daemons, func(a, b DaemonView) int { return cmp.Compare(a.Runner, b.Runner) })
	slices.SortFunc(out.Sites, func(a, b SiteView) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(out.Waiting, func(a, b RouteView) int {
		return cmp.Or(cmp.Compare(a.Site, b.Site), cmp.Compare(a.Owner, b.Owner))
	})
	return out
}

func (d *daemon) view() DaemonView {
	d.mu.Lock()
	defer d.mu.Unlock()
	session := ""
	if d.link != nil { // a polled claim has none
		session = d.link.ID()
	}
	return DaemonView{
		Session: session, Runner: d.runner, Owner: d.owner, Dialect: d.dialect, Client: d.client, Remote: d.remote,
		Opened: d.opened, Kinds: slices.Clone(d.kinds), Slots: d.slots, Leases: len(d.leases), Paused: d.paused, Deaf: d.deaf,
	}
}

func (s *site) view() SiteView {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := SiteView{ID: s.id, Present: s.hereLocked(), Polls: s.polls.held}
	for _, ss := range s.sessions {
		v.Sessions = append(v.Sessions, SiteSessionView{
			Session: ss.link.ID(), Dialect: ss.dialect, Client: ss.client, Remote: ss.remote, Opened: ss.opened,
			Seals: ss.counts[store.OfferSeals], Results: ss.counts[store.OfferResults], Notices: ss.counts[store.OfferNotices],
			Silent: ss.silent[store.OfferSeals],
		})
	}
	return v
}
