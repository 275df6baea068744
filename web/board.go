package web

import (
	"sync"
	"time"

	"pushrelay/hub"
)

const (
	// fadeFor is how long a job that was collected stays to be seen, and dropFor one that was dropped. maxGone bounds both.
	fadeFor = 10 * time.Second
	dropFor = time.Minute
	maxGone = 500
	// fewDead rows are left in the order until it is made anew.
	fewDead = 1024
)

// board mirrors the jobs of one site while somebody looks at it. It begins to listen before it reads, so that it misses
// nothing: what happened since a page was asked for is applied to that page again.
//
// Locks: recorder.mu before board.mu; none is held while the relay is asked.
type board struct {
	// Immutable.
	site string
	src  source
	rec  *recorder
	room *room

	mu      sync.Mutex
	rows    map[string]*row // by job
	order   []*row          // by enqueueing; with dead ones
	dead    int
	gone    []*row // that will leave, the next first
	handles uint32
	version uint64 // rises with each change of a row
	load    loading
	views   map[filter]*view
	viewers map[*viewer]struct{}
	details map[string]*detail // jobs whose history somebody reads
	detail  part               // of the site
	chart   part               // all points
	tail    part               // the last two points
	extra   uint64             // rises with each change of details
	// published is what viewers were woken for, and changed is closed when there is more.
	published uint64
	changed   chan struct{}
}

// loading is how far the first read of a board is.
type loading struct {
	run   int                     // which one; a resync begins another
	over  bool                    // all was read
	full  bool                    // there are more jobs than a board has room for
	early map[string][]hub.Change // since the page that is being read was asked for
	late  []*row                  // enqueued since; placed behind all pages
}

// row is one job on a board.
type row struct {
	hub.JobView
	handle  uint32
	version uint64 // of the board, when it changed last
	placed  bool
	dead    bool
	stale   bool      // it changed since it was read
	read    time.Time // when it was read last, on our clock; zero: only heard of
	asked   time.Time // when its obstacles were
	why     []hub.Obstacle
	dropped string    // why
	until   time.Time // when it leaves
	text    []byte    // its JSON; nil: to be made
}

func newBoard(site string, src source, rec *recorder, rm *room) *board {
	return &board{
		site: site, src: src, rec: rec, room: rm, rows: map[string]*row{}, views: map[filter]*view{},
		details: map[string]*detail{}, viewers: map[*viewer]struct{}{}, changed: make(chan struct{}), load: loading{early: map[string][]hub.Change{}},
	}
}

// touch notes that a row changed; mu is held.
func (b *board) touch(r *row) {
	b.version++
	r.version = b.version
	r.text = nil
}

// apply takes a change of one of the site's jobs.
func (b *board) apply(c *hub.Change) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.rows[c.Job]
	if !b.load.over && (r == nil || !r.placed) {
		b.load.early[c.Job] = append(b.load.early[c.Job], *c)
	}
	if c.Type == hub.ChangeQueued && c.Why == "" && (r == nil || r.State >= hub.JobCollected) {
		if r != nil {
			b.remove(r)
		}
		b.add(c)
		return
	}
	if r != nil {
		b.change(r, c)
	}
}

// add takes a new job in, at the end; mu is held.
func (b *board) add(c *hub.Change) {
	if b.load.full || !b.room.take(1) {
		b.load.full = true
		return
	}
	r := b.newRow(hub.JobView{
		Site: c.Site, Job: c.Job, Owner: c.Owner, Kind: c.Kind, Private: c.Private, Dialect: c.Dialect,
		State: hub.JobQueued, EnqueuedAt: c.At, Since: c.At,
	})
	r.stale = true
	if b.load.over {
		b.place(r)
	} else {
		b.load.late = append(b.load.late, r)
	}
}

func (b *board) newRow(v hub.JobView) *row {
	b.handles++
	r := &row{JobView: v, handle: b.handles}
	b.rows[v.Job] = r
	b.touch(r)
	return r
}

func (b *board) place(r *row) {
	r.placed = true
	b.order = append(b.order, r)
}

// change moves a row as a change says; what changes don't tell is read when somebody looks. mu is held.
func (b *board) change(r *row, c *hub.Change) {
	r.stale = true
	move := func(to hub.JobState) {
		if r.State != to {
			r.State, r.Since = to, c.At
		}
	}
	switch c.Type {
	case hub.ChangeQueued:
		move(hub.JobQueued)
		r.Runner, r.DeviceKeyID, r.Lease, r.Cancelled, r.PayloadBytes, r.Takes = "", "", "", false, 0, 0
		r.OfferEnds, r.WindowEnds, r.LeaseEnds, r.asked = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	case hub.ChangeOffered:
		move(hub.JobOffered)
		r.Runner, r.Lease, r.why = c.Runner, c.Lease, nil
	case hub.ChangeAccepted:
		if r.State == hub.JobOffered { // the store counts the time in this state from the offer on
			r.State = hub.JobAwaiting
		} else {
			move(hub.JobAwaiting)
		}
	case hub.ChangeReady:
		move(hub.JobReady)
	case hub.ChangeRunning:
		move(hub.JobRunning)
	case hub.ChangeDone:
		move(hub.JobDone)
		r.Disposition = c.Disposition
	case hub.ChangeCancel:
		r.Cancelled = true
	case hub.ChangeDropped:
		move(hub.JobDropped)
		r.dropped, r.why = c.Why, nil
		b.fade(r, dropFor)
	case hub.ChangeCollected:
		if r.State == hub.JobDropped {
			break // it was seen to; the row stays its time
		}
		move(hub.JobCollected)
		b.fade(r, fadeFor)
	}
	b.touch(r)
}

// fade lets a row go after a while; mu is held.
func (b *board) fade(r *row, after time.Duration) {
	if !r.until.IsZero() {
		return
	}
	r.until = time.Now().Add(after)
	at := len(b.gone)
	for at > 0 && b.gone[at-1].until.After(r.until) {
		at--
	}
	b.gone = append(b.gone, nil)
	copy(b.gone[at+1:], b.gone[at:])
	b.gone[at] = r
	if len(b.gone) > maxGone {
		b.remove(b.gone[0])
	}
}

// remove takes a row off the board; mu is held.
func (b *board) remove(r *row) {
	if r.dead {
		return
	}
	r.dead = true
	b.room.give(1)
	b.version++
	delete(b.rows, r.Job)
	for i, g := range b.gone {
		if g == r {
			b.gone = append(b.gone[:i], b.gone[i+1:]...)
			break
		}
	}
	if !r.placed {
		return
	}
	if b.dead++; b.dead > fewDead && b.dead > len(b.order)/2 {
		b.compact()
	}
}

// compact makes the order anew without dead rows; mu is held.
func (b *board) compact() {
	alive := make([]*row, 0, len(b.rows))
	for _, r := range b.order {
		if !r.dead {
			alive = append(alive, r)
		}
	}
	b.order, b.dead = alive, 0
}

// expire removes the rows whose time is over; mu is held.
func (b *board) expire(now time.Time) {
	for len(b.gone) > 0 && now.After(b.gone[0].until) {
		b.remove(b.gone[0])
	}
}

// reload throws everything away and has it read again: changes were missed.
func (b *board) reload() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.clear()
	b.load = loading{run: b.load.run + 1, early: map[string][]hub.Change{}}
	b.version++
}

// clear gives the room of all rows back; mu is held.
func (b *board) clear() {
	b.room.give(len(b.rows))
	for _, r := range b.rows {
		r.dead = true
	}
	b.rows, b.order, b.gone, b.dead = map[string]*row{}, nil, nil, 0
}
