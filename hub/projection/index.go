package projection

import (
	"cmp"
	"slices"
	"strconv"

	"pushrelay/wire"
)

// builder fills a Projection that nobody sees yet.
type builder struct {
	p       *Projection
	members map[string]map[string]bool // roster owner -> members
	rosters map[string]bool
}

func (b *builder) addSites(doc *document) error {
	for i, e := range doc.Sites {
		if err := checkID(at("sites", i, "siteId"), e.SiteID); err != nil {
			return err
		}
		if _, dup := b.p.sites[e.SiteID]; dup {
			return refuse(at("sites", i, "siteId"), "another site has this id; keep one of them")
		}
		s, err := readSite(i, e)
		if err != nil {
			return err
		}
		for _, k := range s.keys {
			if _, dup := b.p.siteKeys[k.id]; dup {
				return refuse(at("sites", i, ""), "key %s stands here or at another site already; a key names one site, once", k.id)
			}
			b.p.siteKeys[k.id] = s
		}
		b.p.sites[s.ID] = s
	}
	return nil
}

func readSite(i int, e siteEntry) (*Site, error) {
	current, err := readIdentity(at("sites", i, "site"), e.Site)
	if err != nil {
		return nil, err
	}
	s := &Site{ID: e.SiteID, KeyID: current.id, Identity: e.Site, Succeeds: e.Succeeds, keys: []siteKey{current}}
	if len(e.Succeeds) > wire.MaxSuccessionLinks {
		return nil, refuse(at("sites", i, "succeeds"), "at most %d links; drop the oldest", wire.MaxSuccessionLinks)
	}
	to := current.id
	for j := len(e.Succeeds) - 1; j >= 0; j-- {
		place := at("sites", i, "succeeds/"+strconv.Itoa(j))
		if e.Succeeds[j].Verify(to) != nil {
			return nil, refuse(place, "its signature doesn't lead to %s; links go from the oldest key to the current one", to)
		}
		k, err := readIdentity(place+"/identity", e.Succeeds[j].Identity)
		if err != nil {
			return nil, err
		}
		s.keys = append(s.keys, k)
		to = k.id
	}
	if e.RetiringUntil == nil {
		return s, nil
	}
	if len(e.Succeeds) == 0 {
		return nil, refuse(at("sites", i, "retiringUntil"), "there is no superseded key; add succeeds or leave this out")
	}
	s.retiringUntil, err = checkTime(at("sites", i, "retiringUntil"), *e.RetiringUntil)
	return s, err
}

func readIdentity(place string, id wire.PublicIdentity) (siteKey, error) {
	if id.Verify() != nil {
		return siteKey{}, refuse(place, "the identity doesn't verify; copy it whole from the party's own output")
	}
	key, err := id.Key()
	if err != nil {
		return siteKey{}, refuse(place, "the identity key can't be read")
	}
	return siteKey{id: wire.KeyID(key), key: key}, nil
}

func (b *builder) addDevices(doc *document) error {
	for i, e := range doc.Devices {
		if err := checkID(at("devices", i, "runnerId"), e.RunnerID); err != nil {
			return err
		}
		if err := checkID(at("devices", i, "owner"), e.Owner); err != nil {
			return err
		}
		k, err := readIdentity(at("devices", i, "device"), e.Device)
		if err != nil {
			return err
		}
		if _, dup := b.p.devices[e.RunnerID]; dup {
			return refuse(at("devices", i, "runnerId"), "another device has this id; keep one of them")
		}
		if _, dup := b.p.deviceIDs[k.id]; dup {
			return refuse(at("devices", i, "device"), "another device has this key (%s); a key names one device", k.id)
		}
		d := &Device{Runner: e.RunnerID, Owner: e.Owner, KeyID: k.id, Identity: e.Device, Key: k.key}
		if e.Revoked != nil {
			d.Revoked, b.p.marked = *e.Revoked, true
		}
		b.p.devices[d.Runner], b.p.deviceIDs[d.KeyID] = d, d
	}
	return nil
}

func (b *builder) addConsents(doc *document) error {
	for i, e := range doc.Consents {
		r, err := readPair("consents", i, pair{Owner: e.Owner, SiteID: e.SiteID})
		if err != nil {
			return err
		}
		if _, dup := b.p.consents[r]; dup {
			return refuse(at("consents", i, ""), "this owner and site stand in the list already; keep one of them")
		}
		b.p.consents[r] = e.Paused
	}
	return nil
}

func (b *builder) addRevoked(doc *document) error {
	for i, e := range doc.Revoked {
		r, err := readPair("revoked", i, e)
		if err != nil {
			return err
		}
		if b.p.revoked[r] {
			return refuse(at("revoked", i, ""), "this owner and site stand in the list already; keep one of them")
		}
		b.p.revoked[r] = true
	}
	return nil
}

func readPair(list string, i int, e pair) (Route, error) {
	if err := checkID(at(list, i, "owner"), e.Owner); err != nil {
		return Route{}, err
	}
	return Route{Site: e.SiteID, Owner: e.Owner}, checkID(at(list, i, "siteId"), e.SiteID)
}

func (b *builder) addRosters(doc *document) error {
	b.members, b.rosters = map[string]map[string]bool{}, map[string]bool{}
	for i, e := range doc.Rosters {
		if err := checkID(at("rosters", i, "id"), e.ID); err != nil {
			return err
		}
		if err := checkID(at("rosters", i, "owner"), e.Owner); err != nil {
			return err
		}
		if b.rosters[e.ID] {
			return refuse(at("rosters", i, "id"), "another roster has this id; keep one of them")
		}
		if e.Members == nil {
			return refuse(at("rosters", i, ""), "members is missing; write [] for none")
		}
		b.rosters[e.ID] = true
		if err := b.addMembers(i, e); err != nil {
			return err
		}
	}
	b.p.rosters = b.members
	return nil
}

func (b *builder) addMembers(i int, e roster) error {
	seen := make(map[string]bool, len(e.Members))
	for j, m := range e.Members {
		place := at("rosters", i, "members/"+strconv.Itoa(j))
		if err := checkID(place, m); err != nil {
			return err
		}
		if seen[m] {
			return refuse(place, "this member stands in the roster already; keep one")
		}
		seen[m] = true
		if b.members[e.Owner] == nil {
			b.members[e.Owner] = map[string]bool{}
		}
		b.members[e.Owner][m] = true
	}
	return nil
}

// index prepares the answers. Consent is a set of pairs: it is walked as such and never multiplied (rule 2).
func (b *builder) index() {
	p := b.p
	p.owners, p.carriers = map[string]*ownerView{}, map[Route][]string{}
	view := func(owner string) *ownerView {
		v, ok := p.owners[owner]
		if !ok {
			v = &ownerView{}
			p.owners[owner] = v
		}
		return v
	}
	for r := range p.revoked {
		view(r.Owner).revocations++
	}
	for r, paused := range p.consents {
		if !p.Stands(r.Site, r.Owner) {
			continue
		}
		v := view(r.Owner)
		v.sites = append(v.sites, p.sites[r.Site])
		if !paused {
			v.routes = append(v.routes, r)
		}
	}
	b.addRosterRoutes(view)
	for owner, v := range p.owners {
		slices.SortFunc(v.sites, func(a, b *Site) int { return compare(a.ID, b.ID) })
		for _, s := range v.sites {
			if p.Paused(s.ID, owner) {
				v.awaiting = append(v.awaiting, s.KeyID)
			}
		}
		slices.SortFunc(v.routes, compareRoutes)
		for _, r := range v.routes {
			p.carriers[r] = append(p.carriers[r], owner)
		}
	}
	for _, owners := range p.carriers {
		slices.Sort(owners)
	}
}

// addRosterRoutes goes from each roster owner's own routes to the members that consented at the same site.
func (b *builder) addRosterRoutes(view func(string) *ownerView) {
	for owner, members := range b.members {
		v := view(owner)
		for _, own := range v.routes {
			for m := range members {
				if r := (Route{Site: own.Site, Owner: m}); m != owner && b.p.MayRoute(r) {
					v.routes = append(v.routes, r)
				}
			}
		}
	}
}

func (p *Projection) bound(deviceOwner, jobOwner string) bool {
	return p.rosters[deviceOwner][jobOwner]
}

func compare(a, b string) int { return cmp.Compare(a, b) }

func compareRoutes(a, b Route) int {
	return cmp.Or(cmp.Compare(a.Site, b.Site), cmp.Compare(a.Owner, b.Owner))
}
