package web

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"pushrelay/hub"
)

// truth is a relay of one site: it changes, tells of it later, and answers pages as it is.
type truth struct {
	now  time.Time
	seq  int
	jobs []*hub.JobView // by enqueueing; collected and dropped ones left out
	told []hub.Change   // not delivered yet
}

func (r *truth) tell(t hub.ChangeType, j *hub.JobView, why string) {
	r.now = r.now.Add(time.Millisecond)
	r.told = append(r.told, hub.Change{
		Type: t, At: r.now, Site: "shop", Job: j.Job, Owner: j.Owner, Kind: j.Kind, Runner: j.Runner, Why: why, Disposition: j.Disposition,
	})
}

func (r *truth) enqueue() {
	r.seq++
	j := &hub.JobView{Site: "shop", Job: fmt.Sprint("j", r.seq), Owner: "ada", Kind: "llm.chat", State: hub.JobQueued, EnqueuedAt: r.now, Since: r.now}
	r.jobs = append(r.jobs, j)
	r.tell(hub.ChangeQueued, j, "")
}

// step takes a job to a next state, by chance back to the queue or to its end.
func (r *truth) step(i int, turn int) {
	j := r.jobs[i]
	to := func(s hub.JobState, t hub.ChangeType, why string) {
		j.State = s
		r.tell(t, j, why)
	}
	gone := func() { r.jobs = append(r.jobs[:i], r.jobs[i+1:]...) }
	switch {
	case j.State == hub.JobQueued && turn == 0:
		to(hub.JobDropped, hub.ChangeDropped, "cancelled")
		gone()
	case j.State == hub.JobQueued:
		j.Runner = "d1"
		to(hub.JobOffered, hub.ChangeOffered, "")
	case j.State < hub.JobDone && turn == 0:
		r.tell(hub.ChangeEnded, j, "lapsed")
		j.Runner = ""
		to(hub.JobQueued, hub.ChangeQueued, "lapsed")
	case j.State == hub.JobOffered:
		to(hub.JobAwaiting, hub.ChangeAccepted, "")
	case j.State == hub.JobAwaiting:
		to(hub.JobReady, hub.ChangeReady, "")
	case j.State == hub.JobReady:
		to(hub.JobRunning, hub.ChangeRunning, "")
	case j.State == hub.JobRunning:
		j.Disposition = "ok"
		to(hub.JobDone, hub.ChangeDone, "")
	case j.State == hub.JobDone:
		to(hub.JobCollected, hub.ChangeCollected, "")
		gone()
	}
}

func (r *truth) page(after, most int) (out []hub.JobView, next int, last bool) {
	for _, j := range r.jobs {
		n := 0
		_, _ = fmt.Sscanf(j.Job, "j%d", &n)
		if n <= after {
			continue
		}
		if len(out) == most {
			return out, next, false
		}
		out, next = append(out, *j), n
	}
	return out, next, true
}

// Whatever happens between a page and the changes around it, in the end each job is on the board once, in its place, and as
// it is: nothing is lost between snapshot and stream, and nothing is counted twice.
func TestPagesAndChangesAreJoinedWithoutAGap(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := &truth{now: time.Unix(1_700_000_000, 0)}
		for range rapid.IntRange(0, 12).Draw(rt, "before") {
			r.enqueue()
		}
		r.told = nil // it happened before anybody listened
		b := newBoard("shop", nil, newRecorder(), newRoom(1000))
		deliver := func(n int) {
			for ; n > 0 && len(r.told) > 0; n-- {
				b.apply(&r.told[0])
				r.told = r.told[1:]
			}
		}
		after := 0
		read := func() {
			run, over := b.beginPage()
			if over {
				return
			}
			act(rt, r, deliver) // between the asking and the reading
			page, next, last := r.page(after, 3)
			act(rt, r, deliver) // between the reading and the answer
			b.endPage(run, page, last, time.Now())
			after = next
		}
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			switch rapid.IntRange(0, 9).Draw(rt, "what") {
			case 0, 1, 2, 3:
				read()
			case 4:
				r.told = nil // an overflow: all that was under way is lost
				b.reload()
				after = 0
			default:
				act(rt, r, deliver)
			}
		}
		for !b.load.over {
			read()
		}
		deliver(len(r.told))

		b.mu.Lock()
		defer b.mu.Unlock()
		var got, want []string
		for _, row := range b.order {
			if !row.dead && row.State < hub.JobCollected {
				got = append(got, fmt.Sprint(row.Job, " ", row.State, " ", row.Runner, " ", row.Disposition))
			}
		}
		for _, j := range r.jobs {
			want = append(want, fmt.Sprint(j.Job, " ", j.State, " ", j.Runner, " ", j.Disposition))
		}
		require.Equal(rt, want, got)
		require.Len(rt, b.rows, len(b.order)-b.dead)
		require.EqualValues(rt, 1000-len(b.rows), b.room.left.Load(), "no room is lost")
	})
}

// act lets the relay move, and some of what it tells arrive.
func act(rt *rapid.T, r *truth, deliver func(int)) {
	for range rapid.IntRange(0, 4).Draw(rt, "acts") {
		switch n := len(r.jobs); {
		case n == 0 || rapid.IntRange(0, 3).Draw(rt, "enqueue") == 0:
			r.enqueue()
		default:
			r.step(rapid.IntRange(0, n-1).Draw(rt, "job"), rapid.IntRange(0, 4).Draw(rt, "turn"))
		}
	}
	deliver(rapid.IntRange(0, 6).Draw(rt, "arrive"))
}
