// Package projection holds the control plane's decisions as questions (design, section 7): who is known, which routes
// stand, who may carry them, who was revoked. A Projection is an immutable value that Parse makes from a JSON file:
//
//	{"version": 7,
//	 "sites":    [{"siteId", "site": identity, "succeeds"?: [{identity, signature}], "retiringUntil"?: epoch ms}],
//	 "consents": [{"owner", "siteId", "paused"?}],
//	 "devices":  [{"owner", "runnerId", "device": identity, "revoked"?}],
//	 "rosters":  [{"id", "owner", "members": [owner]}],
//	 "revoked":  [{"owner", "siteId"}]}
//
// version, rosters and revoked may be absent. Every answer is prepared at Parse, so a question costs a look-up and the
// length of its answer, and none of them blocks. Slices that questions answer are shared: don't change them.
package projection

import (
	"crypto/ed25519"
	"slices"
	"time"

	"pushrelay/wire"
)

// Route is a pair that consent allows: jobs of Owner that Site publishes (rule 2).
type Route struct{ Site, Owner string }

// Site is a back end as the control plane knows it. Key ids follow from the identities.
type Site struct {
	ID       string
	KeyID    string // of the current key
	Identity wire.PublicIdentity
	Succeeds []wire.Succession // verified, oldest first; leads to KeyID

	retiringUntil time.Time // zero: superseded keys don't sign
	keys          []siteKey // current first, then predecessors, newest first
}

type siteKey struct {
	id  string
	key ed25519.PublicKey
}

// RetiringUntil answers when superseded keys stop signing; zero when there are none or they don't sign at all.
func (s *Site) RetiringUntil() time.Time { return s.retiringUntil }

// Keys answers the keys that sign for the site at that time, the current one first.
func (s *Site) Keys(at time.Time) []ed25519.PublicKey {
	out := make([]ed25519.PublicKey, 0, 2)
	for _, k := range s.signing(at) {
		out = append(out, k.key)
	}
	return out
}

// Signs reports whether the key of that id signs for the site at that time.
func (s *Site) Signs(keyID string, at time.Time) bool {
	for _, k := range s.signing(at) {
		if k.id == keyID {
			return true
		}
	}
	return false
}

func (s *Site) signing(at time.Time) []siteKey {
	if len(s.keys) > 1 && at.Before(s.retiringUntil) {
		return s.keys
	}
	return s.keys[:1]
}

// Device is one machine of an owner. Revoked is the file's own mark; ask Projection.Revoked for the verdict.
type Device struct {
	Runner   string
	Owner    string
	KeyID    string
	Identity wire.PublicIdentity
	Key      ed25519.PublicKey
	Revoked  bool
}

// Projection answers questions about one file; it never changes. The zero value knows nobody.
type Projection struct {
	version    int64
	hasVersion bool
	raw        []byte // what was parsed, to tell a reload from a change

	sites     map[string]*Site
	siteKeys  map[string]*Site // by every key id, retired ones too
	devices   map[string]*Device
	deviceIDs map[string]*Device // by key id

	consents map[Route]bool // the value is paused
	revoked  map[Route]bool
	rosters  map[string]map[string]bool // roster owner -> members
	marked   bool                       // at least one device has the revoked member

	owners   map[string]*ownerView
	carriers map[Route][]string
}

// ownerView is what the questions about one owner answer, in the order in which they answer it.
type ownerView struct {
	sites       []*Site
	awaiting    []string
	routes      []Route
	revocations int
}

// Empty answers a projection that knows nobody and has no version.
func Empty() *Projection { return &Projection{} }

// Version answers the file's version; false when it has none.
func (p *Projection) Version() (int64, bool) { return p.version, p.hasVersion }

// SiteByID answers a known site.
func (p *Projection) SiteByID(id string) (*Site, bool) {
	s, ok := p.sites[id]
	return s, ok
}

// SiteByKeyID answers the site for which the key signs at that time: the current key or one within its window.
func (p *Projection) SiteByKeyID(keyID string, at time.Time) (*Site, bool) {
	s, ok := p.siteKeys[keyID]
	if !ok || !s.Signs(keyID, at) {
		return nil, false
	}
	return s, true
}

// DeviceByRunner answers a known device, revoked ones too.
func (p *Projection) DeviceByRunner(runner string) (*Device, bool) {
	d, ok := p.devices[runner]
	return d, ok
}

// DeviceByKeyID answers the device with that key, revoked ones too.
func (p *Projection) DeviceByKeyID(keyID string) (*Device, bool) {
	d, ok := p.deviceIDs[keyID]
	return d, ok
}

// Stands reports whether the owner's consent for a known site is in force, paused or not. A revocation wins.
func (p *Projection) Stands(site, owner string) bool {
	r := Route{Site: site, Owner: owner}
	_, consented := p.consents[r]
	_, known := p.sites[site]
	return consented && known && !p.revoked[r]
}

// Withdrawn reports whether the owner's revocation of the site is on record, whatever consents say.
func (p *Projection) Withdrawn(site, owner string) bool {
	return p.revoked[Route{Site: site, Owner: owner}]
}

// Paused reports whether a consent that stands is paused: nothing new is routed, what is claimed runs to its end.
func (p *Projection) Paused(site, owner string) bool {
	return p.Stands(site, owner) && p.consents[Route{Site: site, Owner: owner}]
}

// MayRoute reports whether a route stands and is not paused.
func (p *Projection) MayRoute(r Route) bool {
	return p.Stands(r.Site, r.Owner) && !p.consents[r]
}

// MayCarry reports whether devices of the owner may take jobs of the route now: it may route, and so may the
// device owner's own consent at that site, and both are one person or a roster binds them.
func (p *Projection) MayCarry(r Route, deviceOwner string) bool {
	_, found := slices.BinarySearch(p.carriers[r], deviceOwner)
	return found
}

// Carries reports whether a grant that devices of the owner hold along the route still stands: as MayCarry, but a pause
// takes nothing back.
func (p *Projection) Carries(r Route, deviceOwner string) bool {
	if !p.Stands(r.Site, r.Owner) || !p.Stands(r.Site, deviceOwner) {
		return false
	}
	return r.Owner == deviceOwner || p.bound(deviceOwner, r.Owner)
}

// SitesOf answers the sites whose consent of this owner stands, sorted by id; paused ones stay.
func (p *Projection) SitesOf(owner string) []*Site { return p.view(owner).sites }

// AwaitingConsent answers the key ids of the owner's paused sites, in SitesOf's order: a subset of what `sites` names,
// whose owner has to consent again before work moves. A site without any consent isn't named to anybody.
func (p *Projection) AwaitingConsent(owner string) []string { return p.view(owner).awaiting }

// Routes answers what devices of the owner may claim, sorted: the owner's own routes and those of the members of its
// rosters, each side consented and not paused at that site.
func (p *Projection) Routes(deviceOwner string) []Route { return p.view(deviceOwner).routes }

// Carriers answers the owners whose devices may run jobs of the route, sorted.
func (p *Projection) Carriers(r Route) []string { return p.carriers[r] }

// Revoked reports whether a known device's relationship was ended: it is marked so; or, when no device of the file has
// the mark at all, its owner has a revocation on record and nothing left standing.
func (p *Projection) Revoked(runner string) bool {
	d, ok := p.devices[runner]
	if !ok {
		return false
	}
	if p.marked {
		return d.Revoked
	}
	v := p.view(d.Owner)
	return v.revocations > 0 && len(v.sites) == 0
}

// Sites answers all sites, sorted by id.
func (p *Projection) Sites() []*Site {
	out := make([]*Site, 0, len(p.sites))
	for _, s := range p.sites {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b *Site) int { return compare(a.ID, b.ID) })
	return out
}

// Size answers how many sites and devices the projection knows.
func (p *Projection) Size() (sites, devices int) { return len(p.sites), len(p.devices) }

func (p *Projection) view(owner string) *ownerView {
	if v, ok := p.owners[owner]; ok {
		return v
	}
	return &ownerView{}
}

// Had reports whether the key of that id is or ever was the site's, its window over or not.
func (s *Site) Had(keyID string) bool {
	for _, k := range s.keys {
		if k.id == keyID {
			return true
		}
	}
	return false
}

// SameFor reports whether both projections answer alike what devices of the owner are told and may carry.
func (p *Projection) SameFor(q *Projection, owner string) bool {
	if !p.sameSites(q, owner) || !slices.Equal(p.Routes(owner), q.Routes(owner)) ||
		!slices.Equal(p.AwaitingConsent(owner), q.AwaitingConsent(owner)) || len(p.rosters[owner]) != len(q.rosters[owner]) {
		return false
	}
	for m := range p.rosters[owner] {
		if !q.rosters[owner][m] || !p.sameSites(q, m) {
			return false
		}
	}
	return true
}

func (p *Projection) sameSites(q *Projection, owner string) bool {
	return slices.EqualFunc(p.SitesOf(owner), q.SitesOf(owner), func(a, b *Site) bool {
		return a.ID == b.ID && a.Identity == b.Identity && slices.Equal(a.Succeeds, b.Succeeds)
	})
}

// EachDevice calls f for every device, in no order.
func (p *Projection) EachDevice(f func(*Device)) {
	for _, d := range p.devices {
		f(d)
	}
}
