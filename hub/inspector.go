package hub

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"pushrelay/hub/projection"
	"pushrelay/store"
	"pushrelay/wire"
)

// Inspector answers operators' questions about sites. It remembers what the projection says of devices, and for a moment
// what runners said of themselves; asking costs the store a few small reads. It is safe for concurrent use.
type Inspector struct {
	hub *Hub

	mu      sync.Mutex
	gen     uint64                          // of devices
	devices map[string][]*projection.Device // by owner, those that aren't revoked; replaced, never changed
	seen    map[string]store.Sighting       // by runner; replaced, never changed
	seenAt  time.Time
}

// seenFor is how long what runners said of themselves isn't read again.
const seenFor = 5 * time.Second

// Inspector makes one; it needs no end.
func (h *Hub) Inspector() *Inspector { return &Inspector{hub: h} }

// SiteSummary is a line of the list of sites. ByState counts by JobState; offered jobs count as awaiting, and finished ones
// until they are collected.
type SiteSummary struct {
	Site     string
	Known    bool // by the projection
	Present  bool // its jobs are claimed, as far as known
	Sessions int  // here
	ByState  [JobDropped + 1]int
	Bytes    int64
	Notices  int
}

// Sites answers the projection's sites and whatever else something is kept of, sorted. It reads the store once.
func (i *Inspector) Sites(ctx context.Context) ([]SiteSummary, error) {
	kept, err := i.hub.store.SiteStats(ctx, "")
	if err != nil {
		return nil, err
	}
	all := map[string]*SiteSummary{}
	of := func(id string) *SiteSummary {
		s := all[id]
		if s == nil {
			s = &SiteSummary{Site: id}
			all[id] = s
		}
		return s
	}
	for _, s := range i.hub.proj.Current().Sites() {
		of(s.ID).Known = true
	}
	for n := range kept {
		of(kept[n].Site).count(&kept[n])
	}
	for _, s := range i.hub.reg.allSites() {
		s.mu.Lock()
		sessions, present := len(s.sessions), s.hereLocked() || s.remote == presentElsewhere
		s.mu.Unlock()
		if sessions > 0 || all[s.id] != nil {
			of(s.id).Sessions, of(s.id).Present = sessions, present
		}
	}
	out := make([]SiteSummary, 0, len(all))
	for _, s := range all {
		out = append(out, *s)
	}
	slices.SortFunc(out, func(a, b SiteSummary) int { return cmp.Compare(a.Site, b.Site) })
	return out, nil
}

func (s *SiteSummary) count(k *store.SiteStats) {
	s.Bytes, s.Notices = k.Bytes, k.Notices
	s.ByState[JobQueued] = k.ByState[store.Queued]
	s.ByState[JobAwaiting] = k.ByState[store.AwaitingPayload]
	s.ByState[JobReady] = k.ByState[store.Ready]
	s.ByState[JobRunning] = k.ByState[store.Running]
	s.ByState[JobDone] = k.ByState[store.Done]
}

// SiteDetail is one site with all that may move its jobs.
type SiteDetail struct {
	SiteSummary
	At          time.Time // by the store's clock
	Draining    bool      // this relay claims nothing new
	Silent      bool      // no session answers seal requests
	Views       []SiteSessionView
	Polls       int          // requests of it under way that poll
	Devices     []DeviceView // connected ones first; at most MaxDevices
	MoreDevices int          // left out
	Connected   int          // of all devices
}

// MaxDevices bounds the devices of a SiteDetail.
const MaxDevices = 200

// DeviceView is a device that may run jobs of a site: by the projection who it is, by its session here, if it has one, what
// it does. Whose jobs it may run besides its owner's isn't told: membership never leaves the relay.
type DeviceView struct {
	Runner, Owner, KeyID string
	Here                 bool // it has a session here
	Polls                bool // it asks here again and again
	Elsewhere            bool // it has a session on another replica
	Kinds                []string
	Dialect              wire.Dialect
	Slots, Leases        int
	Paused, Deaf         bool
	Seen                 time.Time // when it last said something of itself; zero: not since the relay started
	Opened               time.Time // its session here
	Client               wire.ClientInfo
	Remote, Session      string
}

// Site answers one site.
func (i *Inspector) Site(ctx context.Context, id string) (SiteDetail, error) {
	facts, err := i.site(ctx, id)
	if err != nil {
		return SiteDetail{}, err
	}
	seen, err := i.sightings(ctx)
	if err != nil {
		return SiteDetail{}, err
	}
	cur := i.hub.proj.Current()
	_, known := cur.SiteByID(id)
	d := SiteDetail{
		SiteSummary: SiteSummary{Site: id, Known: known, Present: facts.presence == sitePresent},
		At:          i.hub.now(), Draining: facts.draining, Silent: facts.presence == siteSilent,
	}
	d.count(&facts.stats)
	if s := i.hub.reg.site(id); s != nil {
		v := s.view()
		d.Views, d.Sessions, d.Polls = v.Sessions, len(v.Sessions), v.Polls
	}
	for owner, devices := range i.known(cur) {
		if !cur.MayRoute(projection.Route{Site: id, Owner: owner}) {
			continue
		}
		for _, dev := range devices {
			v := i.hub.deviceView(ctx, dev, seen)
			if v.connected() {
				d.Connected++
			}
			d.Devices = append(d.Devices, v)
		}
	}
	slices.SortFunc(d.Devices, func(a, b DeviceView) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), cmp.Compare(a.Runner, b.Runner))
	})
	if n := len(d.Devices); n > MaxDevices {
		d.Devices, d.MoreDevices = d.Devices[:MaxDevices], n-MaxDevices
	}
	return d, nil
}

func (v *DeviceView) rank() int {
	switch {
	case v.Here:
		return 0
	case v.connected():
		return 1
	}
	return 2
}

func (v *DeviceView) connected() bool { return v.Here || v.Polls || v.Elsewhere }

// deviceView answers what is known of a device.
func (h *Hub) deviceView(ctx context.Context, dev *projection.Device, seen map[string]store.Sighting) DeviceView {
	v := DeviceView{Runner: dev.Runner, Owner: dev.Owner, KeyID: dev.KeyID}
	if s, ok := seen[dev.Runner]; ok {
		v.Seen, v.Kinds, v.Slots, v.Paused, v.Dialect = s.At, s.Kinds, s.Slots, s.Paused, s.Dialect
	}
	d := h.reg.daemon(dev.Runner)
	if d == nil {
		if v.Polls = h.polls.asks(dev.Runner); !v.Polls {
			v.Elsewhere = h.set.Shared && !v.Seen.IsZero() && h.attached(ctx, dev.Runner)
			return v
		}
		for _, d := range h.reg.ofOwner(dev.Owner) {
			if d.held != nil && d.runner == dev.Runner { // what it asks for just now is newer than what it said
				asks := d.view()
				v.Kinds, v.Dialect, v.Slots = asks.Kinds, asks.Dialect, asks.Slots
			}
		}
		return v
	}
	here := d.view()
	v.Here, v.Kinds, v.Dialect, v.Slots, v.Leases = true, here.Kinds, here.Dialect, here.Slots, here.Leases
	v.Paused, v.Deaf, v.Client, v.Remote, v.Session, v.Opened = here.Paused, here.Deaf, here.Client, here.Remote, here.Session, here.Opened
	return v
}

// pollsFor is how long a runner counts as connected after it polled: longer than a claim is held.
const pollsFor = 30 * time.Second

// asks reports whether a runner polled here lately.
func (p *polls) asks(runner string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.runners[runner]
	return r != nil && since(r.used) < pollsFor
}

// attached reports whether a runner has a session on another replica.
func (h *Hub) attached(ctx context.Context, runner string) bool {
	there, err := h.store.Present(ctx, store.Party{Role: store.RunnerRole, ID: runner})
	if err != nil {
		h.storeFailed(ctx, "present", err)
	}
	return err == nil && there
}

// known answers the devices that aren't revoked, by owner.
func (i *Inspector) known(cur *projection.Current) map[string][]*projection.Device {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.devices != nil && i.gen == cur.Generation {
		return i.devices
	}
	i.devices, i.gen = map[string][]*projection.Device{}, cur.Generation
	cur.EachDevice(func(d *projection.Device) {
		if !cur.Revoked(d.Runner) {
			i.devices[d.Owner] = append(i.devices[d.Owner], d)
		}
	})
	return i.devices
}

// sightings answers what runners said of themselves.
func (i *Inspector) sightings(ctx context.Context) (map[string]store.Sighting, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.seen != nil && since(i.seenAt) < seenFor {
		return i.seen, nil
	}
	all, err := i.hub.store.Everyone(ctx)
	if err != nil {
		return nil, err
	}
	i.seen, i.seenAt = make(map[string]store.Sighting, len(all)), time.Now()
	for _, s := range all {
		i.seen[s.Runner] = s
	}
	return i.seen, nil
}
