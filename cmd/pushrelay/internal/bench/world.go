package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"pushrelay/wire"
	"pushrelay/wire/seal"
)

// Words of every job of a bench.
const (
	benchKind     = "llm.generate"
	envelopeBytes = 1 << 10            // of a sealed envelope's JSON at least, the size of the baseline's messages
	deadlineAhead = 6 * 24 * time.Hour // no job of a bench runs into it
)

// party is a site or a daemon: its id, its keys, and for a daemon its owner.
type party struct {
	id    string
	owner string
	keys  *seal.Keys
	keyID string
}

// world is the control plane of a bench: every owner consents to every site, every daemon runs its own owner's jobs.
type world struct {
	sites    []*party
	daemons  []*party
	owners   int
	deadline int64  // epoch ms, of every job
	path     string // of the projection
}

// newWorld makes keys and writes the projection into dir. Daemons go round the owners.
func newWorld(dir string, sites, daemons, owners int) (*world, error) {
	w := &world{
		sites: make([]*party, sites), daemons: make([]*party, daemons), owners: owners,
		deadline: time.Now().Add(deadlineAhead).UnixMilli(), path: filepath.Join(dir, "projection.json"),
	}
	err := parallel(sites, 2, func(i int) (err error) {
		w.sites[i], err = newParty(fmt.Sprintf("site-%d", i), "")
		return err
	})
	if err != nil {
		return nil, err
	}
	err = parallel(daemons, 2, func(i int) (err error) {
		w.daemons[i], err = newParty(fmt.Sprintf("runner-%d", i), ownerID(i%owners))
		return err
	})
	if err != nil {
		return nil, err
	}
	return w, w.write()
}

func ownerID(i int) string { return fmt.Sprintf("owner-%d", i) }

func newParty(id, owner string) (*party, error) {
	keys, err := seal.Generate(nil)
	if err != nil {
		return nil, err
	}
	return &party{id: id, owner: owner, keys: keys, keyID: keys.KeyID()}, nil
}

func (w *world) write() error {
	type object = map[string]any
	var sites, consents, devices []object
	for _, s := range w.sites {
		sites = append(sites, object{"siteId": s.id, "site": s.keys.Public()})
		for i := range w.owners {
			consents = append(consents, object{"owner": ownerID(i), "siteId": s.id})
		}
	}
	for _, d := range w.daemons {
		devices = append(devices, object{"owner": d.owner, "runnerId": d.id, "device": d.keys.Public()})
	}
	raw, err := json.Marshal(object{"sites": sites, "consents": consents, "devices": devices, "rosters": []object{}, "revoked": []object{}})
	if err != nil {
		return err
	}
	return os.WriteFile(w.path, raw, 0o600)
}

// stub is the text of one job of a site for an owner's own devices.
func (w *world) stub(site int, job, owner string) []byte {
	return wire.AppendStub(nil, wire.Stub{
		ID: job, Kind: benchKind, Owner: owner, Site: w.sites[site].keyID, Audience: "self",
		SizeClass: "small", DeadlineAt: w.deadline,
	})
}

func capabilities() []byte {
	return wire.AppendCapabilities(nil, wire.Dialect0, []wire.Capability{
		{Kind: benchKind, BackendID: "bench", BackendClass: "process", Model: "none", OfferScope: "self"},
	})
}
