package projection

import (
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"pushrelay/wire"
)

// Example builds a projection's file for demos, tests and `pushrelay init`. The zero value is empty and ready.
type Example struct{ doc document }

// Version sets the file's version.
func (e *Example) Version(v int64) *Example {
	e.doc.Version = &v
	return e
}

// Site adds a site with its current identity.
func (e *Example) Site(id string, identity wire.PublicIdentity) *Example {
	e.doc.Sites = append(e.doc.Sites, siteEntry{SiteID: id, Site: identity})
	return e
}

// Rotated adds a site whose key succeeded others, oldest link first; those sign until retiringUntil (epoch ms, 0: not).
func (e *Example) Rotated(id string, identity wire.PublicIdentity, succeeds []wire.Succession, retiringUntil int64) *Example {
	s := siteEntry{SiteID: id, Site: identity, Succeeds: succeeds}
	if retiringUntil != 0 {
		s.RetiringUntil = &retiringUntil
	}
	e.doc.Sites = append(e.doc.Sites, s)
	return e
}

// Device adds a device of an owner.
func (e *Example) Device(owner, runner string, identity wire.PublicIdentity) *Example {
	e.doc.Devices = append(e.doc.Devices, device{Owner: owner, RunnerID: runner, Device: identity})
	return e
}

// MarkRevoked sets the revoked mark of a device that was added before.
func (e *Example) MarkRevoked(runner string, revoked bool) *Example {
	for i := range e.doc.Devices {
		if e.doc.Devices[i].RunnerID == runner {
			e.doc.Devices[i].Revoked = &revoked
		}
	}
	return e
}

// Consent adds an owner's consent for a site.
func (e *Example) Consent(owner, site string) *Example {
	e.doc.Consents = append(e.doc.Consents, consent{Owner: owner, SiteID: site})
	return e
}

// Pause adds an owner's paused consent for a site.
func (e *Example) Pause(owner, site string) *Example {
	e.doc.Consents = append(e.doc.Consents, consent{Owner: owner, SiteID: site, Paused: true})
	return e
}

// Roster lets the owner's devices serve the members' jobs.
func (e *Example) Roster(id, owner string, members ...string) *Example {
	e.doc.Rosters = append(e.doc.Rosters, roster{ID: id, Owner: owner, Members: slices.Clip(append([]string{}, members...))})
	return e
}

// Revoke puts an owner's revocation of a site on record.
func (e *Example) Revoke(owner, site string) *Example {
	e.doc.Revoked = append(e.doc.Revoked, pair{Owner: owner, SiteID: site})
	return e
}

// Marshal answers the file, indented for people, after Parse accepted it.
func (e *Example) Marshal() ([]byte, error) {
	raw, err := json.Marshal(e.doc, json.Deterministic(true), jsontext.WithIndent("  "))
	if err != nil {
		return nil, refuse("", "it can't be written as JSON")
	}
	raw = append(raw, '\n')
	if _, err := Parse(raw); err != nil {
		return nil, err
	}
	return raw, nil
}
