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

// Streak counts what a runner refused of a queue, one job after another.
type Streak struct {
	Runner  string
	Queue   store.Queue
	Row     int   // refused since the last wait began
	Waits   int   // waits so far
	Until   int64 // end of the wait
	Touched int64
	Stamp   uint64 // of the last touch, which orders all streaks
}

func streakAt(at *list.Element) *Streak {
	s, _ := at.Value.(*Streak)
	return s
}

// streak answers the streak of a runner in a queue; nil when there is none.
func (m *Machine) streak(k streakKey) *Streak {
	if r := m.runners[k.runner]; r != nil && len(r.streaks) > 0 {
		if at := r.streaks[k.queue]; at != nil {
			return streakAt(at)
		}
	}
	return nil
}

// LoadStreak puts a streak in its place: among the others by when it was touched.
func (m *Machine) LoadStreak(s Streak) {
	m.stamp = max(m.stamp, s.Stamp)
	r := m.runner(s.Runner)
	if r.streaks == nil {
		r.streaks = make(map[store.Queue]*list.Element)
	}
	after := m.streaks.Back()
	for after != nil && streakAt(after).Stamp > s.Stamp {
		after = after.Prev()
	}
	if after == nil {
		r.streaks[s.Queue] = m.streaks.PushFront(&s)
	} else {
		r.streaks[s.Queue] = m.streaks.InsertAfter(&s, after)
	}
}

// refuse counts a refusal; the sixteenth in a row begins a wait, each twice as long as the one before.
func (m *Machine) refuse(id string, q store.Queue) {
	m.touchStreak(id, q)
	at := m.runner(id).streaks[q]
	if at == nil {
		m.forgetStreaks()
		m.LoadStreak(Streak{Runner: id, Queue: q, Stamp: m.nextStamp()})
		at = m.runners[id].streaks[q]
	}
	m.streaks.MoveToBack(at)
	s := streakAt(at)
	s.Touched, s.Stamp = m.now, m.nextStamp()
	if s.Row++; s.Row < store.RefusalStreak {
		return
	}
	wait := longestWait
	if s.Waits < 8 { // 10 minutes doubled eight times is more than a day
		wait = min(store.RefusalWait<<s.Waits, longestWait)
	}
	s.Row = 0
	s.Waits++
	s.Until = m.now + int64(wait)
}

// forgive ends a runner's streak in a queue, and the doubling: it finished a job of it.
func (m *Machine) forgive(id string, q store.Queue) {
	if k := (streakKey{id, q}); m.streak(k) != nil {
		m.touchStreak(id, q)
		m.removeStreak(k)
	}
}

func (m *Machine) removeStreak(k streakKey) {
	if m.streak(k) != nil {
		r := m.runners[k.runner]
		m.streaks.Remove(r.streaks[k.queue])
		delete(r.streaks, k.queue)
	}
}

// forgetStreaks makes room for one more.
func (m *Machine) forgetStreaks() {
	for at := m.streaks.Front(); at != nil; at = m.streaks.Front() {
		s := streakAt(at)
		if m.streaks.Len() < maxStreaks && s.Touched > m.now-int64(streakIdle) {
			return
		}
		m.touchStreak(s.Runner, s.Queue)
		m.removeStreak(streakKey{s.Runner, s.Queue})
		m.tidyRunner(s.Runner)
	}
}

// waits reports whether the runner gets nothing of the queue now. Before the time that it began at, the clock was set back,
// and nobody knows how long it has waited.
func (r *runner) waits(q store.Queue, now int64) bool {
	if r == nil || len(r.streaks) == 0 {
		return false
	}
	at := r.streaks[q]
	return at != nil && streakAt(at).Until > now && streakAt(at).Touched <= now
}
