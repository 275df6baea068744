package web

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"pushrelay/hub"
)

const (
	// tickEvery is how often a board may change for its viewers.
	tickEvery = 100 * time.Millisecond
	// Rows that are looked at are read again after these times, held ones because heartbeats move their lease silently.
	heldAgain = 2 * time.Second
	restAgain = 30 * time.Second
	whyAgain  = time.Second
	// maxReads and maxWhys bound what one tick asks of the relay.
	maxReads = 64
	maxWhys  = 500
	// detailEvery is how often the site itself is looked at, and detailShare how much longer than a look the pause is.
	detailEvery = time.Second
	detailShare = 20
)

// part is a section that all viewers of a board get alike.
type part struct {
	version uint64
	text    jsontext.Value
}

// set replaces the text and reports whether it changed.
func (p *part) set(v any) bool {
	text := encode(v)
	if bytes.Equal(text, p.text) {
		return false
	}
	p.text = text
	p.version++
	return true
}

// run keeps the board up to date until ctx ends.
func (b *board) run(ctx context.Context) {
	var detailed, charted time.Time // not before
	for wait := time.Duration(0); sleep(ctx, wait); {
		began := time.Now()
		b.refresh(ctx, began)
		b.explain(ctx, began)
		if !began.Before(detailed) {
			b.lookAtSite(ctx)
			detailed = began.Add(max(detailEvery, detailShare*time.Since(began)))
		}
		if !began.Before(charted) {
			b.drawChart()
			charted = began.Add(detailEvery)
		}
		b.publish(time.Now())
		wait = max(tickEvery, restShare*time.Since(began))
	}
}

// close gives back what the board holds; nobody looks at it any more.
func (b *board) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.clear()
	b.load.full = true // a page that is still being read finds no room
}

// publish wakes the viewers when anything changed.
func (b *board) publish(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expire(now)
	b.renew(now)
	mark := b.version + b.detail.version + b.chart.version + b.extra
	if mark == b.published {
		return
	}
	b.published = mark
	close(b.changed)
	b.changed = make(chan struct{})
}

// watched calls f with each living row that somebody looks at, once; mu is held.
func (b *board) watched(f func(r *row)) {
	seen := map[*row]bool{}
	each := func(r *row) {
		if r != nil && !r.dead && !seen[r] {
			seen[r] = true
			f(r)
		}
	}
	for v := range b.viewers {
		if v.hidden {
			continue
		}
		for _, r := range v.window {
			each(r)
		}
	}
	for job := range b.details {
		each(b.rows[job])
	}
}

// reading is a row that is being read, as it was before.
type reading struct {
	row     *row
	job     string
	version uint64
}

// refresh reads again what changed of the rows that somebody looks at, and what changes silently.
func (b *board) refresh(ctx context.Context, now time.Time) {
	for _, rd := range b.toRead(now) {
		v, ok, err := b.src.Job(ctx, b.site, rd.job)
		if err != nil {
			return // the next tick tries again
		}
		b.took(rd, v, ok, now)
	}
	for _, job := range b.lostDetails(now) {
		v, ok, err := b.src.Job(ctx, b.site, job)
		if err != nil {
			return
		}
		b.tookDetail(job, v, ok, now)
	}
}

func (b *board) toRead(now time.Time) []reading {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []reading
	b.watched(func(r *row) {
		again := restAgain
		if r.State > hub.JobQueued && r.State < hub.JobDone {
			again = heldAgain
		}
		if len(out) < maxReads && r.State < hub.JobCollected && (r.stale || now.Sub(r.read) > again) {
			out = append(out, reading{r, r.Job, r.version})
		}
	})
	return out
}

// took puts what was read on its row, unless the row changed meanwhile: then the next tick reads it again.
func (b *board) took(rd reading, v hub.JobView, found bool, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := rd.row
	switch {
	case r.dead || r.version != rd.version:
		return
	case !found: // its time was over, of which nothing is told
		b.remove(r)
		return
	}
	r.stale, r.read = false, now
	if r.JobView != v {
		r.JobView = v
		b.touch(r)
	}
	switch v.State {
	case hub.JobCollected:
		b.fade(r, fadeFor)
	case hub.JobDropped:
		b.fade(r, dropFor)
	}
}

// explain asks why the queued jobs that somebody looks at aren't claimed.
func (b *board) explain(ctx context.Context, now time.Time) {
	asked, jobs := b.toExplain(now)
	if len(jobs) == 0 {
		return
	}
	why, err := b.src.Explain(ctx, b.site, jobs)
	if err != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, rd := range asked {
		r := rd.row
		if r.dead || r.State != hub.JobQueued {
			continue
		}
		r.asked = now
		if !slices.Equal(r.why, why[i]) {
			r.why = why[i]
			b.touch(r)
		}
	}
}

func (b *board) toExplain(now time.Time) (asked []reading, jobs []hub.JobView) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.watched(func(r *row) {
		if r.State == hub.JobQueued && len(asked) < maxWhys && now.Sub(r.asked) >= whyAgain {
			asked = append(asked, reading{row: r})
			jobs = append(jobs, r.JobView)
		}
	})
	return asked, jobs
}

// lookAtSite reads the site itself.
func (b *board) lookAtSite(ctx context.Context) {
	d, err := b.src.Site(ctx, b.site)
	if err != nil {
		return
	}
	v := siteOf(&d)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.detail.set(v)
}

// drawChart takes the last points from the recorder: all of them for a fresh viewer, and the last two for the others.
func (b *board) drawChart() {
	now := b.src.Now()
	all, last := b.rec.chart(b.site, now, buckets), b.rec.chart(b.site, now, 2)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.chart.set(all) {
		b.tail.set(last)
		b.tail.version = b.chart.version
	}
}
