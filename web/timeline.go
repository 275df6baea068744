package web

import (
	"math"
	"slices"
	"time"

	"pushrelay/hub"
)

const (
	// maxSteps bounds what is kept of one job: its first steps and its last.
	maxSteps   = 64
	firstSteps = 16
	// stepBytes and timelineBytes are what a step and a job cost, about, to bound all together.
	stepBytes     = 16
	timelineBytes = 300
)

// step is one transition of a job. It has no pointers: hundreds of thousands of them cost a collection nothing.
type step struct {
	at     int64 // epoch ms, by the store's clock
	what   hub.ChangeType
	runner uint8 // of the timeline's runners, from 1; 0: none
	word   uint8 // of the recorder's words: why or disposition
}

// timeline is what happened to one job, in order.
type timeline struct {
	site    *siteRecord
	job     string
	steps   []step
	runners []string
	skipped int    // between the first steps and the others
	version uint64 // rises with each step

	prev, next *timeline // in the order in which they moved
}

func (t *timeline) bytes() int {
	return timelineBytes + len(t.job) + stepBytes*cap(t.steps)
}

// add notes a change. Of a job that goes round and round the middle is let go.
func (t *timeline) add(c *hub.Change, words *words) {
	word := c.Why
	if c.Type == hub.ChangeDone {
		word = c.Disposition
	}
	if len(t.steps) == maxSteps {
		copy(t.steps[firstSteps:], t.steps[firstSteps+1:])
		t.steps = t.steps[:maxSteps-1]
		t.skipped++
	}
	t.steps = append(t.steps, step{at: c.At.UnixMilli(), what: c.Type, runner: t.runner(c.Runner), word: words.index(word)})
	t.version++
}

// runner answers the number of a runner within the timeline.
func (t *timeline) runner(id string) uint8 {
	if id == "" {
		return 0
	}
	if i := slices.Index(t.runners, id); i >= 0 {
		return uint8(i + 1) //nolint:gosec // below 256
	}
	if len(t.runners) == math.MaxUint8 { // of a job that went to very many: those of the steps that are kept
		used := make([]string, 0, maxSteps+1)
		for i := range t.steps {
			if n := t.steps[i].runner; n > 0 {
				used = append(used, t.runners[n-1])
				t.steps[i].runner = uint8(len(used)) //nolint:gosec // at most maxSteps
			}
		}
		t.runners = used
	}
	t.runners = append(t.runners, id)
	return uint8(len(t.runners)) //nolint:gosec // at most 255
}

// words are reasons and dispositions by number: few, as the relay's vocabulary is closed.
type words struct {
	list  []string
	known map[string]uint8
}

func newWords() *words { return &words{list: []string{""}, known: map[string]uint8{"": 0}} }

func (w *words) index(word string) uint8 {
	i, ok := w.known[word]
	if !ok && len(w.list) < math.MaxUint8 {
		i = uint8(len(w.list)) //nolint:gosec // below 255
		w.list, w.known[word] = append(w.list, word), i
	}
	return i
}

// begins reports whether the first step that is kept is the job's first: it wasn't there before this relay listened.
func (t *timeline) begins() bool {
	return len(t.steps) > 0 && t.steps[0].what == hub.ChangeQueued && t.steps[0].word == 0
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

func (t *timeline) view(words *words, missed []time.Time) timelineView {
	v := timelineView{Steps: make([]stepView, len(t.steps)), Whole: t.begins(), Skipped: t.skipped}
	if t.skipped > 0 {
		v.First = firstSteps
	}
	for i, s := range t.steps {
		v.Steps[i] = stepView{At: s.at, What: s.what.String(), Word: words.list[s.word]}
		if s.runner > 0 {
			v.Steps[i].Runner = t.runners[s.runner-1]
		}
	}
	for _, m := range missed {
		if len(t.steps) > 0 && m.UnixMilli() >= t.steps[0].at {
			v.Missed = append(v.Missed, m.UnixMilli())
		}
	}
	return v
}
