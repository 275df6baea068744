package daemon

import (
	"context"
	"errors"

	"pushrelay/session"
	"pushrelay/session/internal/ask"
	"pushrelay/wire"
)

// claimed takes what it can of an offer and gives the rest back.
func (d *Daemon) claimed(l *link, frame []byte) error {
	f, err := wire.Decode[wire.Claimed](frame)
	if err != nil {
		return err
	}
	if len(f.Jobs) > wire.MaxList {
		return errors.New("daemon: too many jobs are offered at once")
	}
	back := map[string][]wire.Grant{}
	unread := 0
	for _, raw := range f.Jobs {
		job, err := wire.ParseClaimed(d.cfg.Dialect, raw)
		if err != nil || job.Lease.RunnerID != d.cfg.RunnerID {
			unread++
			if g, ok := looseGrant(raw); ok {
				back[wire.ReleaseRefused] = append(back[wire.ReleaseRefused], g)
			}
			continue
		}
		job.Stub.Raw = nil // not needed any more
		g := wire.Grant{JobID: job.Stub.ID, LeaseID: job.Lease.ID}
		if reason := d.offer(l, g, &job); reason != "" {
			back[reason] = append(back[reason], g)
		}
	}
	if unread > 0 {
		d.log.Warn().Int("jobs", unread).Msg("offered jobs can't be read or are another runner's; they were refused")
	}
	select {
	case l.kick <- struct{}{}:
	default:
	}
	for reason, grants := range back {
		d.releaseSoon(l, grants, reason)
	}
	return nil
}

// looseGrant finds the grant of a job whose stub this version can't read, so that it can be given back at once.
func looseGrant(raw []byte) (wire.Grant, bool) {
	f, err := wire.Decode[struct {
		ID    string          `json:"id"`
		Lease wire.ClaimLease `json:"lease"`
	}](raw)
	g := wire.Grant{JobID: f.ID, LeaseID: f.Lease.ID}
	return g, err == nil && wire.CheckID(g.JobID) == nil && wire.CheckID(g.LeaseID) == nil
}

// offer takes one job in, or answers why it is given back; "" also for a copy, which needs no answer.
func (d *Daemon) offer(l *link, g wire.Grant, job *wire.ClaimedJob) (reason string) {
	if d.history.has(g) || d.holds(g) {
		return ""
	}
	if reason, err := d.admit(job); err != nil {
		d.grantLog(g).Str("why", err.Error()).Str("release", reason).Msg("an offered job may not run here")
		return reason
	}
	w := &work{grant: g, stub: *job.Stub}
	if d.cfg.ControlPlane != nil {
		w.signed = job.Grant
	}
	d.mu.Lock()
	reason = d.judge(l, w)
	fresh := reason == "" && d.ledger.byGrant[g] == nil
	if fresh && !d.ledger.add(w) {
		fresh, reason = false, wire.ReleaseBackendDown // another grant of the job is still at work here
	}
	if fresh {
		l.pending = append(l.pending, w)
	}
	d.mu.Unlock()
	if fresh {
		d.event(EventOffered, g, w.stub.Kind, "")
	}
	return reason
}

func (d *Daemon) holds(g wire.Grant) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ledger.byGrant[g] != nil
}

// judge answers why a job can't be taken now, or "". mu is held.
func (d *Daemon) judge(l *link, w *work) string {
	switch {
	case d.link != l || d.stopping:
		return wire.ReleaseShutdown
	case d.paused:
		return wire.ReleasePause
	case d.sites.refused[w.stub.Site] || !d.runs(w.stub.Kind):
		return wire.ReleaseRefused
	case !d.sites.serves(w.stub.Site): // not yet, or not any more: no reason never to run it
		return wire.ReleaseBackendDown
	case d.ledger.byGrant[w.grant] != nil:
		return ""
	case d.ledger.busy() >= d.cfg.Slots, d.ledger.bytes+grantBytes(w.grant) > d.budget:
		return wire.ReleaseBackendDown // a hello couldn't name more grants, or there is no slot
	}
	return ""
}

func (d *Daemon) runs(kind string) bool {
	_, ok := d.service(kind, "")
	return ok
}

// acceptor sends one accept for all that arrived together. It doesn't wait for answers: those may take longer than the
// time that the next offer has.
func (d *Daemon) acceptor(l *link) {
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-l.kick:
		}
		for {
			batch := d.nextBatch(l)
			if len(batch) == 0 {
				break
			}
			d.work.Go(func() { d.accept(l, batch) })
		}
	}
}

// nextBatch takes offers that wait; they stay offered until their grants are burnt.
func (d *Daemon) nextBatch(l *link) []*work {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := min(len(l.pending), wire.MaxList)
	batch := make([]*work, 0, n)
	for _, w := range l.pending[:n] {
		if w.phase == offered && d.ledger.byGrant[w.grant] == w {
			batch = append(batch, w)
		}
	}
	l.pending = l.pending[n:]
	if len(batch) == 0 && len(l.pending) == 0 {
		l.pending = nil
	}
	return batch
}

// taken marks offers that are about to be accepted, and answers their grants. When their session is over they are forgotten:
// the relay gives them back by itself.
func (d *Daemon) taken(l *link, batch []*work) []wire.Grant {
	d.mu.Lock()
	defer d.mu.Unlock()
	grants := make([]wire.Grant, 0, len(batch))
	for _, w := range batch {
		switch {
		case w.phase != offered || d.ledger.byGrant[w.grant] != w: // gone meanwhile
		case d.link != l:
			d.ledger.remove(w)
		default:
			w.phase = awaiting // from here on the relay may know of it
			grants = append(grants, w.grant)
		}
	}
	return grants
}

// accept tells the relay which jobs are taken. Without an answer they are kept: the next hello names them, and the relay
// says which of them are lost.
func (d *Daemon) accept(l *link, batch []*work) {
	grants := d.taken(l, d.burn(l, batch))
	if len(grants) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(l.ctx, acceptWithin)
	defer cancel()
	reply, err := ask.Request[wire.AcceptReply](ctx, l.conn, maxTries, func(dst []byte, id string) []byte {
		return wire.AppendGrants(dst, wire.TypeAccept, id, grants)
	})
	switch {
	case err == nil:
		for _, g := range grants {
			d.event(EventAccepted, g, "", "")
		}
		d.lose(reply.Lost, wire.LostUnaccepted)
	case ended(err), ask.Passing(err), errors.Is(err, ask.ErrGarbled):
		d.log.Warn().Str("error", ask.Saying(err)).Int("jobs", len(grants)).Msg("an accept wasn't answered; the relay says later what became of it")
	default:
		d.log.Warn().Str("error", ask.Saying(err)).Int("jobs", len(grants)).Msg("the relay refused an accept; its jobs are dropped")
		d.lose(grants, wire.LostUnaccepted)
	}
}

// releaseSoon gives grants back from a goroutine of its own; none is fine.
func (d *Daemon) releaseSoon(l *link, grants []wire.Grant, reason string) {
	if l == nil || len(grants) == 0 {
		return
	}
	d.work.Go(func() { d.release(l.ctx, l, grants, reason) })
}

// release gives grants back. When it isn't answered they go back with the next hello, which doesn't name them.
func (d *Daemon) release(ctx context.Context, l *link, grants []wire.Grant, reason string) {
	for batch := range batches(grants) {
		_, err := ask.Request[wire.ReleaseReply](ctx, l.conn, maxTries, func(dst []byte, id string) []byte {
			return wire.AppendRelease(dst, id, batch, reason)
		})
		if err != nil && !ended(err) {
			d.log.Warn().Str("error", ask.Saying(err)).Int("jobs", len(batch)).Msg("jobs couldn't be given back; they go back when their leases end")
		}
		for _, g := range batch {
			d.event(EventReleased, g, "", reason)
		}
	}
}

func batches(grants []wire.Grant) func(yield func([]wire.Grant) bool) {
	return func(yield func([]wire.Grant) bool) {
		for len(grants) > 0 {
			n := min(len(grants), wire.MaxList)
			if !yield(grants[:n]) {
				return
			}
			grants = grants[n:]
		}
	}
}

// ended reports that there is no answer because the session, or our patience, ended.
func ended(err error) bool {
	return errors.Is(err, session.ErrEnded) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
