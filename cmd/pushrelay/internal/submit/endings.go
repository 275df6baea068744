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
	return r.end(n.JobID, ending{state: "dropped", code: n.Why})
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
		return errForeign
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
			late[id] = ending{ok: true, state: "done", text: "(an earlier submission had the result)"}
		default:
			late[id] = ending{state: "unanswered", code: "unanswered", message: "neither a result nor a notice came in time"}
		}
	}
	r.mu.Unlock()
	for id, e := range late {
		_ = r.end(id, e)
	}
}
