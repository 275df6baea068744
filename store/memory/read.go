package memory

import (
	"cmp"
	"slices"

	"pushrelay/store"
	"pushrelay/wire"
)

// maxPage bounds the jobs of a page.
const maxPage = 1000

// Backlog is Reader's, the queue with the oldest job first.
func (m *Machine) Backlog(id string) []store.Backlog {
	var out []store.Backlog
	if id != "" {
		if s := m.sites[id]; s != nil {
			out = s.backlog(out)
		}
	} else {
		for _, s := range m.sites {
			out = s.backlog(out)
		}
	}
	slices.SortFunc(out, func(a, b store.Backlog) int {
		return cmp.Or(a.Oldest.Compare(b.Oldest), cmp.Compare(a.Site, b.Site), cmp.Compare(a.Owner, b.Owner),
			cmp.Compare(a.Kind, b.Kind))
	})
	return out
}

func (s *site) backlog(out []store.Backlog) []store.Backlog {
	for q := range s.waiting {
		out = append(out, store.Backlog{Queue: q.Queue, Waiting: q.jobs.n, Oldest: moment(q.jobs.first().EnqueuedAt)})
	}
	return out
}

// Job is Reader's.
func (m *Machine) Job(site, id string) (store.Job, error) {
	j := m.jobs[store.Key{Site: site, Job: id}]
	if j == nil {
		return store.Job{}, store.ErrNotFound
	}
	return j.view(), nil
}

// Jobs is Reader's: neither notices nor tombstones.
func (m *Machine) Jobs(site string, after store.Cursor, most int) store.Page {
	if s := m.sites[site]; s != nil {
		return s.all.page(after, most)
	}
	return store.Page{}
}

// Awaiting is Reader's.
func (m *Machine) Awaiting(site string, after store.Cursor, most int) store.Page {
	if s := m.sites[site]; s != nil {
		return s.awaiting.page(after, most)
	}
	return store.Page{}
}

// Finished is Reader's.
func (m *Machine) Finished(site string, after store.Cursor, most int) store.Page {
	if s := m.sites[site]; s != nil {
		return s.finished.page(after, most)
	}
	return store.Page{}
}

// page answers what follows the cursor, which is the last job's Seq.
func (o *ordered) page(after store.Cursor, most int) store.Page {
	most = max(1, min(most, maxPage))
	var p store.Page
	j, key := o.after(uint64(after))
	for ; j != nil && len(p.Jobs) < most; j, key = o.after(key) {
		p.Jobs = append(p.Jobs, j.view())
		p.Next = store.Cursor(key)
	}
	if j == nil {
		p.Next = 0
	}
	return p
}

// ResultEnvelope is Reader's.
func (m *Machine) ResultEnvelope(site string, g wire.Grant) (*Sealed, error) {
	j := m.ofSite(site, g)
	if j == nil || j.Result == nil {
		return nil, store.ErrNotFound
	}
	return j.Result, nil
}

// Stats is Reader's. Sites are those that the machine has a record of.
func (m *Machine) Stats() store.Stats {
	st := store.Stats{
		ByState: make(map[store.State]int, len(m.byState)),
		Bytes:   m.bytes, Notices: m.notices, Sites: len(m.sites), Sessions: m.online,
	}
	for s := store.Queued; s <= store.Done; s++ {
		if m.byState[s] > 0 {
			st.ByState[s] = m.byState[s]
		}
	}
	return st
}

// SiteStats is Reader's, sorted by site.
func (m *Machine) SiteStats(id string) []store.SiteStats {
	if id != "" {
		out := store.SiteStats{Site: id}
		if s := m.sites[id]; s != nil {
			out = s.stats()
		}
		return []store.SiteStats{out}
	}
	out := make([]store.SiteStats, 0, len(m.sites))
	for _, s := range m.sites {
		if s.jobs > 0 || s.notices > 0 {
			out = append(out, s.stats())
		}
	}
	slices.SortFunc(out, func(a, b store.SiteStats) int { return cmp.Compare(a.Site, b.Site) })
	return out
}

func (s *site) stats() store.SiteStats {
	return store.SiteStats{Site: s.id, ByState: s.byState, Bytes: s.bytes, Notices: s.notices}
}

// Barred is Reader's.
func (m *Machine) Barred(site, id string, runners []string) ([]store.Bar, error) {
	j := m.jobs[store.Key{Site: site, Job: id}]
	if j == nil {
		return nil, store.ErrNotFound
	}
	if j.State != store.Queued {
		return nil, nil
	}
	var out []store.Bar
	for _, id := range runners {
		if j.shunned(id, m.now) {
			b := store.Bar{Runner: id}
			if until := j.Shun[id]; until != forever {
				b.Until = moment(until)
			}
			out = append(out, b)
			continue
		}
		if who := m.runners[id]; who.waits(j.q.Queue, m.now) {
			out = append(out, store.Bar{Runner: id, Until: moment(streakAt(who.streaks[j.q.Queue]).Until), Queue: true})
		}
	}
	return out, nil
}
