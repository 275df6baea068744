package crash

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"pushrelay/session/daemon"
	"pushrelay/session/site"
)

// maxFaults is how many faults a ledger writes down; the first ones say it all.
const maxFaults = 10

// entry is what the clients know of one job. Ids are unique over both sites.
type entry struct {
	id, site, owner string
	prompt, answer  string
	deadline        time.Time
	work            time.Duration   // of its first run
	held            <-chan struct{} // if not nil, its runs last until this is closed

	enqueued    bool                // the relay took it
	cancelAsked bool                // perhaps the relay heard of it
	cancelled   bool                // the relay took the cancel
	withdrawn   bool                // it never reached the relay
	sealed      map[string]struct{} // leases whose payload the relay took
	holders     map[string]string   // runner by lease, of all that was offered
	began       map[string]struct{} // leases whose work began
	finished    map[string]struct{} // leases whose result its daemon has on disk
	gone        map[string]string   // leases that ended, with a reason that the clients know of
	runs        int
	reported    string // lease whose result the relay took
	dead        bool   // found done after a crash, with a result or dropped
	kept        bool   // found with a result after a crash
	result      string // lease whose result reached the site
	notice      string // why it was dropped, as the site was told
	collected   bool   // the relay took that the site has seen to it
	gathered    bool   // found collected after a crash: the relay's answer may never have come
}

// over reports that the site has nothing more to wait for.
func (e *entry) over() bool { return e.result != "" || e.notice != "" || e.withdrawn }

// settled reports that the relay has nothing more to do either.
func (e *entry) settled() bool { return e.over() && (e.withdrawn || e.collected || e.gathered) }

// done reports that the job can never run again, whatever the relay does.
func (e *entry) done() bool { return e.reported != "" || e.dead || e.over() }

// ledger holds all jobs of a world and what must not have happened to them.
type ledger struct {
	mu      sync.Mutex
	jobs    map[string]*entry
	order   []*entry
	faults  []string
	changed chan struct{} // closed and made anew with each change
}

func newLedger() *ledger {
	return &ledger{jobs: map[string]*entry{}, changed: make(chan struct{})}
}

// with changes one job under the lock and wakes who waits.
func (l *ledger) with(id string, f func(e *entry)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.jobs[id]; e != nil {
		f(e)
	} else {
		l.faultLocked("job %q is told of and was never published", id)
	}
	l.touchLocked()
}

// touch wakes who waits for a change.
func (l *ledger) touch() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.touchLocked()
}

func (l *ledger) touchLocked() {
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *ledger) faultLocked(format string, args ...any) {
	if len(l.faults) < maxFaults {
		l.faults = append(l.faults, fmt.Sprintf(format, args...))
	}
}

func (l *ledger) fault(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faultLocked(format, args...)
}

func (l *ledger) found() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.faults...)
}

func (l *ledger) add(e *entry) {
	e.sealed, e.holders, e.began = map[string]struct{}{}, map[string]string{}, map[string]struct{}{}
	e.finished, e.gone = map[string]struct{}{}, map[string]string{}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.jobs[e.id] = e
	l.order = append(l.order, e)
}

// copies answers the jobs as they stand, in the order of their making.
func (l *ledger) copies() []entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]entry, len(l.order))
	for i, e := range l.order {
		out[i] = *e
		out[i].sealed, out[i].gone = maps.Clone(e.sealed), maps.Clone(e.gone)
	}
	return out
}

func (l *ledger) lookup(id string) (entry, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.jobs[id]
	if e == nil {
		return entry{}, false
	}
	return *e, true
}

// count answers how many jobs of a site, or of all for "", a question holds for, and when to ask again.
func (l *ledger) count(site string, holds func(e *entry) bool) (n int, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.order {
		if (site == "" || e.site == site) && holds(e) {
			n++
		}
	}
	return n, l.changed
}

// submitted takes the relay's answer to an enqueue, the first one or a later one; done says that the job was when it was sent.
func (l *ledger) submitted(id, state string, done bool) {
	l.with(id, func(e *entry) {
		e.enqueued = true
		if done && state != "done" {
			l.faultLocked("job %s is finished and an enqueue of it was answered %q", id, state)
		}
	})
}

func (l *ledger) hearSite(ev site.Event) {
	switch ev.Type {
	case site.EventSealed:
		l.with(ev.JobID, func(e *entry) { e.sealed[ev.LeaseID] = struct{}{} })
	case site.EventRequeued:
		l.with(ev.JobID, func(e *entry) { e.gone[ev.LeaseID] = ev.Detail })
	case site.EventDeclined:
		l.with(ev.JobID, func(e *entry) {
			if !e.cancelAsked {
				l.faultLocked("job %s was declined: %s", e.id, ev.Detail)
			}
		})
	case site.EventCollected:
		l.with(ev.JobID, func(e *entry) { e.collected = true })
	}
}

func (l *ledger) hearDaemon(runner string, ev daemon.Event) {
	lease := ev.Grant.LeaseID
	switch ev.Type {
	case daemon.EventOffered:
		l.with(ev.Grant.JobID, func(e *entry) { e.holders[lease] = runner })
	case daemon.EventReleased:
		l.with(ev.Grant.JobID, func(e *entry) { e.gone[lease] = ev.Detail })
	case daemon.EventFinished:
		l.with(ev.Grant.JobID, func(e *entry) { e.finished[lease] = struct{}{} })
	case daemon.EventLost:
		l.with(ev.Grant.JobID, func(e *entry) { l.lost(e, runner, lease, ev.Detail) })
	case daemon.EventReported:
		l.with(ev.Grant.JobID, func(e *entry) { l.reported(e, lease, ev.Detail) })
	}
}

// lost judges a grant that the relay took back: never one whose work began, as leases outlast every crash here.
func (l *ledger) lost(e *entry, runner, lease, why string) {
	if _, began := e.began[lease]; began && !e.cancelAsked && e.gone[lease] == "" {
		l.faultLocked("job %s: %s lost the grant that it works on: %s", e.id, runner, why)
	}
	e.gone[lease] = why
}

// reported judges the relay's answer to a result.
func (l *ledger) reported(e *entry, lease, answer string) {
	if answer != "accepted" && answer != "duplicate" {
		if !e.cancelAsked && e.gone[lease] == "" {
			l.faultLocked("job %s was worked on in vain: its result was answered %q", e.id, answer)
		}
		return
	}
	if e.reported != "" && e.reported != lease {
		l.faultLocked("job %s has two results", e.id)
	}
	if e.notice != "" {
		l.faultLocked("job %s was dropped (%s) and its result taken", e.id, e.notice)
	}
	e.reported = lease
}

// begins judges a run and answers how long it takes.
func (l *ledger) begins(job daemon.Job) (work time.Duration, answer string) {
	l.with(job.Grant.JobID, func(e *entry) {
		if e.done() {
			l.faultLocked("job %s is finished and runs again", e.id)
		}
		if _, again := e.began[job.Grant.LeaseID]; again {
			l.faultLocked("job %s runs twice for one grant", e.id)
		}
		if job.Prompt.Text != e.prompt {
			l.faultLocked("job %s has another payload", e.id)
		}
		e.began[job.Grant.LeaseID] = struct{}{}
		e.runs++
		answer = e.answer
		if e.runs == 1 { // once more it may be short: a job isn't to be interrupted for ever
			work = e.work
		}
	})
	return work, answer
}

// restarted notes that a daemon's process is gone, with all that wasn't finished.
func (l *ledger) restarted(runner string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.order {
		for lease, holder := range e.holders {
			if _, kept := e.finished[lease]; holder == runner && !kept && e.gone[lease] == "" {
				e.gone[lease] = "its daemon restarted"
			}
		}
	}
}

func (l *ledger) delivered(r site.Result) {
	l.with(r.JobID, func(e *entry) {
		switch {
		case !r.Verified:
			l.faultLocked("job %s: %v", e.id, r.Err)
		case e.collected:
			l.faultLocked("job %s was collected and its result comes again", e.id)
		case e.notice != "":
			l.faultLocked("job %s was dropped (%s) and has a result", e.id, e.notice)
		case e.reported != "" && e.reported != r.LeaseID, e.result != "" && e.result != r.LeaseID:
			l.faultLocked("job %s has two results", e.id)
		case r.Disposition == "ok" && r.Outcome.Text != e.answer:
			l.faultLocked("job %s has another answer", e.id)
		case r.Disposition != "ok" && !e.cancelAsked:
			l.faultLocked("job %s ended as %s: %s", e.id, r.Disposition, r.Outcome.Message)
		}
		e.result = r.LeaseID
	})
}

func (l *ledger) dropped(n site.Notice) {
	l.with(n.JobID, func(e *entry) {
		switch {
		case e.reported != "" || e.result != "" || e.kept:
			l.faultLocked("job %s is finished and is told as dropped: %s", e.id, n.Why)
		case !e.cancelAsked:
			l.faultLocked("job %s is dropped: %s", e.id, n.Why)
		}
		e.notice = n.Why
	})
}
