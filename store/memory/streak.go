package memory

import (
	"container/list"
	"time"

	"pushrelay/store"
)

const (
	longestWait = 24 * time.Hour
	streakIdle  = 2 * longestWait // untouched for so long, a streak is forgotten; its wait was over long ago
	maxStreaks  = 1 << 16         // of all runners; beyond, the longest untouched is forgotten
)

// streak counts what a runner refused of a queue, one job after another.
type streak struct {
	runner  string
	queue   store.Queue
	row     int   // refused since the last wait began
	waits   int   // waits so far
	until   int64 // end of the wait
	touched int64
}

// refuse counts a refusal; the sixteenth in a row begins a wait, each twice as long as the one before.
func (m *Machine) refuse(id string, q store.Queue) {
	r := m.runner(id)
	at := r.streaks[q]
	if at == nil {
		m.forgetStreaks()
		if r.streaks == nil {
			r.streaks = make(map[store.Queue]*list.Element)
		}
		at = m.streaks.PushBack(&streak{runner: id, queue: q})
		r.streaks[q] = at
	}
	m.streaks.MoveToBack(at)
	s, _ := at.Value.(*streak)
	s.touched = m.now
	if s.row++; s.row < store.RefusalStreak {
		return
	}
	wait := longestWait
	if s.waits < 8 { // 10 minutes doubled eight times is more than a day
		wait = min(store.RefusalWait<<s.waits, longestWait)
	}
	s.row = 0
	s.waits++
	s.until = m.now + int64(wait)
}

// forgive ends a runner's streak in a queue, and the doubling: it finished a job of it.
func (m *Machine) forgive(id string, q store.Queue) {
	if r := m.runners[id]; r != nil && len(r.streaks) > 0 {
		if at := r.streaks[q]; at != nil {
			m.streaks.Remove(at)
			delete(r.streaks, q)
		}
	}
}

// forgetStreaks makes room for one more.
func (m *Machine) forgetStreaks() {
	for at := m.streaks.Front(); at != nil; at = m.streaks.Front() {
		s, _ := at.Value.(*streak)
		if m.streaks.Len() < maxStreaks && s.touched > m.now-int64(streakIdle) {
			return
		}
		m.streaks.Remove(at)
		delete(m.runners[s.runner].streaks, s.queue)
		m.tidyRunner(s.runner)
	}
}

// waits reports whether the runner gets nothing of the queue now.
func (r *runner) waits(q store.Queue, now int64) bool {
	if r == nil || len(r.streaks) == 0 {
		return false
	}
	at := r.streaks[q]
	if at == nil {
		return false
	}
	s, _ := at.Value.(*streak)
	return s.until > now
}
