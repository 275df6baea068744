package web

import (
	"time"

	"pushrelay/hub"
)

const (
	// maxSteps bounds what is kept of one job: its first steps and its last.
	maxSteps   = 64
	firstSteps = 16
	// stepBytes and timelineBytes are what a step and a job cost, about, to bound all together.
	stepBytes     = 48
	timelineBytes = 200
)

// step is one transition of a job.
type step struct {
	at     int64 // epoch ms, when this relay heard of it
	what   hub.ChangeType
	runner string
	word   string // why or disposition
}

// timeline is what happened to one job, in order.
type timeline struct {
	site        *siteRecord
	job         string
	owner, kind string
	steps       []step
	skipped     int    // between the first steps and the others
	version     uint64 // rises with each step

	prev, next *timeline // in the order in which they moved
}

func (t *timeline) bytes() int {
	return timelineBytes + len(t.job) + len(t.owner) + len(t.kind) + stepBytes*cap(t.steps)
}

// add notes a change. Of a job that goes round and round the middle is let go.
func (t *timeline) add(c *hub.Change) {
	word := c.Why
	if c.Type == hub.ChangeDone {
		word = c.Disposition
	}
	if len(t.steps) == maxSteps {
		copy(t.steps[firstSteps:], t.steps[firstSteps+1:])
		t.steps = t.steps[:maxSteps-1]
		t.skipped++
	}
	t.steps = append(t.steps, step{at: c.At.UnixMilli(), what: c.Type, runner: c.Runner, word: word})
	t.version++
}

// begins reports whether the first step that is kept is the job's first: it wasn't there before this relay listened.
func (t *timeline) begins() bool {
	return len(t.steps) > 0 && t.steps[0].what == hub.ChangeQueued && t.steps[0].word == ""
}

// stepView is a step as the page gets it.
type stepView struct {
	At     int64  `json:"at"`
	What   string `json:"what"`
	Runner string `json:"runner,omitzero"`
	Word   string `json:"word,omitzero"`
}

// timelineView is a timeline as the page gets it. Missed are times at which this relay missed changes of any job.
type timelineView struct {
	Steps   []stepView `json:"steps"`
	Whole   bool       `json:"whole"`
	First   int        `json:"first,omitzero"` // steps before the gap
	Skipped int        `json:"skipped,omitzero"`
	Missed  []int64    `json:"missed,omitzero"`
}

func (t *timeline) view(missed []time.Time) timelineView {
	v := timelineView{Steps: make([]stepView, len(t.steps)), Whole: t.begins(), Skipped: t.skipped}
	if t.skipped > 0 {
		v.First = firstSteps
	}
	for i, s := range t.steps {
		v.Steps[i] = stepView{s.at, s.what.String(), s.runner, s.word}
	}
	for _, m := range missed {
		if len(t.steps) > 0 && m.UnixMilli() >= t.steps[0].at {
			v.Missed = append(v.Missed, m.UnixMilli())
		}
	}
	return v
}
