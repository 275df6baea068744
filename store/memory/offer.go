package memory

import (
	"time"

	"pushrelay/store"
)

// offer is what a record knows of its offers to its site's sessions. The record's state says which kind it is.
type offer struct {
	kind    store.OfferKind // 0: nothing awaits the site
	key     uint64          // place on the shelf while not on offer
	attempt int             // offers so far
	who     *audience       // on offer to; nil: nobody, or reserved by a sealing that no session was asked for
	counted bool            // among the open offers of who; false once answered by a sealing
	bytes   int64
	due     due // end of the offer, in the shelf's heap
}

// onOffer reports whether the entry isn't to be offered just now.
func (o *offer) onOffer() bool { return o.due.pos != 0 }

// shelf is what of one kind awaits a site: not on offer, by key; on offer, by end.
type shelf struct {
	free ordered
	open dues
}

// audience is a session of a site that something is or was on offer to. It lives as long as something is.
type audience struct {
	id   string
	site *site
	open [3]crowd
}

// crowd is the open offers of one kind to one session.
type crowd struct {
	jobs  chain // answered by a sealing included
	n     int   // those that count
	bytes int64
}

// again is set in the keys of entries that were offered before: they come after those that never were.
const again = 1 << 63

// shelve lets a record await its site.
func (s *site) shelve(m *Machine, j *job, kind store.OfferKind) {
	o := &j.offer
	o.kind, o.attempt, o.who, o.counted = kind, 0, nil, false
	o.bytes = 0
	if kind == store.OfferResults {
		o.bytes = j.Result.size()
	}
	o.key = m.nextStamp()
	s.shelves[kind-1].free.insert(o.key, j)
}

// unshelve lets it await nothing any more; an open offer ends.
func (s *site) unshelve(m *Machine, j *job) {
	o := &j.offer
	if o.onOffer() {
		s.close(m, j)
	} else {
		s.shelves[o.kind-1].free.remove(o.key)
	}
	o.kind = 0
}

// audience answers the session's, made when it has none yet.
func (s *site) audience(id string) *audience {
	a := s.sessions[id]
	if a == nil {
		a = &audience{id: id, site: s}
		if s.sessions == nil {
			s.sessions = make(map[string]*audience, 1)
		}
		s.sessions[id] = a
	}
	return a
}

// open puts an entry on offer to a session.
func (a *audience) take(j *job, ends int64) {
	o := &j.offer
	sh := &a.site.shelves[o.kind-1]
	sh.free.remove(o.key)
	sh.open.set(&o.due, ends)
	o.attempt++
	o.who, o.counted = a, true
	c := &a.open[o.kind-1]
	c.jobs.push(j, openChain)
	c.n++
	c.bytes += o.bytes
}

// uncount ends an offer as far as the session's limits go.
func (o *offer) uncount() {
	if o.counted {
		c := &o.who.open[o.kind-1]
		c.n--
		c.bytes -= o.bytes
		o.counted = false
	}
}

// close ends an offer. The entry stands nowhere then.
func (s *site) close(m *Machine, j *job) {
	o := &j.offer
	s.shelves[o.kind-1].open.remove(&o.due)
	if a := o.who; a != nil {
		o.uncount()
		a.open[o.kind-1].jobs.remove(j, openChain)
		o.who = nil
		if a.open[0].jobs.n+a.open[1].jobs.n+a.open[2].jobs.n == 0 {
			delete(s.sessions, a.id)
		}
	}
}

// reopen ends an offer and puts the entry back on the shelf.
func (s *site) reopen(m *Machine, j *job) {
	s.close(m, j)
	o := &j.offer
	o.key |= again
	s.shelves[o.kind-1].free.insert(o.key, j)
}

// reserve leaves a seal that is being made with whom it is on offer to, until its window is over.
func (s *site) reserve(j *job) {
	o := &j.offer
	if o.onOffer() {
		o.uncount()
	} else {
		s.shelves[o.kind-1].free.remove(o.key)
	}
	s.shelves[o.kind-1].open.set(&o.due, j.Window)
}

// endOffers ends what is on offer to a session.
func (m *Machine) endOffers(site, id string) {
	s := m.sites[site]
	if s == nil || s.sessions[id] == nil {
		return
	}
	a := s.sessions[id]
	for k := range a.open {
		for j := a.open[k].jobs.head; j != nil; j = a.open[k].jobs.head {
			m.touchOffer(j)
			s.reopen(m, j)
		}
	}
}

// Offer is SiteStore's. Offers whose time is over end here first, whether a sweep ran or not.
func (m *Machine) Offer(site, session string, kind store.OfferKind, most int, bytes int64, span time.Duration) []store.Offered {
	s := m.sites[site]
	if s == nil || kind < store.OfferSeals || kind > store.OfferNotices {
		return nil
	}
	sh := &s.shelves[kind-1]
	for d := sh.open.top(); d != nil && d.at <= m.now; d = sh.open.top() {
		s.reopen(m, d.j)
	}
	if sh.free.n == 0 || most <= 0 {
		return nil
	}
	a := s.sessions[session]
	if a == nil {
		a = &audience{id: session, site: s}
	}
	c := &a.open[kind-1]
	var out []store.Offered
	for j := sh.free.first(); j != nil && c.n < most; j = sh.free.first() {
		if c.n > 0 && c.bytes+j.offer.bytes > bytes {
			break
		}
		a.take(j, m.now+int64(offerSpan(span, kind, j.offer.attempt)))
		out = append(out, j.offered())
	}
	if len(out) > 0 && s.sessions[session] == nil {
		if s.sessions == nil {
			s.sessions = make(map[string]*audience, 1)
		}
		s.sessions[session] = a
	}
	return out
}

// offerSpan answers how long an offer lasts that attempt others preceded.
func offerSpan(span time.Duration, kind store.OfferKind, attempt int) time.Duration {
	if kind == store.OfferSeals {
		return span
	}
	for ; attempt > 0 && span < store.MaxOffer; attempt-- {
		span *= 2
	}
	return min(span, store.MaxOffer)
}

// offered answers what is said of the entry.
func (j *job) offered() store.Offered {
	o := store.Offered{
		Grant: j.grant(), Owner: j.Stub.Owner, Attempt: j.offer.attempt, OfferEnds: moment(j.offer.due.at),
	}
	if j.Dropped != "" {
		o.Why = j.Dropped
		return o
	}
	o.Runner, o.RunnerOwner, o.Device, o.LeaseEnds = j.Runner, j.Owner, j.Device, moment(j.Lapse)
	o.Identity = j.identity()
	if j.State == store.Done {
		o.Disposition, o.Bytes = j.Disposition, j.offer.bytes
	} else {
		o.WindowEnds = moment(j.Window)
	}
	return o
}
