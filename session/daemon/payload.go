package daemon

import (
	"context"
	"errors"
	"time"

	"pushrelay/session/internal/ask"
	"pushrelay/wire"
	"pushrelay/wire/seal"
)

// Why a payload isn't run.
var (
	errSender    = errors.New("daemon: the payload isn't from the stub's site")
	errDirection = errors.New("daemon: the envelope isn't a payload")
)

// payload takes a pushed payload; a copy, or one for a grant that isn't held, is dropped.
func (d *Daemon) payload(l *link, frame []byte) error {
	f, err := wire.Decode[wire.Payload](frame)
	if err != nil {
		return err
	}
	d.begin(l, wire.Grant{JobID: f.JobID, LeaseID: f.LeaseID}, f.Envelope)
	return nil
}

// begin starts a grant's work, once: whatever brings its payload later finds it past awaiting.
func (d *Daemon) begin(l *link, g wire.Grant, envelope []byte) {
	if d.history.has(g) {
		return
	}
	d.mu.Lock()
	w := d.ledger.byGrant[g]
	if w == nil || w.phase != awaiting {
		d.mu.Unlock()
		return
	}
	w.phase = running
	ctx, stop := context.WithCancelCause(d.jobs)
	w.stop = stop
	view := d.sites
	d.mu.Unlock()
	d.work.Go(func() {
		defer stop(nil)
		d.perform(ctx, l, w, view, envelope)
	})
}

// opened is a payload that verified.
type opened struct {
	prompt Prompt
	sender wire.PublicIdentity
	// deadlineAt is the earlier of the stub's, which the relay could change, and the one that the site signed. Sites that
	// poll sign a later one.
	deadlineAt int64
}

// open verifies and opens a payload against its stub. The session's own errors don't quote what a peer wrote.
func (d *Daemon) open(w *work, view sites, raw []byte) (opened, error) {
	e, err := wire.ParseEnvelope(raw)
	if err != nil {
		return opened{}, err
	}
	if e.Direction != wire.DirectionPayload {
		return opened{}, errDirection
	}
	sender, ok := view.sender(w.stub.Site, e.SenderKeyID)
	if !ok {
		return opened{}, errSender
	}
	plain, err := seal.Open(d.cfg.Keys, sender, seal.Expected{JobID: w.grant.JobID, Direction: wire.DirectionPayload}, e)
	if err != nil {
		return opened{}, err
	}
	prompt, err := readPrompt(w.stub.Kind, plain)
	return opened{prompt: prompt, sender: sender, deadlineAt: min(w.stub.DeadlineAt, e.DeadlineAt)}, err
}

// Kinds whose payloads have a shape; others are handed on as they are.
const (
	KindGenerate = "llm.generate" // a prompt
	KindChat     = "llm.chat"     // a list of messages
)

func readPrompt(kind string, plain []byte) (Prompt, error) {
	p := Prompt{Raw: plain}
	switch kind {
	case KindGenerate:
		g, err := seal.ParseGenerate(plain)
		p.Text, p.System = g.Prompt, g.System
		return p, err
	case KindChat:
		c, err := seal.ParseChat(plain)
		p.System = c.System
		for _, m := range c.Messages {
			p.Messages = append(p.Messages, Message(m))
		}
		return p, err
	}
	return p, nil
}

// serverNow is the relay's time by its last welcome and the monotonic clock: a wrong or moved wall clock doesn't matter.
func (l *link) serverNow() time.Time { return l.serverTime.Add(time.Since(l.at)) }

// resume goes on after a welcome: finished results first, then the payloads of what was accepted.
func (d *Daemon) resume(l *link, waiting []*work) {
	first := d.sendAll(l)
	timer := time.NewTimer(resendFirst)
	defer timer.Stop()
	for _, answered := range first {
		select {
		case <-answered:
			continue
		case <-timer.C: // a slow upload must not cost what waits for its payload
		case <-l.ctx.Done():
			return
		}
		break
	}
	for _, w := range waiting {
		d.work.Go(func() { d.fetch(l, w) })
	}
}

// fetch asks for a payload again. Not-ready means that it will be pushed; a grant that is gone is dropped.
func (d *Daemon) fetch(l *link, w *work) {
	g := w.grant
	if !l.take() {
		return
	}
	defer l.leave()
	for try := 1; d.awaits(w); try++ {
		raw, err := l.conn.Request(l.ctx, func(dst []byte, id string) []byte { return wire.AppendFetch(dst, id, g) })
		if err == nil {
			var reply wire.FetchReply
			if reply, err = ask.Read[wire.FetchReply](raw); err == nil {
				d.begin(l, g, reply.Envelope)
				return
			}
			d.log.Warn().Str("error", ask.Saying(err)).Msg("the answer to a fetch can't be read")
			return
		}
		var refused *wire.Error
		switch {
		case ended(err) || !errors.As(err, &refused) || refused.Code == wire.CodeNotReady:
			return
		case !ask.Passing(err):
			d.unfetched(l, w, string(refused.Code))
			return
		}
		if ask.Sleep(l.ctx, ask.Pause(try, err)) != nil {
			return
		}
	}
}

func (d *Daemon) awaits(w *work) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ledger.byGrant[w.grant] == w && w.phase == awaiting
}

// unfetched drops a grant whose payload is not to be had, unless it came by a push meanwhile. The release costs nothing
// when the grant is gone, and frees a slot at once when only the payload is withheld, as for cancelled jobs.
func (d *Daemon) unfetched(l *link, w *work, code string) {
	d.mu.Lock()
	waits := d.ledger.byGrant[w.grant] == w && w.phase == awaiting
	if waits {
		d.ledger.remove(w)
		d.touch()
	}
	d.mu.Unlock()
	if !waits {
		return
	}
	d.grantLog(w.grant).Str("code", ask.Printable(code)).Msg("the payload is not to be had; the grant is dropped")
	d.event(EventLost, w.grant, w.stub.Kind, code)
	d.releaseSoon(l, []wire.Grant{w.grant}, wire.ReleaseRefused)
}

// take waits for a place among the transfers of the session; false when the session ended.
func (l *link) take() bool {
	select {
	case l.transfers <- struct{}{}:
		return true
	case <-l.ctx.Done():
		return false
	}
}

func (l *link) leave() { <-l.transfers }
