package web

import (
	"time"

	"pushrelay/hub"
	"pushrelay/wire"
)

const (
	// bucketFor is how much time one point of a chart is of, and buckets how many there are: 15 minutes.
	bucketFor = 10 * time.Second
	buckets   = 90
)

// bucket is what happened to a site's jobs in one span of time.
type bucket struct {
	number   int64 // of spans since the epoch; 0: never used
	enqueued uint32
	ok       uint32
	failed   uint32 // results that say error
	canceled uint32
	dropped  uint32
	returned uint32 // grants that ended without a result
	queued   int32  // waiting at the last look; -1: nobody looked
	held     int32  // offered to running at the last look
	took     histogram
}

// series is the last 15 minutes of a site.
type series [buckets]bucket

func bucketOf(at time.Time) int64 { return at.UnixMilli() / bucketFor.Milliseconds() }

// at answers the bucket of a time, empty when it is new; a time before all that is kept gets the oldest's.
func (s *series) at(t time.Time) *bucket {
	n := bucketOf(t)
	b := &s[n%buckets]
	if b.number < n {
		*b = bucket{number: n, queued: -1, held: -1, took: b.took[:0]}
	}
	return b
}

// seriesBytes is what a site's series costs besides its histograms.
const seriesBytes = buckets * 64

// add counts a change, and answers how many bytes more the series takes for it.
func (s *series) add(c *hub.Change) (grown int) {
	b := s.at(c.At)
	switch c.Type {
	case hub.ChangeQueued:
		if c.Why == "" {
			b.enqueued++
		}
	case hub.ChangeEnded:
		b.returned++
	case hub.ChangeDropped:
		b.dropped++
	case hub.ChangeDone:
		switch c.Disposition {
		case wire.DispositionOK:
			b.ok++
		case wire.DispositionCanceled:
			b.canceled++
		default:
			b.failed++
		}
		had := cap(b.took)
		b.took.add(c.Age)
		return slotBytes * (cap(b.took) - had)
	}
	return 0
}

// depth notes how many jobs wait and how many are held.
func (s *series) depth(at time.Time, queued, held int) {
	b := s.at(at)
	b.queued, b.held = int32(min(queued, 1<<30)), int32(min(held, 1<<30)) //nolint:gosec // bounded
}

// point is a bucket as the page gets it. Times are epoch milliseconds, quantiles microseconds.
type point struct {
	Start    int64  `json:"t"`
	Enqueued uint32 `json:"in,omitzero"`
	OK       uint32 `json:"ok,omitzero"`
	Failed   uint32 `json:"failed,omitzero"`
	Canceled uint32 `json:"canceled,omitzero"`
	Dropped  uint32 `json:"dropped,omitzero"`
	Returned uint32 `json:"returned,omitzero"`
	Queued   *int32 `json:"queued,omitzero"` // absent: not looked at
	Held     *int32 `json:"held,omitzero"`
	P50      int64  `json:"p50,omitzero"`
	P99      int64  `json:"p99,omitzero"`
}

// points answers the buckets of the last n spans until now, oldest first; those in which nothing was noted are left out.
func (s *series) points(now time.Time, n int) []point {
	last := bucketOf(now)
	out := make([]point, 0, n)
	for i := last - int64(n) + 1; i <= last; i++ {
		b := &s[i%buckets]
		if b.number != i {
			continue
		}
		p := point{
			Start: i * bucketFor.Milliseconds(), Enqueued: b.enqueued, OK: b.ok, Failed: b.failed, Canceled: b.canceled,
			Dropped: b.dropped, Returned: b.returned,
		}
		if b.queued >= 0 {
			queued, held := b.queued, b.held
			p.Queued, p.Held = &queued, &held
		}
		if len(b.took) > 0 {
			p.P50, p.P99 = b.took.quantile(0.5).Microseconds(), b.took.quantile(0.99).Microseconds()
		}
		out = append(out, p)
	}
	return out
}

// quantiles answers p50 and p99 of all 15 minutes, in microseconds.
func (s *series) quantiles(now time.Time) (p50, p99 int64) {
	var all histogram
	oldest := bucketOf(now) - buckets
	for i := range s {
		if s[i].number > oldest {
			all.merge(s[i].took)
		}
	}
	return all.quantile(0.5).Microseconds(), all.quantile(0.99).Microseconds()
}
