package daemon

import (
	"strconv"

	"github.com/rs/zerolog"

	"pushrelay/session/internal/ask"
	"pushrelay/wire"
)

// sites is what the relay last told of whom this daemon serves; every identity and chain in it was verified.
type sites struct {
	listed map[string]wire.PublicIdentity
	// lineage has, for each key that may name or sign for a site, its identity and the listed key that it belongs to.
	lineage map[string]member
	refused map[string]bool // keys that were told, and didn't verify or aren't trusted here
}

type member struct {
	identity wire.PublicIdentity
	listed   string
}

// readSites verifies what a welcome or a sites push tells. An entry that doesn't verify is left out, loudly.
func (d *Daemon) readSites(listed map[string]wire.PublicIdentity, chains map[string][]wire.Succession) sites {
	s := sites{listed: map[string]wire.PublicIdentity{}, lineage: map[string]member{}, refused: map[string]bool{}}
	for keyID, id := range listed {
		s.refused[keyID] = true
		own, err := id.KeyID()
		if err != nil || own != keyID || id.Verify() != nil {
			d.log.Warn().Str("site", ask.Printable(keyID)).Msg("a site's identity doesn't verify; its jobs are refused")
			continue
		}
		if d.cfg.TrustSite != nil && !d.cfg.TrustSite(keyID, id) {
			d.log.Info().Str("site", keyID).Msg("a site isn't trusted here; its jobs are refused")
			continue
		}
		s.listed[keyID] = id
		delete(s.refused, keyID)
	}
	for keyID := range s.listed {
		if err := wire.VerifyChain(chains[keyID], keyID); err != nil {
			for _, link := range chains[keyID] {
				if from, err := link.Identity.KeyID(); err == nil {
					s.refused[from] = true
				}
			}
			d.log.Warn().Str("site", keyID).Msg("a site's succession doesn't verify; its earlier keys are refused")
			continue
		}
		for _, link := range chains[keyID] {
			if from, err := link.Identity.KeyID(); err == nil {
				s.lineage[from] = member{link.Identity, keyID}
			}
		}
	}
	for keyID, id := range s.listed { // last: a key that is listed itself stands for itself
		s.lineage[keyID] = member{id, s.heir(keyID)}
	}
	return s
}

// heir is the listed key that followed keyID, or keyID itself.
func (s *sites) heir(keyID string) string {
	if m, ok := s.lineage[keyID]; ok && m.listed != keyID {
		return m.listed
	}
	return keyID
}

// serves reports whether jobs of the site that signs as keyID may run.
func (s *sites) serves(keyID string) bool {
	_, ok := s.lineage[keyID]
	return ok
}

// sender answers the identity of an envelope's sender for a stub of site: the same key, or one of the same succession.
func (s *sites) sender(site, senderKeyID string) (wire.PublicIdentity, bool) {
	a, ok := s.lineage[site]
	b, found := s.lineage[senderKeyID]
	if !ok || !found || a.listed != b.listed {
		return wire.PublicIdentity{}, false
	}
	return b.identity, true
}

// recipient answers whom a result is sealed to: the key that sealed the payload while it is listed, else its heir.
func (s *sites) recipient(sender wire.PublicIdentity) (wire.PublicIdentity, bool) {
	keyID, err := sender.KeyID()
	if err != nil {
		return wire.PublicIdentity{}, false
	}
	if id, ok := s.listed[keyID]; ok {
		return id, true
	}
	id, ok := s.listed[s.lineage[keyID].listed]
	return id, ok
}

func (d *Daemon) sitesPush(frame []byte) error {
	f, err := wire.Decode[wire.Sites](frame)
	if err != nil {
		return err
	}
	view := d.readSites(f.Sites, f.Successions)
	d.mu.Lock()
	d.sites = view
	d.mu.Unlock()
	d.log.Info().Int("sites", len(view.listed)).Int("awaitingConsent", len(f.AwaitingConsent)).Msg("the sites changed")
	d.event(EventSites, wire.Grant{}, "", strconv.Itoa(len(view.listed)))
	return nil
}

// grantLog begins a line about a grant.
func (d *Daemon) grantLog(g wire.Grant) *zerolog.Event {
	return d.log.Info().Str("job", ask.Printable(g.JobID)).Str("lease", ask.Printable(g.LeaseID))
}
