package web

import (
	"context"
	"sync/atomic"
	"time"

	"pushrelay/hub"
)

const (
	// pageRows are read at once: small reads leave room between them for the relay's own work.
	pageRows = 250
	// restShare is how much longer than a read the pause behind it is, and restLeast its least.
	restShare = 2
	restLeast = 2 * time.Millisecond
	// maxRows of all boards together are mirrored.
	maxRows = 250_000
)

// room bounds the rows of all boards together.
type room struct{ left atomic.Int64 }

func newRoom(rows int64) *room {
	r := &room{}
	r.left.Store(rows)
	return r
}

func (r *room) take(n int) bool {
	if r.left.Add(-int64(n)) < 0 {
		r.give(n)
		return false
	}
	return true
}

func (r *room) give(n int) { r.left.Add(int64(n)) }

// read reads all jobs of the site, page by page, and again from the beginning when changes were missed meanwhile.
func (b *board) read(ctx context.Context) {
	next, run := uint64(0), 0
	for ctx.Err() == nil {
		now, over := b.beginPage()
		if over {
			if !sleep(ctx, tickEvery) { // until a resync asks for it
				return
			}
			continue
		}
		if now != run {
			next, run = 0, now
		}
		began := time.Now()
		jobs, after, err := b.src.Jobs(ctx, b.site, next, pageRows)
		if err != nil {
			if !sleep(ctx, time.Second) {
				return
			}
			continue
		}
		b.endPage(run, jobs, after == 0, began)
		next = after
		if !sleep(ctx, max(restLeast, restShare*time.Since(began))) {
			return
		}
	}
}

// beginPage notes that from now on changes may be newer than the page that is read.
func (b *board) beginPage() (run int, over bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.load.over {
		return b.load.run, true
	}
	clear(b.load.early)
	return b.load.run, false
}

// endPage places a page's rows, and behind the last page what was enqueued meanwhile.
func (b *board) endPage(run int, jobs []hub.JobView, last bool, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if run != b.load.run {
		return // changes were missed since
	}
	for i := range jobs {
		b.take(&jobs[i], at)
	}
	if !last && !b.load.full {
		return
	}
	for _, r := range b.load.late {
		if !r.placed && !r.dead {
			b.place(r)
		}
	}
	b.load.over, b.load.early, b.load.late = true, nil, nil
	b.version++
}

// take places one job of a page; mu is held.
func (b *board) take(v *hub.JobView, at time.Time) {
	r := b.rows[v.Job]
	switch {
	case r != nil && r.placed:
		return
	case r != nil:
		r.JobView = *v
		b.touch(r)
	case b.load.full || !b.room.take(1):
		b.load.full = true
		return
	default:
		r = b.newRow(*v)
	}
	r.read, r.stale = at, false
	b.place(r)
	for i := range b.load.early[v.Job] {
		c := &b.load.early[v.Job][i]
		if c.Type == hub.ChangeQueued && c.Why == "" {
			continue // that is how it came
		}
		b.change(r, c)
	}
}

// sleep waits and reports whether ctx still stands.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
