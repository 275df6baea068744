package hub

import (
	"context"
	"time"

	"pushrelay/store"
	"pushrelay/wire"
)

// watch turns the store's events into marks. A stream that breaks is opened again, and everything is read again.
func (h *Hub) watch(ctx context.Context, w store.Watcher) {
	h.resync(ctx, true)
	own := false
	for {
		events, err := w.Wait(ctx)
		if ctx.Err() != nil {
			break
		}
		if err == nil {
			for i := range events {
				h.dispatch(ctx, &events[i])
			}
			continue
		}
		h.storeFailed(ctx, "watch", err)
		if !pause(ctx, time.Second) {
			break
		}
		if own {
			w.Close()
		}
		w, own = h.store.Watch(store.Interest{}), true
		h.resync(ctx, true)
	}
	if own {
		w.Close()
	}
}

// pause waits and reports whether ctx still stands.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// dispatch does cheap work only: it notes what has to be told and puts it in line.
func (h *Hub) dispatch(ctx context.Context, e *store.Event) {
	switch e.Type {
	case store.EventQueued:
		h.onQueued(e)
	case store.EventOffered:
		h.routes.with(h, e.Route, func(r *route) { r.offered(laneOf(&e.Queue), e.Lease) })
		if d := h.reg.daemon(e.Runner); d != nil {
			d.hold(e.Grant(), e.Site)
		}
	case store.EventAwaiting:
		h.toSite(e, store.OfferSeals)
	case store.EventReady:
		h.sealed(e)
		h.settled(e)
		h.polls.wake(e.Lease)
		if d := h.reg.daemon(e.Runner); d != nil {
			d.readied(e.Grant())
		}
	case store.EventDone:
		h.obs.Done(e.Disposition)
		h.sealed(e)
		h.polls.ended(e.Lease)
		if d := h.reg.daemon(e.Runner); d != nil {
			d.drop(e.Lease)
		}
		if s := h.reg.site(e.Site); s != nil {
			s.result()
		}
	case store.EventEnded:
		h.onEnded(e)
	case store.EventDropped:
		h.obs.Dropped(e.Why)
		delete(h.accepted, store.Key{Site: e.Site, Job: e.Job})
		h.toSite(e, store.OfferNotices)
	case store.EventCancel:
		h.settled(e)
		h.polls.wake(e.Lease)
		if d := h.reg.daemon(e.Runner); d != nil {
			d.cancelled(e.Grant())
		}
	case store.EventCollected:
		h.settled(e)
	case store.EventAttached:
		h.onAttached(e)
	case store.EventDetached:
		if s := h.reg.site(e.Party.ID); s != nil && e.Party.Role == store.SiteRole {
			s.unsure()
		}
	case store.EventResync:
		h.obs.Count(CountResyncs, 1)
		clear(h.accepted)
		h.resync(ctx, true)
	}
}

func (h *Hub) onQueued(e *store.Event) {
	key := store.Key{Site: e.Site, Job: e.Job}
	r := h.routes.with(h, e.Route, func(r *route) { r.queued(laneOf(&e.Queue)) })
	if e.Why != "" && h.accepted[key] {
		delete(h.accepted, key)
		if s := h.reg.site(e.Site); s != nil {
			s.moved(wire.Notice{JobID: e.Job, Why: string(e.Why)})
		}
	}
	if h.set.Shared && e.Why == "" && !h.own.take(key) {
		r.later()
		return
	}
	r.mark()
}

func (h *Hub) onEnded(e *store.Event) {
	h.obs.Ended(e.Why)
	h.sealed(e)
	h.settled(e)
	h.polls.ended(e.Lease)
	if e.Accepted {
		h.accepted[store.Key{Site: e.Site, Job: e.Job}] = true
	}
	if d := h.reg.daemon(e.Runner); d != nil {
		d.finished(e)
	}
}

func (h *Hub) sealed(e *store.Event) {
	if r := h.routes.find(e.Route); r != nil {
		r.sealed(e.Lease)
	}
}

// settled closes an offer to a session of the site that nobody has to answer any more.
func (h *Hub) settled(e *store.Event) {
	if s := h.reg.site(e.Site); s != nil {
		s.settled(e.Lease)
	}
}

func (h *Hub) toSite(e *store.Event, kind store.OfferKind) {
	if s := h.reg.site(e.Site); s != nil {
		s.wants(kind)
	}
}

// onAttached ends the session of a runner that is newer elsewhere, and wakes what waited for a site.
func (h *Hub) onAttached(e *store.Event) {
	if e.Party.Role == store.SiteRole {
		if s := h.reg.site(e.Party.ID); s != nil && e.Session != h.pollSession && !s.has(e.Session) {
			s.arrived()
		}
		return
	}
	d := h.reg.daemon(e.Party.ID)
	if d != nil && d.number.Load() < e.Number && d.link.ID() != e.Session {
		h.superseded(d)
	}
}
