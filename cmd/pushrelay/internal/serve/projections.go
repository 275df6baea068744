package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/rs/zerolog"

	"pushrelay/hub/projection"
)

// errOldVersion marks a projection that is fine by itself and doesn't rise above the one in force.
var errOldVersion = errors.New("projection version")

// Where a projection came from.
const (
	sourceFile  = "file"
	sourceAdmin = "admin"
)

// Change answers what a replacement changed, in numbers.
type Change struct {
	Changed  bool    `json:"changed"`
	Version  *int64  `json:"version,omitempty"`
	Sites    Changes `json:"sites"`
	Devices  Changes `json:"devices"`
	Consents Changes `json:"consents"`
	Rosters  Changes `json:"rosters"`
	Revoked  Changes `json:"revoked"`
}

// Changes counts the entries of one list. Total is what stands now.
type Changes struct {
	Added   int `json:"added"`
	Removed int `json:"removed"`
	Altered int `json:"altered"`
	Total   int `json:"total"`
}

// projections puts projections in force, from the file and from the admin listener, one at a time. The last one that
// arrived wins; with a version, only a higher one does.
type projections struct {
	replace func(*projection.Projection) (changed bool, err error)
	log     zerolog.Logger
	told    func(source string, ok bool) // metrics

	mu  sync.Mutex
	raw []byte // in force
}

// apply judges and puts in force; an error leaves everything as it was.
func (p *projections) apply(raw []byte, source string) (Change, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change, err := p.replaceLocked(raw)
	p.told(source, err == nil)
	if err != nil {
		if source != sourceFile { // the reader of the file says it, with the path
			p.log.Error().Err(err).Str("event", "projection-refused").Str("source", source).Msg("the projection in force stays")
		}
		return Change{}, err
	}
	p.log.Info().Str("event", "projection").Str("source", source).Bool("changed", change.Changed).
		Int("sites", change.Sites.Total).Int("devices", change.Devices.Total).Int("consents", change.Consents.Total).
		Msg("projection in force")
	return change, nil
}

func (p *projections) replaceLocked(raw []byte) (Change, error) {
	next, err := projection.Parse(raw)
	if err != nil {
		return Change{}, err
	}
	changed, err := p.replace(next)
	if err != nil {
		var refused *projection.Error
		if errors.As(err, &refused) && refused.Place == "/version" {
			return Change{}, fmt.Errorf("%w: %s", errOldVersion, refused.What)
		}
		return Change{}, err
	}
	change := compare(p.raw, raw)
	change.Changed = changed
	if v, ok := next.Version(); ok {
		change.Version = &v
	}
	p.raw = raw
	return change, nil
}

// lists are a projection's lists with each entry as it stands, for counting only: Parse has judged the text.
type lists struct {
	Sites, Devices, Consents, Rosters, Revoked []map[string]json.RawMessage
}

func compare(old, next []byte) Change {
	var a, b lists
	_ = json.Unmarshal(old, &a) // nothing was in force, or Parse accepted it
	_ = json.Unmarshal(next, &b)
	return Change{
		Sites:    count(a.Sites, b.Sites, "siteId"),
		Devices:  count(a.Devices, b.Devices, "runnerId"),
		Consents: count(a.Consents, b.Consents, "owner", "siteId"),
		Rosters:  count(a.Rosters, b.Rosters, "id"),
		Revoked:  count(a.Revoked, b.Revoked, "owner", "siteId"),
	}
}

func count(old, next []map[string]json.RawMessage, keys ...string) Changes {
	before := map[string]string{}
	for _, entry := range old {
		before[part(entry, keys...)] = text(entry)
	}
	c := Changes{Total: len(next)}
	for _, entry := range next {
		key := part(entry, keys...)
		was, known := before[key]
		switch {
		case !known:
			c.Added++
		case was != text(entry):
			c.Altered++
		}
		delete(before, key)
	}
	c.Removed = len(before)
	return c
}

// part is an entry's identity as JSON, in which no two pairs look alike.
func part(entry map[string]json.RawMessage, keys ...string) string {
	values := make([]json.RawMessage, 0, len(keys))
	for _, key := range keys {
		values = append(values, entry[key])
	}
	return text(values)
}

func text(v any) string {
	raw, _ := json.Marshal(v) // raw messages that were decoded encode again
	return string(raw)
}
