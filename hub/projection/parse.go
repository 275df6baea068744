package projection

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"pushrelay/wire"
)

// MaxBytes bounds a projection's JSON; larger ones are refused unread.
const MaxBytes = 64 << 20

// Error refuses a projection. Place is a JSON pointer into it (RFC 6901), empty for the whole.
type Error struct {
	Place string
	What  string // what is wrong and what to do
}

// Error answers place and reason in one line.
func (e *Error) Error() string {
	if e.Place == "" {
		return "projection: " + e.What
	}
	return "projection: at " + strconv.Quote(e.Place) + ": " + e.What
}

func refuse(place, format string, args ...any) error {
	return &Error{Place: place, What: fmt.Sprintf(format, args...)}
}

type document struct {
	Version  *int64      `json:"version,omitzero"`
	Sites    []siteEntry `json:"sites"`
	Consents []consent   `json:"consents"`
	Devices  []device    `json:"devices"`
	Rosters  []roster    `json:"rosters,omitzero"`
	Revoked  []pair      `json:"revoked,omitzero"`
}

type siteEntry struct {
	SiteID        string              `json:"siteId"`
	Site          wire.PublicIdentity `json:"site"`
	Succeeds      []wire.Succession   `json:"succeeds,omitzero"`
	RetiringUntil *int64              `json:"retiringUntil,omitzero"` // epoch ms
}

type consent struct {
	Owner  string `json:"owner"`
	SiteID string `json:"siteId"`
	Paused bool   `json:"paused,omitzero"`
}

type device struct {
	Owner    string              `json:"owner"`
	RunnerID string              `json:"runnerId"`
	Device   wire.PublicIdentity `json:"device"`
	Revoked  *bool               `json:"revoked,omitzero"`
}

type roster struct {
	ID      string   `json:"id"`
	Owner   string   `json:"owner"`
	Members []string `json:"members"`
}

type pair struct {
	Owner  string `json:"owner"`
	SiteID string `json:"siteId"`
}

// Parse reads and judges a whole file; nothing of a bad one is used. Errors are *Error, with the place and what to do.
// It verifies every identity and succession, so it takes about 0.1 ms a party.
func Parse(raw []byte) (*Projection, error) {
	doc, err := decode(raw)
	if err != nil {
		return nil, err
	}
	b := builder{p: &Projection{
		raw:   bytes.Clone(raw),
		sites: make(map[string]*Site, len(doc.Sites)), siteKeys: make(map[string]*Site, len(doc.Sites)),
		devices: make(map[string]*Device, len(doc.Devices)), deviceIDs: make(map[string]*Device, len(doc.Devices)),
		consents: make(map[Route]bool, len(doc.Consents)), revoked: make(map[Route]bool, len(doc.Revoked)),
	}}
	if doc.Version != nil {
		b.p.version, b.p.hasVersion = *doc.Version, true
	}
	for _, step := range []func(*document) error{b.addSites, b.addDevices, b.addConsents, b.addRevoked, b.addRosters} {
		if err := step(doc); err != nil {
			return nil, err
		}
	}
	b.index()
	return b.p, nil
}

func decode(raw []byte) (*document, error) {
	if len(raw) > MaxBytes {
		return nil, refuse("", "it has over %d bytes; split the fleet or raise the limit", MaxBytes)
	}
	if err := refuseNull(raw); err != nil {
		return nil, err
	}
	var doc document
	if err := json.Unmarshal(raw, &doc, json.RejectUnknownMembers(true)); err != nil {
		return nil, explain(err)
	}
	for _, list := range []struct {
		name   string
		absent bool
	}{{"sites", doc.Sites == nil}, {"consents", doc.Consents == nil}, {"devices", doc.Devices == nil}} {
		if list.absent {
			return nil, refuse("", "the list %q is missing; write [] for none", list.name)
		}
	}
	if doc.Version != nil && *doc.Version < 0 {
		return nil, refuse("/version", "it must not be negative")
	}
	return &doc, nil
}

// refuseNull also finds broken JSON and members that are named twice: the decoder stops at them.
func refuseNull(raw []byte) error {
	dec := jsontext.NewDecoder(bytes.NewBuffer(raw))
	if dec.PeekKind() != '{' {
		return refuse("", "it must be one JSON object; was the file written whole?")
	}
	for {
		tok, err := dec.ReadToken()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return explain(err)
		}
		if tok.Kind() == 'n' {
			return refuse(string(dec.StackPointer()), "null is not allowed; leave the member out")
		}
	}
}

func explain(err error) error {
	var semantic *json.SemanticError
	if errors.As(err, &semantic) {
		place := string(semantic.JSONPointer)
		if errors.Is(err, json.ErrUnknownName) {
			return refuse(place, "this member is not known; check its spelling or upgrade the relay")
		}
		return refuse(place, "it has the wrong type (%s)", kindName(semantic.JSONKind))
	}
	var syntactic *jsontext.SyntacticError
	if errors.As(err, &syntactic) {
		if errors.Is(err, jsontext.ErrDuplicateName) {
			return refuse(string(syntactic.JSONPointer), "this member is named twice; keep one")
		}
		return refuse(string(syntactic.JSONPointer), "broken JSON at byte %d; was the file written whole?", syntactic.ByteOffset)
	}
	return refuse("", "broken JSON; was the file written whole?")
}

func kindName(k jsontext.Kind) string {
	if k == 0 {
		return "unexpected value"
	}
	return k.String()
}

func checkID(place, id string) error {
	if wire.CheckID(id) != nil {
		return refuse(place, "an id must have 1 to %d bytes and no U+0000", wire.MaxIDBytes)
	}
	return nil
}

func checkTime(place string, ms int64) (time.Time, error) {
	if ms <= 0 || ms > 1<<53-1 {
		return time.Time{}, refuse(place, "it must be a time in epoch milliseconds")
	}
	return time.UnixMilli(ms), nil
}

func at(list string, i int, member string) string {
	place := "/" + list + "/" + strconv.Itoa(i)
	if member != "" {
		place += "/" + member
	}
	return place
}
