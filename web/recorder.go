package web

import (
	"container/list"
	"context"
	"sync"
	"time"

	"pushrelay/hub"
)

const (
	// maxTimelines of one site are kept, and maxKept bytes of all sites together; charts of maxSites sites, within
	// maxCharted bytes.
	maxTimelines = 1000
	maxKept      = 64 << 20
	maxSites     = 4096
	maxCharted   = 48 << 20
	maxMissed    = 16
	// sampleEvery is how often the depth of all queues is looked at.
	sampleEvery = bucketFor
	// gather is how long changes are left to come together, which is cheaper for the relay than to be heard one by one;
	// nobody sees them sooner anyway.
	gather = 20 * time.Millisecond
	// applyAtOnce bounds for how many changes the lock is held.
	applyAtOnce = 512
)

// recorder remembers what happened, whether somebody looks or not: for each site the last 15 minutes in numbers, and the
// steps of the jobs that moved last. All of it is bounded.
type recorder struct {
	mu      sync.Mutex
	sites   map[string]*siteRecord
	recent  list.List // of *siteRecord, the one that moved last in front
	keeping list.List // of those with timelines, alike
	kept    int       // bytes of timelines
	charted int       // bytes of series
	words   *words
	missed  []time.Time
	boards  map[string]*board // who else hears of a site's changes
}

// siteRecord is what is remembered of a site.
type siteRecord struct {
	id          string
	jobs        map[string]*timeline
	first, last *timeline // that moved longest ago, and last
	series      series
	charted     int // bytes of it
	at, keeps   *list.Element
}

func newRecorder() *recorder {
	return &recorder{sites: map[string]*siteRecord{}, words: newWords(), boards: map[string]*board{}}
}

// changes is hub.Changes.
type changes interface {
	Wait(ctx context.Context) ([]hub.Change, error)
}

// listen takes changes until ctx ends. It never waits for a viewer.
func (r *recorder) listen(ctx context.Context, from changes) {
	for {
		list, err := from.Wait(ctx)
		if err != nil {
			return
		}
		for len(list) > 0 {
			n := min(len(list), applyAtOnce)
			r.apply(list[:n])
			list = list[n:]
		}
		if !sleep(ctx, gather) {
			return
		}
	}
}

// sample looks at the depth of all queues again and again, until ctx ends.
func (r *recorder) sample(ctx context.Context, src source) {
	t := time.NewTicker(sampleEvery)
	defer t.Stop()
	for {
		all, err := src.Sites(ctx)
		if err == nil { // else this point of the chart is missing
			r.depths(src.Now(), all)
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

func (r *recorder) depths(now time.Time, all []hub.SiteSummary) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range all {
		s := &all[i]
		queued, held := s.ByState[hub.JobQueued], s.ByState[hub.JobAwaiting]+s.ByState[hub.JobReady]+s.ByState[hub.JobRunning]
		if rec := r.sites[s.Site]; rec != nil || queued+held > 0 {
			r.site(s.Site, rec).series.depth(now, queued, held)
		}
	}
}

func (r *recorder) apply(list []hub.Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range list {
		c := &list[i]
		if c.Type == hub.ChangeResync {
			r.resync(c.At)
			continue
		}
		s := r.site(c.Site, r.sites[c.Site])
		r.recent.MoveToFront(s.at)
		r.grow(s, s.series.add(c))
		r.note(s, c)
		if b := r.boards[c.Site]; b != nil {
			b.apply(c)
		}
	}
}

// resync notes that changes were missed; mu is held.
func (r *recorder) resync(at time.Time) {
	if len(r.missed) == maxMissed {
		copy(r.missed, r.missed[1:])
		r.missed = r.missed[:maxMissed-1]
	}
	r.missed = append(r.missed, at)
	for _, b := range r.boards {
		b.reload()
	}
}

// site answers the record of a site, made when there is none; mu is held.
func (r *recorder) site(id string, known *siteRecord) *siteRecord {
	if known != nil {
		return known
	}
	if len(r.sites) >= maxSites {
		r.forgetOldest()
	}
	s := &siteRecord{id: id, jobs: map[string]*timeline{}}
	s.at = r.recent.PushFront(s)
	r.sites[id] = s
	r.grow(s, seriesBytes)
	return s
}

// grow counts what a site's series takes. When all together take too much, the site that moved longest ago makes room; mu
// is held.
func (r *recorder) grow(s *siteRecord, bytes int) {
	s.charted += bytes
	r.charted += bytes
	for r.charted > maxCharted && r.recent.Len() > 1 {
		r.forgetOldest()
	}
}

// forgetOldest lets the site go that moved longest ago; mu is held.
func (r *recorder) forgetOldest() {
	old, _ := r.recent.Remove(r.recent.Back()).(*siteRecord)
	for old.first != nil {
		r.forget(old.first)
	}
	r.charted -= old.charted
	delete(r.sites, old.id)
}

// note adds a step to a job's timeline; mu is held.
func (r *recorder) note(s *siteRecord, c *hub.Change) {
	t := s.jobs[c.Job]
	switch {
	case t == nil:
		t = r.begin(s, c)
	case c.Type == hub.ChangeQueued && c.Why == "": // the key was free again: another job
		t.steps, t.runners, t.skipped = t.steps[:0], nil, 0
	}
	if s.last != t {
		s.unlink(t)
		s.link(t)
	}
	had := cap(t.steps)
	t.add(c, r.words)
	r.kept += stepBytes * (cap(t.steps) - had)
	r.keeping.MoveToFront(s.keeps)
	for r.kept > maxKept {
		old, _ := r.keeping.Back().Value.(*siteRecord)
		r.forget(old.first)
	}
}

// begin makes a job's timeline. When there are too many, the one that moved longest ago makes room, with its memory.
func (r *recorder) begin(s *siteRecord, c *hub.Change) *timeline {
	t := &timeline{}
	if len(s.jobs) >= maxTimelines {
		t = s.first
		r.forget(t)
		clear(t.runners)
	}
	*t = timeline{site: s, job: c.Job, steps: t.steps[:0], runners: t.runners[:0]}
	s.jobs[t.job] = t
	s.link(t)
	r.kept += t.bytes()
	if s.keeps == nil {
		s.keeps = r.keeping.PushFront(s)
	}
	return t
}

// forget lets a timeline go; mu is held.
func (r *recorder) forget(t *timeline) {
	s := t.site
	r.kept -= t.bytes()
	s.unlink(t)
	delete(s.jobs, t.job)
	if len(s.jobs) == 0 && s.keeps != nil {
		r.keeping.Remove(s.keeps)
		s.keeps = nil
	}
}

func (s *siteRecord) link(t *timeline) {
	t.prev, t.next = s.last, nil
	if s.last == nil {
		s.first = t
	} else {
		s.last.next = t
	}
	s.last = t
}

func (s *siteRecord) unlink(t *timeline) {
	if t.prev == nil {
		s.first = t.next
	} else {
		t.prev.next = t.next
	}
	if t.next == nil {
		s.last = t.prev
	} else {
		t.next.prev = t.prev
	}
	t.prev, t.next = nil, nil
}

// timeline answers what is kept of a job, and its version; false when nothing is.
func (r *recorder) timeline(site, job string) (timelineView, uint64, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sites[site]
	if s == nil || s.jobs[job] == nil {
		return timelineView{}, 0, false
	}
	t := s.jobs[job]
	return t.view(r.words, r.missed), t.version, true
}

// chart is a site's last 15 minutes as the page gets them.
type chart struct {
	BucketMs int64   `json:"bucketMs"`
	Points   []point `json:"points"`
	P50      int64   `json:"p50"` // of all 15 minutes, microseconds
	P99      int64   `json:"p99"`
}

// chart answers the last n points of a site.
func (r *recorder) chart(site string, now time.Time, n int) chart {
	out := chart{BucketMs: bucketFor.Milliseconds(), Points: []point{}}
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.sites[site]; s != nil {
		out.Points = s.series.points(now, n)
		out.P50, out.P99 = s.series.quantiles(now)
	}
	return out
}

// attend lets a board hear of its site's changes from now on.
func (r *recorder) attend(b *board) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.boards[b.site] = b
}

// dismiss ends that.
func (r *recorder) dismiss(b *board) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.boards[b.site] == b {
		delete(r.boards, b.site)
	}
}
