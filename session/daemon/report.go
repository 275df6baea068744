package daemon

import (
	"errors"
	"time"

	"pushrelay/session/internal/ask"
	"pushrelay/wire"
	"pushrelay/wire/seal"
)

// sendAll starts to report every result that waits; each channel is closed when the first try was answered or failed.
func (d *Daemon) sendAll(l *link) []<-chan struct{} {
	d.mu.Lock()
	waiting := d.ledger.in(finished)
	d.mu.Unlock()
	var first []<-chan struct{}
	for _, w := range waiting {
		first = append(first, d.sendSoon(l, w))
	}
	return first
}

// sendSoon reports a result on this session, from a goroutine of its own; a second one for the same session ends at once.
func (d *Daemon) sendSoon(l *link, w *work) <-chan struct{} {
	tried := make(chan struct{})
	d.mu.Lock()
	taken := w.sender == l || w.phase != finished
	if !taken {
		w.sender = l
	}
	d.mu.Unlock()
	if taken {
		close(tried)
		return tried
	}
	d.work.Go(func() { d.send(l, w, tried) })
	return tried
}

// send reports a result until it is answered or the session ends; the next session begins again.
func (d *Daemon) send(l *link, w *work, tried chan<- struct{}) {
	first := func() {
		if tried != nil {
			close(tried)
			tried = nil
		}
	}
	defer first()
	for try := 1; ; try++ {
		if !d.certain(l, w) {
			return
		}
		answer, err := d.sendOnce(l, w)
		first()
		switch {
		case err == nil:
			d.settle(w, answer)
			return
		case ended(err):
			d.cut(w)
			return
		case settled(err):
			d.settle(w, string(wire.AsError(err).Code))
			return
		case hopeless(err) && !d.replace(w, "result-refused", "the relay refuses the answer as it is"):
			d.settle(w, "refused")
			return
		}
		d.grantLog(w.grant).Str("error", ask.Saying(err)).Msg("a result wasn't taken; it is kept and sent again")
		if ask.Sleep(l.ctx, ask.Pause(try, err)) != nil {
			return
		}
	}
}

// certain asks the relay for its word first when the lease may be over; false when there is nothing left to report.
func (d *Daemon) certain(l *link, w *work) bool {
	if d.doubtful(l) {
		if err := d.beat(l); err != nil && ended(err) && l.ctx.Err() != nil {
			return false
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return w.sender == l && d.ledger.byGrant[w.grant] == w
}

func (d *Daemon) sendOnce(l *link, w *work) (string, error) {
	if !l.take() {
		return "", l.ctx.Err()
	}
	defer l.leave()
	d.mu.Lock()
	rec := w.result
	d.mu.Unlock()
	envelope, err := d.shelf.envelope(rec)
	if err != nil {
		return d.unreadable(w, err)
	}
	raw, err := l.conn.RequestBulk(l.ctx, func(id string) [][]byte {
		return [][]byte{wire.AppendResultHead(nil, id, w.grant, rec.Disposition), envelope, wire.AppendTail(nil)}
	})
	if err != nil {
		return "", err
	}
	reply, err := ask.Read[wire.ResultReply](raw)
	switch {
	case err != nil:
		return "", err
	case reply.Accepted:
		return "accepted", nil
	case reply.Duplicate:
		return "duplicate", nil
	}
	return "not accepted", nil
}

// unreadable handles a kept result that the disk doesn't give back: the site is told an error rather than nothing.
func (d *Daemon) unreadable(w *work, err error) (string, error) {
	d.grantLog(w.grant).Str("error", ask.Saying(err)).Msg("a kept result can't be read; an error is reported in its place")
	if d.replace(w, "result-lost", "the device finished the job and then lost the answer; try again") {
		return "", errReplaced
	}
	return "unreadable", nil
}

var errReplaced = errors.New("daemon: an error takes the result's place")

// settled reports a refusal that ends a result: the relay has no use for it.
func settled(err error) bool {
	var e *wire.Error
	if !errors.As(err, &e) {
		return false
	}
	return e.Code == wire.CodeTooLate || e.Code == wire.CodeNotFound || e.Code == wire.CodeForbidden
}

// hopeless reports a refusal that the same result would get again.
func hopeless(err error) bool {
	var e *wire.Error
	return errors.As(err, &e) && e.Code == wire.CodeBadRequest
}

// settle forgets a result that was answered.
func (d *Daemon) settle(w *work, answer string) {
	d.mu.Lock()
	d.ledger.remove(w)
	d.touch()
	d.mu.Unlock()
	d.forget(w)
	d.grantLog(w.grant).Str("answer", ask.Printable(answer)).Msg("the result is reported")
	d.event(EventReported, w.grant, w.stub.Kind, answer)
}

// forget removes what the disk has of a grant that is over.
func (d *Daemon) forget(w *work) {
	if err := d.shelf.drop(w.grant); err != nil {
		d.log.Error().Str("error", ask.Saying(err)).Msg("a result that is over can't be removed; the relay will be asked about it again")
	}
}

// cut counts a sending that ended with its session. A large result that no session carries fails visibly in the end.
func (d *Daemon) cut(w *work) {
	d.mu.Lock()
	w.cuts++
	hopeless := w.cuts >= maxCuts && w.result.size > largeResult
	d.mu.Unlock()
	if hopeless {
		d.replace(w, "result-undeliverable", "the connection broke too often while the answer was sent; ask for a shorter one")
	}
}

// replace puts an error in the place of a result; false when it was no success, so that there is nothing shorter to say.
func (d *Daemon) replace(w *work, code, message string) bool {
	d.mu.Lock()
	rec, stub := w.result, w.stub
	d.mu.Unlock()
	if rec.size <= minimalResult && rec.Disposition != wire.DispositionOK {
		return false
	}
	instead, envelope, err := d.sealed(w.grant, stub, rec.SealedTo, seal.Result{
		Outcome: seal.Failed(code, message, true), Ran: seal.Ran{Model: unknownWhat, BackendClass: "process"},
	})
	if err != nil {
		d.log.Error().Str("error", ask.Saying(err)).Msg("an error can't be sealed in place of a result")
		return false
	}
	d.grantLog(w.grant).Str("code", code).Msg("an error takes the place of a result")
	return d.keep(w, instead, envelope)
}

// minimalResult is the size up to which an error isn't worth replacing by another one, bytes.
const minimalResult = 16 << 10

// doubtful reports that the lease may be over: no answer within it, by either clock. Wall time passes while a machine
// sleeps, monotonic time while somebody sets the clock.
func (d *Daemon) doubtful(l *link) bool {
	wall := d.cfg.wall().Round(0)
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Since(l.confirmed) > l.lease || wall.Sub(l.wall) > l.lease
}
