package hub

import (
	"context"
	"errors"
	"time"

	"pushrelay/store"
	"pushrelay/wire"
)

// JobState is where a job stands, as operators see it: the store's states, and what is a flag beside them there.
type JobState uint8

// States, in the order of a life without trouble; the last two are its ends.
const (
	JobQueued JobState = iota + 1
	JobOffered
	JobAwaiting
	JobReady
	JobRunning
	JobDone
	JobCollected
	JobDropped
)

// String answers the state's word.
func (s JobState) String() string {
	switch s {
	case JobQueued:
		return "queued"
	case JobOffered:
		return "offered"
	case JobAwaiting:
		return "awaiting"
	case JobReady:
		return "ready"
	case JobRunning:
		return "running"
	case JobDone:
		return "done"
	case JobCollected:
		return "collected"
	case JobDropped:
		return "dropped"
	}
	return "unknown"
}

// JobStates answers all of them, in order.
func JobStates() []JobState {
	out := make([]JobState, 0, JobDropped)
	for s := JobQueued; s <= JobDropped; s++ {
		out = append(out, s)
	}
	return out
}

// JobView is what operators see of a job: its stub, who has it and until when. No content, no keys, no signatures. Zero
// times are none. Texts are their clients': untrusted.
type JobView struct {
	Site, Job, Kind, Owner, SiteKeyID, Audience, SizeClass, Purpose string

	Streaming bool
	Private   bool // only its owner's own devices may have it
	Dialect   wire.Dialect

	State        JobState
	Cancelled    bool
	Runner       string
	DeviceKeyID  string // of the runner's device
	Lease        string
	EnqueuedAt   time.Time
	Since        time.Time // in this state
	OfferEnds    time.Time // while offered
	WindowEnds   time.Time // while its payload is awaited
	LeaseEnds    time.Time // while it is held
	Deadline     time.Time
	Waits        int   // payload windows in vain
	Lapses       int   // of leases after the payload was taken
	Takes        int   // of this grant's payload
	PayloadBytes int64 // sealed
	ResultBytes  int64 // sealed
	Disposition  string
}

// Jobs answers a page of a site's jobs in the order of their enqueueing, what is finished and collected left out. after is
// 0 or where the page before ended; next is 0 at the end. most is 1 to 1,000.
func (h *Hub) Jobs(ctx context.Context, site string, after uint64, most int) (jobs []JobView, next uint64, err error) {
	p, err := h.store.Jobs(ctx, site, store.Cursor(after), most)
	if err != nil {
		return nil, 0, err
	}
	jobs = make([]JobView, len(p.Jobs))
	for i := range p.Jobs {
		jobs[i] = h.jobView(&p.Jobs[i])
	}
	return jobs, uint64(p.Next), nil
}

// Job answers one job of the site, finished ones too while the store remembers them; false when it doesn't.
func (h *Hub) Job(ctx context.Context, site, id string) (JobView, bool, error) {
	j, err := h.store.Job(ctx, site, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return JobView{}, false, nil
	case err != nil:
		return JobView{}, false, err
	}
	return h.jobView(&j), true, nil
}

func (h *Hub) jobView(j *store.Job) JobView {
	v := JobView{
		Site: j.Site, Job: j.Job, Kind: j.Stub.Kind, Owner: j.Stub.Owner, SiteKeyID: j.Stub.Site, Audience: j.Stub.Audience,
		SizeClass: j.Stub.SizeClass, Purpose: j.Stub.Purpose, Streaming: j.Stub.Streaming, Private: j.Stub.Private(), Dialect: j.Dialect,
		State: stateOf(j), Cancelled: j.Cancelled, Runner: j.Runner, DeviceKeyID: j.Device, Lease: j.Lease,
		EnqueuedAt: j.EnqueuedAt, Since: j.Since, WindowEnds: j.WindowEnds, Deadline: j.Deadline,
		Waits: j.Waits, Lapses: j.Lapses, Takes: j.Takes, PayloadBytes: j.Payload, ResultBytes: j.Result, Disposition: j.Disposition,
	}
	switch v.State {
	case JobOffered:
		v.OfferEnds = j.Since.Add(h.set.OfferFor)
		v.LeaseEnds = j.LeaseEnds
	case JobAwaiting, JobReady, JobRunning:
		v.LeaseEnds = j.LeaseEnds
	}
	return v
}

// stateOf tells dropped jobs by what they lack: a done one has its grant.
func stateOf(j *store.Job) JobState {
	switch j.State {
	case store.Queued:
		return JobQueued
	case store.AwaitingPayload:
		if j.Offered {
			return JobOffered
		}
		return JobAwaiting
	case store.Ready:
		return JobReady
	case store.Running:
		return JobRunning
	}
	switch {
	case j.Lease == "":
		return JobDropped
	case j.Collected:
		return JobCollected
	}
	return JobDone
}
