package hub

import (
	"crypto/ed25519"
	"slices"
	"sync"
)

type edKey = ed25519.PublicKey

// registry finds who is connected here. Its lists are replaced, never changed, so readers keep them without the lock.
type registry struct {
	mu      sync.RWMutex
	daemons map[string]*daemon   // by runner: the newest session
	owners  map[string][]*daemon // by device owner: sessions, and polled claims that wait
	claims  map[*daemon]struct{} // polled claims that wait
	sites   map[string]*site     // also those without a session here, once something waits for them
}

func (g *registry) init() {
	g.daemons, g.owners, g.sites = map[string]*daemon{}, map[string][]*daemon{}, map[string]*site{}
	g.claims = map[*daemon]struct{}{}
}

func (g *registry) daemon(runner string) *daemon {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.daemons[runner]
}

func (g *registry) ofOwner(owner string) []*daemon {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.owners[owner]
}

// add makes d its runner's session here, unless a newer one is; it answers the one that d replaced.
func (g *registry) add(d *daemon) (older *daemon, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	older = g.daemons[d.runner]
	if older != nil {
		if older.number.Load() > d.number.Load() {
			return nil, false
		}
		g.leaveOwner(older)
	}
	g.daemons[d.runner] = d
	g.owners[d.owner] = append(slices.Clip(g.owners[d.owner]), d)
	return older, true
}

// remove forgets d. When a successor took its place nothing happens: a late clean-up is for its own session only.
func (g *registry) remove(d *daemon) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.daemons[d.runner] == d {
		delete(g.daemons, d.runner)
		g.leaveOwner(d)
	}
}

// addClaim lets routes find a polled claim; removeClaim ends that. It is nobody's session and replaces none.
func (g *registry) addClaim(d *daemon) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.claims[d] = struct{}{}
	g.owners[d.owner] = append(slices.Clip(g.owners[d.owner]), d)
}

func (g *registry) removeClaim(d *daemon) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.claims, d)
	g.leaveOwner(d)
}

func (g *registry) allClaims() []*daemon {
	g.mu.RLock()
	defer g.mu.RUnlock()
	out := make([]*daemon, 0, len(g.claims))
	for d := range g.claims {
		out = append(out, d)
	}
	return out
}

func (g *registry) leaveOwner(d *daemon) {
	list := slices.DeleteFunc(slices.Clone(g.owners[d.owner]), func(o *daemon) bool { return o == d })
	if len(list) == 0 {
		delete(g.owners, d.owner)
		return
	}
	g.owners[d.owner] = list
}

func (g *registry) allDaemons() []*daemon {
	g.mu.RLock()
	defer g.mu.RUnlock()
	out := make([]*daemon, 0, len(g.daemons))
	for _, d := range g.daemons {
		out = append(out, d)
	}
	return out
}

func (g *registry) site(id string) *site {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.sites[id]
}

func (g *registry) ensureSite(h *Hub, id string) *site {
	if s := g.site(id); s != nil {
		return s
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.sites[id]
	if s == nil {
		s = newSite(h, id)
		g.sites[id] = s
	}
	return s
}

func (g *registry) allSites() []*site {
	g.mu.RLock()
	defer g.mu.RUnlock()
	out := make([]*site, 0, len(g.sites))
	for _, s := range g.sites {
		out = append(out, s)
	}
	return out
}
