package hub

import (
	"context"
	"time"

	"pushrelay/session"
	"pushrelay/store"
	"pushrelay/wire"
)

// PollEnqueue publishes one job.
func (h *Hub) PollEnqueue(ctx context.Context, c session.Call, r *wire.EnqueueRequest) (*wire.EnqueueResponse, error) {
	known, err := h.pollSite(h.proj.Current(), c)
	if err != nil {
		return nil, err
	}
	if !known.Signs(r.Stub.Site, h.now()) {
		return nil, errStubKey()
	}
	stubs := []wire.Stub{r.Stub}
	h.own.add(h.set.Shared, known.ID, stubs)
	out, err := h.store.Enqueue(ctx, known.ID, c.Dialect, stubs)
	if err == nil {
		err = out[0].Err
	}
	if err != nil {
		return nil, h.refusal(ctx, "enqueue", err)
	}
	return &wire.EnqueueResponse{JobID: out[0].JobID, State: out[0].State.String()}, nil
}

func errStubKey() *wire.Error {
	return wire.Errorf(wire.CodeForbidden, "stub.site must be the key id of a key that signs for this site now")
}

// PollPayload seals a job for the device that the envelope names.
func (h *Hub) PollPayload(ctx context.Context, c session.Call, r *wire.PayloadRequest) (*wire.StateResponse, error) {
	known, err := h.pollSite(h.proj.Current(), c)
	if err != nil {
		return nil, err
	}
	if err := h.checkPayload(known, r.Envelope); err != nil {
		return nil, err
	}
	state, err := h.store.Seal(ctx, known.ID, wire.Grant{JobID: r.JobID}, r.Envelope)
	if err != nil {
		return nil, h.refusal(ctx, "seal", err)
	}
	return &wire.StateResponse{State: state.String()}, nil
}

// PollCancel asks to stop one job.
func (h *Hub) PollCancel(ctx context.Context, c session.Call, r *wire.CancelRequest) (*wire.CancelResponse, error) {
	known, err := h.pollSite(h.proj.Current(), c)
	if err != nil {
		return nil, err
	}
	done, err := h.store.Cancel(ctx, known.ID, []string{r.JobID})
	if err != nil {
		return nil, h.refusal(ctx, "cancel", err)
	}
	return &wire.CancelResponse{Cancelled: done[0]}, nil
}

const (
	pollResultsFor = 5 * time.Second // doubling with each answer
	pollBatch      = 64 << 10        // bytes of results that are written together
	pollAnswers    = 6               // of a result, the last one 155 s behind the first: then it may be taken as collected
)

// PollResults answers with finished jobs, those first that no poll was answered with yet. They come again, as there is
// nothing by which a site that polls could say that it has them; that it asks again may be another process of it, or one
// that failed. Only where they would keep new jobs out, those that were answered again and again make room.
func (h *Hub) PollResults(ctx context.Context, c session.Call) (session.Answer, error) {
	known, err := h.pollSite(h.proj.Current(), c)
	if err != nil {
		return session.Answer{}, err
	}
	s := h.reg.ensureSite(h, known.ID)
	s.pollBegins(ctx, 0)
	defer s.pollEnds()
	s.setNews(false) // before they are asked for, so that what comes meanwhile is told
	id := h.pollOffer()
	got, err := h.store.Offer(ctx, s.id, id, store.OfferResults, h.set.OfferEntries, h.set.OfferBytes, pollResultsFor)
	if err != nil {
		return session.Answer{}, h.refusal(ctx, "offer", err)
	}
	if len(got) == 0 {
		return session.Answer{Body: [][]byte{wire.AppendResultsTail(wire.AppendResultsResponseHead(nil))}}, nil
	}
	h.obs.Count(CountOffers, len(got))
	w := &resultsWriter{hub: h, site: s.id, left: got}
	full := len(got) >= h.set.OfferEntries || w.bytes()+wire.MaxEnvelopeBytes > h.set.OfferBytes
	return session.Answer{More: w.more, Over: func(written bool) {
		w.room.Keep(0)
		if written {
			h.makeRoom(ctx, s.id, w.often)
		} else {
			h.detach(ctx, s.party(), id)
		}
		if !written || full {
			s.setNews(true)
			s.wants(store.OfferResults)
		}
	}}, nil
}

// makeRoom takes results as collected that a site that polls was answered with often, once it has half of what it may.
func (h *Hub) makeRoom(ctx context.Context, site string, often []wire.Grant) {
	if len(often) == 0 {
		return
	}
	ctx, cancel := afterwards(ctx)
	defer cancel()
	kept, err := h.store.SiteStats(ctx, site)
	if err != nil || len(kept) != 1 {
		h.storeFailed(ctx, "site stats", err)
		return
	}
	if kept[0].ByState[store.Done] < h.set.JobsPerSite/2 && kept[0].Bytes < h.set.BytesPerSite/2 {
		return
	}
	if err := h.store.Collect(ctx, site, often); err != nil {
		h.storeFailed(ctx, "collect", err) // they come again
	}
}

// resultsWriter writes results one batch after the other, so that no more than one is in memory.
type resultsWriter struct {
	hub   *Hub
	site  string
	left  []store.Offered
	n     int          // results that were written
	often []wire.Grant // those of them that were answered often enough
	room  *session.Held

	began, over bool
}

func (w *resultsWriter) bytes() (n int64) {
	for i := range w.left {
		n += w.left[i].Bytes
	}
	return n
}

// more answers the next batch: small results together, a large one alone. One that can't be read is left out; it comes
// again.
func (w *resultsWriter) more(ctx context.Context) (pieces [][]byte, err error) {
	w.room.Keep(0)
	if w.over {
		return nil, nil
	}
	batch, size := 0, int64(0)
	for batch < len(w.left) && (batch == 0 || size+w.left[batch].Bytes <= pollBatch) {
		size += w.left[batch].Bytes
		batch++
	}
	if w.room, err = w.hub.hold(ctx, size); err != nil {
		return nil, err
	}
	buf := make([]byte, 0, 64+int64(batch)*2*sealJobBytes+min(size, pollBatch))
	w.over = batch == len(w.left)
	if !w.began {
		w.began = true
		buf = wire.AppendResultsResponseHead(buf)
	}
	for i := range w.left[:batch] {
		env, ok := w.read(ctx, &w.left[i], &buf)
		switch {
		case !ok:
			continue
		case len(env) <= pollBatch:
			buf = append(buf, env...)
		default:
			pieces, buf = append(pieces, buf, env), nil
		}
		buf = wire.AppendResultJobTail(buf)
	}
	w.left = w.left[batch:]
	if w.over {
		buf = wire.AppendResultsTail(buf)
	}
	return append(pieces, buf), nil
}

// read appends what stands before a result's envelope, and answers that.
func (w *resultsWriter) read(ctx context.Context, o *store.Offered, buf *[]byte) (env []byte, ok bool) {
	e, err := w.hub.store.ResultEnvelope(ctx, w.site, o.Grant)
	if err != nil {
		w.hub.storeFailed(ctx, "result envelope", err)
		return nil, false
	}
	*buf = wire.AppendResultJobHead(*buf, w.n == 0, wire.ResultJob{
		JobID: o.Grant.JobID, LeaseID: o.Grant.LeaseID, Disposition: o.Disposition,
		RunnerID: o.Runner, RunnerOwner: o.RunnerOwner, Device: o.Identity,
	})
	w.n++
	if o.Attempt >= pollAnswers {
		w.often = append(w.often, o.Grant)
	}
	w.hub.obs.Count(CountResults, 1)
	return e.Raw, true
}
