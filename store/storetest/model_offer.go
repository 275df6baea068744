package storetest

import (
	"time"

	"pushrelay/store"
)

// open reports whether an entry is on offer to a session just now.
func (m *model) open(j *mjob) bool { return j.offer.open && j.offer.ends.After(m.now) }

// entries answers what of a kind awaits the site, on offer or not.
func (m *model) entries(site string, what store.OfferKind) (out []*mjob) {
	for _, j := range m.jobs {
		if j.Site != site {
			continue
		}
		switch what {
		case store.OfferSeals:
			if j.awaits() {
				out = append(out, j)
			}
		case store.OfferResults:
			if j.State == store.Done && j.live() {
				out = append(out, j)
			}
		case store.OfferNotices:
			if j.dropped != "" && !j.Collected {
				out = append(out, j)
			}
		}
	}
	return out
}

// takeable reports whether an entry must be offered, or may be.
func (m *model) takeable(j *mjob) (must, may bool) {
	switch {
	case m.open(j):
		return false, false
	case !j.widened || j.State != store.AwaitingPayload:
		return true, true
	case j.uncertainly:
		return false, true
	}
	// Widened while on offer: with its session until that one ends; widened without: never again.
	free := j.offer.session == "" && j.offer.attempts > 0
	return free, free
}

// followOffer judges what a session was offered and marks it. It answers what is wrong, or nothing.
func (m *model) followOffer(site, session string, what store.OfferKind, limit int, bytes int64, d time.Duration, got []store.Offered) string {
	open, held := 0, int64(0)
	for _, j := range m.entries(site, what) {
		if m.open(j) && j.offer.session == session {
			open, held = open+1, held+int64(len(j.result.Raw))
		}
	}
	seen := map[*mjob]bool{}
	again := false
	for _, o := range got {
		j := m.jobs[store.Key{Site: site, Job: o.Grant.JobID}]
		if j == nil || seen[j] || !m.awaitsIt(j, site, what) {
			return "offered what doesn't await the site: " + o.Grant.JobID
		}
		seen[j] = true
		if again && j.offer.attempts == 0 {
			return "offered again before never offered"
		}
		again = again || j.offer.attempts > 0
		if what == store.OfferResults && (open > 0 && held+o.Bytes > bytes) {
			return "offered beyond the window's bytes"
		}
		open, held = open+1, held+int64(len(j.result.Raw))
		if open > limit {
			return "offered beyond the window's entries"
		}
		if wrong := m.sameOffer(j, what, o); wrong != "" {
			return wrong
		}
	}
	if wrong := m.leftOver(site, what, seen, open < limit, open == 0, bytes-held, again); wrong != "" {
		return wrong
	}
	for _, o := range got {
		m.mark(m.jobs[store.Key{Site: site, Job: o.Grant.JobID}], session, what, d, o)
	}
	return ""
}

func (m *model) awaitsIt(j *mjob, site string, what store.OfferKind) bool {
	for _, e := range m.entries(site, what) {
		if e == j {
			_, may := m.takeable(j)
			return may
		}
	}
	return false
}

// leftOver judges what wasn't offered: nothing that fits, and nothing never offered when something was offered again.
func (m *model) leftOver(site string, what store.OfferKind, seen map[*mjob]bool, room, first bool, bytes int64, again bool) string {
	fits, left := true, ""
	for _, j := range m.entries(site, what) {
		must, _ := m.takeable(j)
		if !must || seen[j] {
			continue
		}
		left = j.Key.Job
		if what == store.OfferResults && !first && int64(len(j.result.Raw)) > bytes {
			fits = false // whatever stands behind one that doesn't fit may wait too
		}
		if again && j.offer.attempts == 0 && fits {
			return "offered again, though never offered ones wait: " + left
		}
	}
	if room && fits && left != "" {
		return "not offered: " + left
	}
	return ""
}

func (m *model) sameOffer(j *mjob, what store.OfferKind, o store.Offered) string {
	want := store.Offered{Grant: o.Grant, Owner: j.queue.Owner, Attempt: j.offer.attempts + 1}
	want.WindowEnds, want.LeaseEnds, want.OfferEnds = o.WindowEnds, o.LeaseEnds, o.OfferEnds
	switch what {
	case store.OfferNotices:
		want.Why = j.dropped
		if o.Grant.LeaseID == "" || j.offer.id != "" && j.offer.id != o.Grant.LeaseID {
			return "a notice's id changed or is empty"
		}
	default:
		want.Runner, want.RunnerOwner, want.Device, want.Identity = j.Runner, j.RunnerOwner, j.Device, j.Identity
		if o.Grant.LeaseID != j.Lease {
			return "an offer of another grant"
		}
	}
	switch what {
	case store.OfferResults:
		want.Disposition, want.Bytes = j.Disposition, int64(len(j.result.Raw))
	case store.OfferSeals:
		if !m.still() && !(o.WindowEnds.Equal(j.WindowEnds) && o.LeaseEnds.Equal(j.LeaseEnds)) {
			return "an offer with other ends"
		}
	}
	if o != want {
		return "an offer with other fields"
	}
	return ""
}

func (m *model) mark(j *mjob, session string, what store.OfferKind, d time.Duration, o store.Offered) {
	if what != store.OfferSeals {
		for range j.offer.attempts {
			d = min(2*d, store.MaxOffer)
		}
	}
	id := j.offer.id
	if what == store.OfferNotices {
		id = o.Grant.LeaseID
	}
	j.uncertainly = false
	j.offer = moffer{id: id, session: session, open: true, ends: m.now.Add(d), attempts: j.offer.attempts + 1}
}
