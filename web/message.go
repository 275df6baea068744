package web

import (
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"pushrelay/hub"
	"pushrelay/wire"
)

// Messages of a stream. Times are epoch milliseconds by the relay's clock, 0 or absent for none.

// hello is a stream's first message.
type hello struct {
	Type    string `json:"type"` // hello
	Now     int64  `json:"now"`
	Version string `json:"version"`
	Site    string `json:"site,omitzero"`
}

// update is what changed since the last one, of what the viewer looks at; a section that didn't is absent. Fresh says that
// nothing older counts.
type update struct {
	Type  string         `json:"type"` // update
	Now   int64          `json:"now"`
	Fresh bool           `json:"fresh,omitzero"`
	Rows  *rowsPart      `json:"rows,omitzero"`
	Site  jsontext.Value `json:"site,omitzero"`
	Chart jsontext.Value `json:"chart,omitzero"`
	Job   jsontext.Value `json:"job,omitzero"`
	Sites jsontext.Value `json:"sites,omitzero"`
}

// rowsPart is a window of rows: the handles of all in it, and the rows that changed.
type rowsPart struct {
	Total   int              `json:"total"` // that pass the filter
	From    int              `json:"from"`
	Order   []uint32         `json:"order"`
	Changed []jsontext.Value `json:"changed"`
	Loaded  int              `json:"loaded"`           // all rows of the board
	Loading bool             `json:"loading,omitzero"` // more are being read
	Full    bool             `json:"full,omitzero"`    // more exist than are shown
}

// jobJSON is a row, or the job whose details are shown.
type jobJSON struct {
	Handle      uint32         `json:"n,omitzero"`
	Job         string         `json:"id"`
	Kind        string         `json:"kind"`
	Owner       string         `json:"owner"`
	SiteKeyID   string         `json:"siteKey,omitzero"`
	Audience    string         `json:"audience,omitzero"`
	Size        string         `json:"size,omitzero"`
	Purpose     string         `json:"purpose,omitzero"`
	Streaming   bool           `json:"streaming,omitzero"`
	Dialect     wire.Dialect   `json:"dialect,omitzero"`
	State       string         `json:"state"`
	Cancelled   bool           `json:"cancelled,omitzero"`
	Runner      string         `json:"runner,omitzero"`
	DeviceKeyID string         `json:"key,omitzero"`
	Lease       string         `json:"leaseId,omitzero"`
	Enqueued    int64          `json:"enqueued,omitzero"`
	Since       int64          `json:"since,omitzero"`
	Offer       int64          `json:"offer,omitzero"`
	Window      int64          `json:"window,omitzero"`
	LeaseEnds   int64          `json:"lease,omitzero"`
	Deadline    int64          `json:"deadline,omitzero"`
	Waits       int            `json:"waits,omitzero"`
	Lapses      int            `json:"lapses,omitzero"`
	Takes       int            `json:"takes,omitzero"`
	Payload     int64          `json:"payload,omitzero"`
	Result      int64          `json:"result,omitzero"`
	Disposition string         `json:"disposition,omitzero"`
	Dropped     string         `json:"dropped,omitzero"`
	Why         []obstacleJSON `json:"why,omitzero"`
}

type obstacleJSON struct {
	Code  hub.ObstacleCode `json:"code"`
	Count int              `json:"n,omitzero"`
	Of    int              `json:"of,omitzero"`
	Until int64            `json:"until,omitzero"`
}

// detailJSON is one job with its history. Missing: neither the store nor this relay knows it any more.
type detailJSON struct {
	ID       string        `json:"id"`
	Missing  bool          `json:"missing,omitzero"`
	Job      *jobJSON      `json:"job,omitzero"`
	Timeline *timelineView `json:"timeline,omitzero"`
}

func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func jobOf(v *hub.JobView) jobJSON {
	return jobJSON{
		Job: v.Job, Kind: v.Kind, Owner: v.Owner, SiteKeyID: v.SiteKeyID, Audience: v.Audience, Size: v.SizeClass, Purpose: v.Purpose,
		Streaming: v.Streaming, Dialect: v.Dialect, State: v.State.String(), Cancelled: v.Cancelled, Runner: v.Runner,
		DeviceKeyID: v.DeviceKeyID, Lease: v.Lease, Enqueued: millis(v.EnqueuedAt), Since: millis(v.Since), Offer: millis(v.OfferEnds),
		Window: millis(v.WindowEnds), LeaseEnds: millis(v.LeaseEnds), Deadline: millis(v.Deadline), Waits: v.Waits, Lapses: v.Lapses,
		Takes: v.Takes, Payload: v.PayloadBytes, Result: v.ResultBytes, Disposition: v.Disposition,
	}
}

// json answers a row as the page gets it, made once for all viewers; the board's mu is held.
func (r *row) json() jsontext.Value {
	if r.text == nil {
		j := r.view()
		j.Handle = r.handle
		r.text = encode(j)
	}
	return r.text
}

// view answers a row's fields with what only the board knows; the board's mu is held.
func (r *row) view() jobJSON {
	j := jobOf(&r.JobView)
	j.Dropped = r.dropped
	if r.State == hub.JobQueued {
		j.Why = obstacles(r.why)
	}
	return j
}

func obstacles(list []hub.Obstacle) []obstacleJSON {
	out := make([]obstacleJSON, 0, len(list))
	for _, o := range list {
		out = append(out, obstacleJSON{o.Code, o.Count, o.Of, millis(o.Until)})
	}
	return out
}

// encode answers v as JSON; bytes that aren't UTF-8 become U+FFFD. What is encoded here can't fail.
func encode(v any) jsontext.Value {
	raw, err := json.Marshal(v, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return jsontext.Value("null")
	}
	return raw
}
