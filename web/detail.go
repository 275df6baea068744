package web

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"pushrelay/hub"
)

// detail is a job whose history somebody reads; all who do share it.
type detail struct {
	users int
	// Of a job that has no row any more, or never had one here.
	job   hub.JobView
	found bool
	read  time.Time
	// version rises with each change of these.
	version uint64
}

// study notes that a viewer reads a job's history; mu is held.
func (b *board) study(job string) {
	if job == "" {
		return
	}
	d := b.details[job]
	if d == nil {
		d = &detail{}
		b.details[job] = d
	}
	d.users++
}

// leaveOff is called once for each study; mu is held.
func (b *board) leaveOff(job string) {
	if d := b.details[job]; d != nil {
		if d.users--; d.users == 0 {
			delete(b.details, job)
		}
	}
}

// lostDetails answers the jobs without a row that must be read.
func (b *board) lostDetails(now time.Time) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []string
	for job, d := range b.details {
		if b.rows[job] == nil && now.Sub(d.read) > heldAgain && len(out) < maxReads {
			out = append(out, job)
		}
	}
	return out
}

func (b *board) tookDetail(job string, v hub.JobView, found bool, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	d := b.details[job]
	if d == nil {
		return
	}
	d.read = now
	if d.found != found || d.job != v || d.version == 0 {
		d.job, d.found = v, found
		d.version++
		b.extra++
	}
}

// detailMark tells whether a job's details changed since a viewer got them.
type detailMark struct {
	job            string
	row, lost, own uint64
}

// detailOf answers a job's row or what was read of it, and its mark; false when nothing is known yet. mu is held.
func (b *board) detailOf(job string) (out detailJSON, m detailMark, ok bool) {
	out.ID, m.job = job, job
	if r := b.rows[job]; r != nil {
		j := r.view()
		out.Job, m.row = &j, r.version
		return out, m, true
	}
	d := b.details[job]
	if d == nil || d.version == 0 {
		return out, m, false
	}
	m.lost = d.version
	if d.found {
		j := jobOf(&d.job)
		out.Job = &j
	}
	return out, m, true
}

// siteJSON is a site as the page gets it.
type siteJSON struct {
	Site        string         `json:"id"`
	Known       bool           `json:"known"`
	Present     bool           `json:"present"`
	Silent      bool           `json:"silent,omitzero"`
	Draining    bool           `json:"draining,omitzero"`
	Counts      map[string]int `json:"counts"`
	Bytes       int64          `json:"bytes"`
	Notices     int            `json:"notices"`
	Polls       int            `json:"polls,omitzero"`
	Sessions    []sessionJSON  `json:"sessions"`
	Devices     []deviceJSON   `json:"devices"`
	Connected   int            `json:"connected"`
	MoreDevices int            `json:"more,omitzero"`
}

type sessionJSON struct {
	Session string `json:"id"`
	Client  string `json:"client"`
	Remote  string `json:"remote"`
	Opened  int64  `json:"opened"`
	Seals   int    `json:"seals"`
	Results int    `json:"results"`
	Notices int    `json:"notices"`
	Silent  bool   `json:"silent,omitzero"`
}

type deviceJSON struct {
	Runner  string   `json:"runner"`
	Owner   string   `json:"owner"`
	KeyID   string   `json:"key"`
	Where   string   `json:"where,omitzero"` // here, polls, elsewhere; absent: not connected
	Kinds   []string `json:"kinds,omitzero"`
	Slots   int      `json:"slots,omitzero"`
	Leases  int      `json:"leases,omitzero"`
	Paused  bool     `json:"paused,omitzero"`
	Deaf    bool     `json:"deaf,omitzero"`
	Seen    int64    `json:"seen,omitzero"`
	Opened  int64    `json:"opened,omitzero"`
	Client  string   `json:"client,omitzero"`
	Remote  string   `json:"remote,omitzero"`
	Session string   `json:"session,omitzero"`
}

func siteOf(d *hub.SiteDetail) siteJSON {
	out := siteJSON{
		Site: d.Site, Known: d.Known, Present: d.Present, Silent: d.Silent, Draining: d.Draining, Counts: countsOf(&d.SiteSummary),
		Bytes: d.Bytes, Notices: d.Notices, Polls: d.Polls, Connected: d.Connected, MoreDevices: d.MoreDevices,
		Sessions: make([]sessionJSON, 0, len(d.Views)), Devices: make([]deviceJSON, 0, len(d.Devices)),
	}
	for _, s := range d.Views {
		out.Sessions = append(out.Sessions, sessionJSON{
			s.Session, clientText(s.Client.Name, s.Client.Version, s.Client.Platform), s.Remote, millis(s.Opened), s.Seals, s.Results, s.Notices, s.Silent,
		})
	}
	for i := range d.Devices {
		v := &d.Devices[i]
		j := deviceJSON{
			Runner: v.Runner, Owner: v.Owner, KeyID: v.KeyID, Kinds: v.Kinds, Slots: v.Slots, Leases: v.Leases, Paused: v.Paused,
			Deaf: v.Deaf, Seen: millis(v.Seen), Opened: millis(v.Opened), Remote: v.Remote, Session: v.Session,
			Client: clientText(v.Client.Name, v.Client.Version, v.Client.Platform),
		}
		switch {
		case v.Here:
			j.Where = "here"
		case v.Polls:
			j.Where = "polls"
		case v.Elsewhere:
			j.Where = "elsewhere"
		}
		out.Devices = append(out.Devices, j)
	}
	return out
}

// countsOf answers counts by the words of states; zero ones are left out.
func countsOf(s *hub.SiteSummary) map[string]int {
	out := map[string]int{}
	for _, state := range hub.JobStates() {
		if n := s.ByState[state]; n > 0 {
			out[state.String()] = n
		}
	}
	return out
}

// clientText joins what a client says of itself.
func clientText(words ...string) string {
	out := ""
	for _, w := range words {
		if w == "" {
			continue
		}
		if out != "" {
			out += " "
		}
		out += w
	}
	return out
}

// composeJob adds a job's details to an update when they changed; mu isn't held, for the recorder's lock comes before it.
func (b *board) composeJob(v *viewer, m detailMark, out detailJSON) (jsontext.Value, detailMark, bool) {
	line, version, known := b.rec.timeline(b.site, m.job)
	m.own = version
	if v.told == m {
		return nil, m, false
	}
	if known {
		out.Timeline = &line
	}
	out.Missing = out.Job == nil && !known
	return encode(out), m, true
}
