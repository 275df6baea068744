package daemon

import (
	"context"

	"pushrelay/wire"
)

// phase is how far a grant has come; it only grows.
type phase uint8

const (
	offered  phase = iota // claimed, the accept isn't sent
	awaiting              // the accept is sent, the payload isn't here
	running               // the payload is here; this happens once
	finished              // there is a result, not answered yet
)

// work is one grant. Its fields are guarded by Daemon.mu; grant, stub and signed don't change.
type work struct {
	grant wire.Grant
	stub  wire.Stub // of a result that was found on disk only Site and DeadlineAt
	bytes int       // in a hello
	// signed is the control plane's grant; nil: none is asked for.
	signed *wire.SignedGrant

	phase    phase
	stop     context.CancelCauseFunc // set while running
	canceled bool                    // by the site
	result   *record                 // set when finished
	sender   *link                   // whose goroutine reports it; nil when none does
	cuts     int                     // sendings that ended with their session
}

// jobKey names a job across sites: two of them may choose one id.
type jobKey struct{ site, id string }

// service is the one that the control plane picked, "" without one.
func (w *work) service() string {
	if w.signed == nil {
		return ""
	}
	return w.signed.Service
}

func (w *work) key() jobKey { return jobKey{w.stub.Site, w.stub.ID} }

// ledger holds the grants of a daemon, by grant and by job. Guarded by Daemon.mu.
type ledger struct {
	byGrant map[wire.Grant]*work
	byJob   map[jobKey]*work
	bytes   int // of all grants in a hello
}

func newLedger() ledger {
	return ledger{byGrant: map[wire.Grant]*work{}, byJob: map[jobKey]*work{}}
}

// add takes a grant in; false when it or another grant of the same job is here already.
func (l *ledger) add(w *work) bool {
	if l.byGrant[w.grant] != nil || l.byJob[w.key()] != nil {
		return false
	}
	w.bytes = grantBytes(w.grant)
	l.byGrant[w.grant] = w
	l.byJob[w.key()] = w
	l.bytes += w.bytes
	return true
}

func (l *ledger) remove(w *work) {
	if l.byGrant[w.grant] != w {
		return
	}
	delete(l.byGrant, w.grant)
	if l.byJob[w.key()] == w {
		delete(l.byJob, w.key())
	}
	l.bytes -= w.bytes
}

// busy counts the grants that take a slot: all without a result.
func (l *ledger) busy() int {
	n := 0
	for _, w := range l.byGrant {
		if w.phase != finished {
			n++
		}
	}
	return n
}

// in lists the works of one phase.
func (l *ledger) in(p phase) []*work {
	var out []*work
	for _, w := range l.byGrant {
		if w.phase == p {
			out = append(out, w)
		}
	}
	return out
}

// active lists every grant that a hello or heartbeat must name: worked on, or with a result that isn't answered.
func (l *ledger) active() []wire.Grant {
	out := make([]wire.Grant, 0, len(l.byGrant))
	for g, w := range l.byGrant {
		if w.phase != offered {
			out = append(out, g)
		}
	}
	return out
}
