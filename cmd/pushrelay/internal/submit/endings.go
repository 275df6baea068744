package submit

import (
	"context"
	"time"

	"pushrelay/session/site"
	"pushrelay/wire"
)

// result hears of a finished job; those of others are left to them.
func (r *run) result(_ context.Context, got site.Result) error {
	e := ending{runner: got.RunnerID, owner: got.RunnerOwner, state: got.Disposition, model: got.Ran.Model}
	switch {
	case !got.Verified:
		e.state, e.code, e.message = wire.DispositionError, "unverified", got.Err.Error()
	case got.Disposition == wire.DispositionOK:
		e.ok, e.text = true, got.Outcome.Text
	case got.Disposition == wire.DispositionError:
		e.code, e.message = got.Outcome.Code, got.Outcome.Message
	}
	return r.end(got.JobID, e)
}

func (r *run) notice(_ context.Context, n site.Notice) error {
	return r.end(n.JobID, ending{state: "dropped", code: n.Why, message: explained(n.Why)})
}

// explained says more than the word of a notice.
func explained(why string) string {
	switch why {
	case "deadline":
		return "no device finished it in time"
	case "unsealed":
		return "its payload wasn't sealed in time, or to none of the devices that took it"
	case "lapsed":
		return "each device that took it fell silent"
	}
	return ""
}

// met says once that the relay keeps ends of jobs that aren't this submission's.
func (r *run) met(id string) {
	r.mu.Lock()
	before := r.foreign
	r.foreign = true
	r.mu.Unlock()
	if !before {
		r.log.Warn().Str("job", id).Msg("the relay also has jobs of another submission of this site; " +
			"their results wait for whoever repeats it with its --id-prefix and --deadline")
	}
}

// event notes whether devices take jobs.
func (r *run) event(e site.Event) {
	switch e.Type {
	case site.EventEnqueued:
		r.mu.Lock()
		if r.queued.IsZero() && !r.taken {
			r.queued = time.Now()
		}
		r.mu.Unlock()
	case site.EventAsked:
		r.mu.Lock()
		r.taken = true
		r.mu.Unlock()
	}
}

// hint says once what may be missing when no device takes a job.
func (r *run) hint(now time.Time) {
	r.mu.Lock()
	idle := !r.taken && !r.queued.IsZero() && now.Sub(r.queued) > untaken && r.ok+r.failed == 0
	r.taken = r.taken || idle
	r.mu.Unlock()
	if idle {
		r.log.Warn().Str("owner", r.cmd.Owner).Msg("no device takes a job so far: a daemon of this owner that offers this kind and audience " +
			"must be connected and free, and the projection must have the owner's consent to this site, not paused; where a control plane signs grants, it must grant the job")
	}
}

// end prints a job's end, once.
func (r *run) end(id string, e ending) error {
	r.mu.Lock()
	job, known := r.open[id]
	delete(r.open, id)
	if known && e.ok {
		r.ok++
	} else if known {
		r.failed++
	}
	r.mu.Unlock()
	if !known {
		r.met(id)
		return site.ErrElsewhere
	}
	<-r.places
	e.id, e.line, e.took = id, job.line, time.Since(job.began)
	r.out.print(e)
	r.change(func() {})
	return nil
}

// hasten expects a job's end soon.
func (r *run) hasten(id string) {
	r.change(func() {
		if job, open := r.open[id]; open {
			job.deadline, job.before = time.Now().Add(patience-overdue), true
			r.open[id] = job
		}
	})
}

// giveUp ends jobs that should have ended long ago: their results were collected by an earlier submission, or the relay
// can't be reached, or lost them.
func (r *run) giveUp(now time.Time) {
	r.mu.Lock()
	late := map[string]ending{}
	for id, job := range r.open {
		switch {
		case now.Before(job.deadline.Add(overdue)):
		case job.before:
			late[id] = ending{ok: true, state: stateDone, message: "an earlier submission had the result"}
		default:
			late[id] = ending{state: "unanswered", code: "unanswered", message: "neither a result nor a notice came in time"}
		}
	}
	r.mu.Unlock()
	for id, e := range late {
		_ = r.end(id, e)
	}
}
