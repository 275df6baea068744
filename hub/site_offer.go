package hub

import (
	"context"
	"math"
	"slices"
	"time"

	"pushrelay/session"
	"pushrelay/store"
	"pushrelay/wire"
)

// bulkBytes is how much must have arrived from a session while an offer was open for it to count as a slow upload
// and not as silence; pongs alone stay below it.
const bulkBytes = 4 << 10

// work offers what waits to the sessions in turns and pushes what the store grants.
func (s *site) work(ctx context.Context) {
	s.turn.begin()
	defer s.turn.end(s.hub.pool, s)
	s.mu.Lock()
	want, requeued := s.want, s.requeued
	s.want, s.requeued = [offerKinds]bool{}, nil
	s.mu.Unlock()
	for _, k := range []store.OfferKind{store.OfferSeals, store.OfferResults, store.OfferNotices} {
		if want[k] {
			s.offer(ctx, k)
		}
	}
	s.offerPolls(ctx, want[store.OfferSeals])
	if ss, _ := s.choose(store.OfferNotices); ss != nil && len(requeued) > 0 {
		ss.pushNotices(wire.TypeRequeued, requeued)
	}
}

// offer takes entries for one session after the other, until nothing waits or no session has room in its window.
func (s *site) offer(ctx context.Context, kind store.OfferKind) {
	for ctx.Err() == nil {
		ss, room := s.choose(kind)
		if ss == nil {
			return
		}
		most, bytes, span := s.hub.window(kind)
		got, err := s.hub.store.Offer(ctx, s.id, ss.link.ID(), kind, most, bytes, span)
		if err != nil {
			s.hub.storeFailed(ctx, "offer", err)
			return // a resync asks again
		}
		if len(got) == 0 {
			s.starve(ss, kind)
			return
		}
		s.hub.obs.Count(CountOffers, len(got))
		full := s.opened(ss, kind, got, span)
		ss.pushOffers(kind, s.still(kind, got))
		if len(got) < room && !full {
			return
		}
	}
}

// window answers how much of a kind may be on offer to one session, and for how long.
func (h *Hub) window(kind store.OfferKind) (most int, bytes int64, span time.Duration) {
	switch kind {
	case store.OfferSeals:
		return wire.MaxList, math.MaxInt64, h.set.SealOfferFor
	case store.OfferResults:
		return h.set.OfferEntries, h.set.OfferBytes, h.set.ResultOfferFor
	default:
		return h.set.OfferEntries, math.MaxInt64, h.set.ResultOfferFor
	}
}

// choose answers the next session with room in its window: among those that answer, when one does. When all windows
// are full the next answer asks again.
func (s *site) choose(kind store.OfferKind) (ss *siteSession, room int) {
	most, bytes, _ := s.hub.window(kind)
	s.mu.Lock()
	defer s.mu.Unlock()
	answering := false
	for _, o := range s.sessions {
		answering = answering || !o.silent[kind]
	}
	for range s.sessions {
		s.next++
		o := s.sessions[s.next%len(s.sessions)]
		if o.ended || (answering && o.silent[kind]) {
			continue
		}
		room := most - o.counts[kind]
		if room <= 0 || (kind == store.OfferResults && o.bytes >= bytes) {
			continue
		}
		return o, room
	}
	s.starved[kind] = len(s.sessions) > 0
	return nil, 0
}

// starve notes that an open window may be why nothing was offered.
func (s *site) starve(ss *siteSession, kind store.OfferKind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if kind == store.OfferResults && ss.bytes+wire.MaxEnvelopeBytes > s.hub.set.OfferBytes {
		s.starved[kind] = true
	}
}

// opened notes what is on offer; full means that the window's bytes may have kept more back.
func (s *site) opened(ss *siteSession, kind store.OfferKind, got []store.Offered, span time.Duration) (full bool) {
	received := ss.link.Received()
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range got {
		o := openOffer{kind: kind, bytes: got[i].Bytes, received: received, answers: ss.answers}
		o.ends = now.Add(doubled(kind, span, got[i].Attempt))
		ss.forget(got[i].Grant.LeaseID)
		ss.open[got[i].Grant.LeaseID] = o
		ss.counts[kind]++
		if kind == store.OfferResults {
			ss.bytes += o.bytes
		}
	}
	return kind == store.OfferResults && ss.bytes+wire.MaxEnvelopeBytes > s.hub.set.OfferBytes
}

// doubled is how long the store keeps an entry on offer at that attempt.
func doubled(kind store.OfferKind, span time.Duration, attempt int) time.Duration {
	if kind == store.OfferSeals {
		return span
	}
	for range min(attempt-1, 10) {
		span = min(2*span, store.MaxOffer)
	}
	return span
}

// forget closes an offer; the site's mu is held.
func (ss *siteSession) forget(leaseID string) bool {
	o, ok := ss.open[leaseID]
	if !ok {
		return false
	}
	delete(ss.open, leaseID)
	ss.counts[o.kind]--
	if o.kind == store.OfferResults {
		ss.bytes -= o.bytes
	}
	return true
}

func (ss *siteSession) pushOffers(kind store.OfferKind, got []store.Offered) {
	switch kind {
	case store.OfferSeals:
		ss.pushSealRequests(got)
	case store.OfferResults:
		ss.pushResults(got)
	case store.OfferNotices:
		notices := make([]wire.Notice, len(got))
		for i := range got {
			notices[i] = wire.Notice{JobID: got[i].Grant.JobID, LeaseID: got[i].Grant.LeaseID, Why: string(got[i].Why)}
		}
		ss.site.hub.obs.Count(CountNotices, len(notices))
		ss.pushNotices(wire.TypeNotices, notices)
	}
}

// sealJobBytes is about what a seal request says beside its ids.
const sealJobBytes = 384

func (ss *siteSession) pushSealRequests(got []store.Offered) {
	h := ss.site.hub
	for all := h.sealJobs(got); len(all) > 0; {
		n, size := 0, 64
		for n < len(all) {
			more := sealJobBytes + 2*(len(all[n].JobID)+len(all[n].RunnerID))
			if n > 0 && size+more > wire.MaxTextBytes {
				break
			}
			n, size = n+1, size+more
		}
		h.obs.Count(CountSealRequests, n)
		ss.push(wire.AppendSealRequest(make([]byte, 0, size), all[:n]))
		all = all[n:]
	}
}

// sealJobs is what a site is told of the grants that it has to seal.
func (h *Hub) sealJobs(got []store.Offered) []wire.SealJob {
	cur := h.proj.Current()
	jobs := make([]wire.SealJob, 0, len(got))
	for i := range got {
		o := &got[i]
		dev, ok := cur.DeviceByKeyID(o.Device)
		if !ok {
			h.unreadable("seal request", o.Grant)
			continue
		}
		jobs = append(jobs, wire.SealJob{
			JobID: o.Grant.JobID, LeaseID: o.Grant.LeaseID, RunnerID: o.Runner, Device: dev.Identity,
			AwaitingUntil: o.WindowEnds.UnixMilli(), LeaseExpiresAt: o.LeaseEnds.UnixMilli(),
		})
	}
	return jobs
}

func (ss *siteSession) pushNotices(t wire.FrameType, notices []wire.Notice) {
	for len(notices) > 0 {
		n, size := 0, 64
		for n < len(notices) && (n == 0 || size < wire.MaxTextBytes*3/4) {
			size += 2*(len(notices[n].JobID)+len(notices[n].LeaseID)) + 64
			n++
		}
		if frame, err := wire.Encode(wire.Notices{Type: t, Jobs: notices[:n]}); err == nil {
			ss.push(frame)
		}
		notices = notices[n:]
	}
}

// pushResults puts small results together into one text message; larger ones go alone.
func (ss *siteSession) pushResults(got []store.Offered) {
	var batch []store.Offered
	size := 64
	for _, o := range got {
		n := int(o.Bytes) + sealJobBytes + 2*(len(o.Grant.JobID)+len(o.Runner)+len(o.RunnerOwner))
		if size+n > wire.MaxTextBytes && len(batch) > 0 {
			ss.pushBatch(batch)
			batch, size = nil, 64
		}
		batch, size = append(batch, o), size+n
	}
	if len(batch) > 0 {
		ss.pushBatch(batch)
	}
}

// pushBatch notes that the batch is on its way for as long as it is.
func (ss *siteSession) pushBatch(batch []store.Offered) {
	ss.site.mu.Lock()
	for i := range batch {
		ss.moving[batch[i].Grant.LeaseID] = moving{since: time.Now()}
	}
	ss.site.mu.Unlock()
	ss.link.PushBulkThen(ss.results(batch), func() { ss.sent(batch) })
}

// sent notes that a batch has left. Its site has as long to answer as it took, so that what filled a slow link doesn't
// fill it again while the answer comes.
func (ss *siteSession) sent(batch []store.Offered) {
	now := time.Now()
	ss.site.mu.Lock()
	defer ss.site.mu.Unlock()
	for i := range batch {
		id := batch[i].Grant.LeaseID
		if m, ok := ss.moving[id]; ok {
			m.until = now.Add(min(now.Sub(m.since), ss.site.hub.set.ResultOfferFor))
			ss.moving[id] = m
		}
	}
}

// still answers what isn't on its way already: an offer that ends while its result is being sent isn't unanswered.
func (s *site) still(kind store.OfferKind, got []store.Offered) []store.Offered {
	if kind != store.OfferResults {
		return got
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(got, func(o store.Offered) bool {
		return slices.ContainsFunc(s.sessions, func(ss *siteSession) bool { return !ss.ended && ss.moves(o.Grant.LeaseID, now) })
	})
}

// moves reports whether a result is on its way to the session; the site's mu is held.
func (ss *siteSession) moves(leaseID string, now time.Time) bool {
	m, ok := ss.moving[leaseID]
	return ok && (m.until.IsZero() || now.Before(m.until))
}

// results loads a batch when its turn to be sent has come; what was collected meanwhile isn't wanted any more.
func (ss *siteSession) results(batch []store.Offered) session.Loader {
	h := ss.site.hub
	return func(ctx context.Context) ([][]byte, error) {
		pieces := make([][]byte, 0, 2*len(batch)+1)
		buf := make([]byte, 0, 64+len(batch)*(2*sealJobBytes))
		buf = wire.AppendResultsHead(buf)
		from, n := 0, 0
		for i := range batch {
			o := &batch[i]
			env, err := h.store.ResultEnvelope(ctx, ss.site.id, o.Grant)
			if err != nil {
				h.storeFailed(ctx, "result envelope", err)
				continue // it is offered again
			}
			buf = wire.AppendResultJobHead(buf, n == 0, wire.ResultJob{
				JobID: o.Grant.JobID, LeaseID: o.Grant.LeaseID, Disposition: o.Disposition,
				RunnerID: o.Runner, RunnerOwner: o.RunnerOwner, Device: o.Identity,
			})
			pieces = append(pieces, buf[from:len(buf):len(buf)], env.Raw)
			from, n = len(buf), n+1
			buf = wire.AppendResultJobTail(buf)
		}
		if n == 0 {
			return nil, nil
		}
		h.obs.Count(CountResults, n)
		buf = wire.AppendResultsTail(buf)
		return append(pieces, buf[from:]), nil
	}
}

// unreadable leaves out a record whose device this projection doesn't know: its site couldn't verify it.
func (h *Hub) unreadable(what string, g wire.Grant) {
	h.obs.Count(CountUnreadable, 1)
	h.log.Warn().Str("what", what).Str("lease", g.LeaseID).Msg("left out: its device isn't in the projection any more")
}
