package hub

import (
	"context"
	"math"
	"slices"
	"strconv"
	"time"

	"pushrelay/hub/projection"
	"pushrelay/session"
	"pushrelay/store"
	"pushrelay/wire"
)

// pollPresence is how long a site counts as present after a poll.
const pollPresence = 5 * time.Second

// sitePolls is a site's side of polling. Guarded by the site's mu.
type sitePolls struct {
	waiting []*heldPending       // those that nothing is being offered to, in the order in which they came
	held    int                  // all that are under way
	last    time.Time            // when the last one came or ended
	told    time.Time            // until when the store has the site as present by polls
	news    bool                 // a result came that no poll was told of
	open    map[string]time.Time // ends of offers of seals to polls, by lease
}

// present reports whether polls make the site one that answers.
func (p *sitePolls) present() bool {
	return p.held > 0 || (!p.last.IsZero() && since(p.last) < pollPresence)
}

// heldPending is a pending that waits: a session of its site for one offer of seals.
type heldPending struct {
	call    session.Call
	under   *projection.Current // that the call was judged by
	session string              // that the store offers to
	done    chan struct{}

	// Guarded by the site's mu.
	leaving bool // it takes nothing more
	got     []store.Offered
	news    bool // it is told of a result
	why     *wire.Error
}

func (h *Hub) pollOffer() string {
	return h.pollSession + "-" + strconv.FormatUint(h.pollOffers.Add(1), 36)
}

// pollSite judges a polling site.
func (h *Hub) pollSite(cur *projection.Current, c session.Call) (*projection.Site, error) {
	s, ok := cur.SiteByID(c.Caller)
	if !ok || !signs(s.Keys(h.now()), c.Key) {
		return nil, errPollUnknown()
	}
	return s, nil
}

// PollPending answers with what the site has to seal. With nothing to seal it waits for up to hold, and also ends, without
// jobs, when there is a result that no poll was told of.
func (h *Hub) PollPending(ctx context.Context, c session.Call, hold time.Duration) (session.Answer, error) {
	cur := h.proj.Current()
	known, err := h.pollSite(cur, c)
	if err != nil {
		return session.Answer{}, err
	}
	s := h.reg.ensureSite(h, known.ID)
	s.pollBegins(ctx, hold)
	defer s.pollEnds()
	p := &heldPending{call: c, under: cur, session: h.pollOffer(), done: make(chan struct{})}
	s.unwant(store.OfferSeals)
	p.got, err = h.store.Offer(ctx, s.id, p.session, store.OfferSeals, wire.MaxList, math.MaxInt64, h.set.SealOfferFor)
	if err != nil {
		return session.Answer{}, h.refusal(ctx, "offer", err)
	}
	if len(p.got) == 0 && hold > 0 {
		s.await(ctx, p, hold)
	}
	if p.why != nil || ctx.Err() != nil {
		s.unoffer(ctx, p)
		if p.why == nil {
			return session.Answer{}, ctx.Err()
		}
		return session.Answer{}, p.why
	}
	return h.answerPending(ctx, s, p), nil
}

func (h *Hub) answerPending(ctx context.Context, s *site, p *heldPending) session.Answer {
	jobs := h.sealJobs(p.got)
	h.obs.Count(CountOffers, len(p.got))
	s.openPolled(p.got)
	return session.Answer{
		Body: [][]byte{wire.AppendPendingResponse(make([]byte, 0, 64+len(jobs)*2*sealJobBytes), jobs)},
		Over: func(written bool) {
			switch {
			case !written:
				s.unoffer(ctx, p)
			case len(jobs) > 0:
				h.obs.Count(CountSealRequests, len(jobs))
			}
		},
	}
}

// await waits for an offer, for news of a result, or until the time is over.
func (s *site) await(ctx context.Context, p *heldPending, hold time.Duration) {
	s.mu.Lock()
	p.news = s.polls.news
	s.polls.news = false
	if p.news || s.hub.stopped.Load() {
		s.mu.Unlock()
		return
	}
	s.polls.waiting = append(s.polls.waiting, p)
	if s.want[store.OfferSeals] { // something came since they were asked for
		s.mark()
	}
	s.mu.Unlock()
	if cur := s.hub.proj.Current(); cur != p.under {
		s.judgePolls(cur) // what judges all polls may have passed before this was one of them
	}
	t := time.NewTimer(hold)
	defer t.Stop()
	select {
	case <-p.done:
	case <-ctx.Done():
	case <-t.C:
	}
	s.leave(p)
}

// leave takes a poll out of the line, or waits for who is offering to it just now.
func (s *site) leave(p *heldPending) {
	s.mu.Lock()
	p.leaving = true
	i := slices.Index(s.polls.waiting, p)
	if i >= 0 {
		s.polls.waiting = slices.Delete(s.polls.waiting, i, i+1)
	}
	s.mu.Unlock()
	if i < 0 {
		<-p.done
	}
}

// nextPoll takes the poll that waits longest; nil when none does.
func (s *site) nextPoll() *heldPending {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.polls.waiting) == 0 {
		return nil
	}
	p := s.polls.waiting[0]
	s.polls.waiting = slices.Delete(s.polls.waiting, 0, 1)
	return p
}

// offerPolls offers seals to the polls that wait, and tells one of them when there is a result. It is part of the
// site's turn.
func (s *site) offerPolls(ctx context.Context, seals bool) {
	for seals && ctx.Err() == nil {
		p := s.nextPoll()
		if p == nil {
			break
		}
		got, err := s.hub.store.Offer(ctx, s.id, p.session, store.OfferSeals, wire.MaxList, math.MaxInt64, s.hub.set.SealOfferFor)
		if err != nil {
			s.hub.storeFailed(ctx, "offer", err)
		}
		if len(got) == 0 {
			s.comeBack(p)
			break
		}
		p.got = got
		close(p.done)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.polls.news && len(s.polls.waiting) > 0 {
		s.polls.news = false
		p := s.polls.waiting[0]
		s.polls.waiting = slices.Delete(s.polls.waiting, 0, 1)
		p.news = true
		close(p.done)
	}
}

// comeBack puts a poll at the head of the line again, to which nothing could be offered.
func (s *site) comeBack(p *heldPending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.leaving || s.hub.stopped.Load() {
		close(p.done)
		return
	}
	s.polls.waiting = slices.Insert(s.polls.waiting, 0, p)
	if s.want[store.OfferSeals] { // something came while nobody waited
		s.mark()
	}
}

// openPolled notes what is on offer to polls, so that others are told of what they leave unanswered.
func (s *site) openPolled(got []store.Offered) {
	if len(got) == 0 {
		return
	}
	ends := time.Now().Add(s.hub.set.SealOfferFor)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.polls.open == nil {
		s.polls.open = make(map[string]time.Time, len(got))
	}
	for i := range got {
		s.polls.open[got[i].Grant.LeaseID] = ends
	}
}

// expirePolls asks again for seals whose offer to a poll is over; mu is held.
func (s *site) expirePolls(now time.Time) {
	for lease, ends := range s.polls.open {
		if now.After(ends) {
			delete(s.polls.open, lease)
			s.again[store.OfferSeals] = now.Add(offersAgain)
		}
	}
}

// judgePolls ends the polls whose site or key isn't good any more.
func (s *site) judgePolls(cur *projection.Current) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.polls.waiting = slices.DeleteFunc(s.polls.waiting, func(p *heldPending) bool {
		if _, err := s.hub.pollSite(cur, p.call); err == nil {
			return false
		}
		p.why = errPollUnknown()
		close(p.done)
		return true
	})
}

// letGo answers all polls that wait with nothing.
func (s *site) letGo() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.polls.waiting {
		close(p.done)
	}
	s.polls.waiting = nil
}

// result notes that a result awaits the site. Where only polls can take it, one of them is told.
func (s *site) result() {
	s.mu.Lock()
	if len(s.sessions) == 0 {
		s.polls.news = true
	}
	s.mu.Unlock()
	s.wants(store.OfferResults)
}

// setNews says whether there is a result that no poll was told of.
func (s *site) setNews(news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.polls.news = news
}

// unwant is called before something is asked for: what is wanted afterwards came since.
func (s *site) unwant(kind store.OfferKind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.sessions) == 0 && len(s.polls.waiting) == 0 {
		s.want[kind] = false
	}
}

// unoffer gives back what a poll wasn't told, for others to be told at once.
func (s *site) unoffer(ctx context.Context, p *heldPending) {
	if p.news {
		s.setNews(true)
	}
	if len(p.got) > 0 {
		s.hub.detach(ctx, s.party(), p.session)
	}
	if p.news || len(p.got) > 0 {
		s.wants(store.OfferSeals, store.OfferResults)
	}
}

// pollBegins makes the site present, here and for other replicas, and wakes what waited for that.
func (s *site) pollBegins(ctx context.Context, hold time.Duration) {
	span := hold + pollPresence
	now := time.Now()
	s.mu.Lock()
	was := s.hereLocked()
	s.polls.held++
	s.polls.last = now
	tell := s.polls.told.Before(now.Add(span - time.Second))
	if tell {
		s.polls.told = now.Add(span)
	}
	s.mu.Unlock()
	if tell {
		if _, err := s.hub.store.Attach(ctx, s.party(), s.hub.pollSession, span); err != nil {
			s.hub.storeFailed(ctx, "attach", err)
		}
	}
	if !was {
		s.hub.routes.markWaiting(s.id)
	}
}

// shorten has other replicas know that the site stopped polling: what they were told reaches to the end of a hold.
func (s *site) shorten(ctx context.Context) {
	now := time.Now()
	s.mu.Lock()
	left := pollPresence - since(s.polls.last)
	late := s.polls.held == 0 && s.polls.told.After(now.Add(left+time.Second))
	if late {
		s.polls.told = now.Add(left)
	}
	s.mu.Unlock()
	if !late {
		return
	}
	var err error
	if left > 0 {
		_, err = s.hub.store.Attach(ctx, s.party(), s.hub.pollSession, left)
	} else {
		err = s.hub.store.Detach(ctx, s.party(), s.hub.pollSession)
	}
	if err != nil {
		s.hub.storeFailed(ctx, "attach", err)
	}
}

func (s *site) pollEnds() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.polls.held--
	s.polls.last = time.Now()
}
