package web

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"pushrelay/hub"
)

var dawn = time.Unix(1_700_000_000, 0)

func change(t hub.ChangeType, site, job string, at time.Time) hub.Change {
	return hub.Change{Type: t, Site: site, Job: job, At: at, Owner: "ada", Kind: "llm.chat"}
}

// life is all changes of a job that goes straight through.
func life(site, job string, at time.Time) []hub.Change {
	var out []hub.Change
	for i, t := range []hub.ChangeType{
		hub.ChangeQueued, hub.ChangeOffered, hub.ChangeAccepted, hub.ChangeReady, hub.ChangeRunning, hub.ChangeDone, hub.ChangeCollected,
	} {
		c := change(t, site, job, at.Add(time.Duration(i)*time.Millisecond))
		if t != hub.ChangeQueued {
			c.Runner = "d1"
		}
		if t == hub.ChangeDone {
			c.Disposition, c.Age = "ok", 6*time.Millisecond
		}
		out = append(out, c)
	}
	return out
}

func TestATimelineTellsEachStep(t *testing.T) {
	r := newRecorder()
	r.apply(life("shop", "j", dawn))
	v, version, ok := r.timeline("shop", "j")
	require.True(t, ok)
	require.True(t, v.Whole)
	var words []string
	for i, s := range v.Steps {
		words = append(words, s.What)
		require.Equal(t, dawn.UnixMilli()+int64(i), s.At)
	}
	require.Equal(t, []string{"queued", "offered", "accepted", "ready", "running", "done", "collected"}, words)
	require.Equal(t, "d1", v.Steps[1].Runner)
	require.Equal(t, "ok", v.Steps[5].Word)

	back := change(hub.ChangeQueued, "shop", "j", dawn)
	back.Why = "lapsed"
	r.apply([]hub.Change{back})
	_, later, _ := r.timeline("shop", "j")
	require.Greater(t, later, version)
	r.apply([]hub.Change{change(hub.ChangeQueued, "shop", "j", dawn)})
	v, last, _ := r.timeline("shop", "j")
	require.Len(t, v.Steps, 1, "another job of that id")
	require.Greater(t, last, later)

	_, _, ok = r.timeline("shop", "never")
	require.False(t, ok)
	_, _, ok = r.timeline("other", "j")
	require.False(t, ok, "each site has its own")
}

func TestATimelineThatBeganBeforeSaysSo(t *testing.T) {
	r := newRecorder()
	r.apply([]hub.Change{change(hub.ChangeRunning, "shop", "j", dawn)})
	v, _, _ := r.timeline("shop", "j")
	require.False(t, v.Whole)
	r.apply([]hub.Change{{Type: hub.ChangeResync, At: dawn.Add(time.Second)}})
	v, _, _ = r.timeline("shop", "j")
	require.Equal(t, []int64{dawn.Add(time.Second).UnixMilli()}, v.Missed)
	for range 100 {
		r.apply([]hub.Change{{Type: hub.ChangeResync, At: dawn}})
	}
	require.Len(t, r.missed, maxMissed)
}

func TestAJobThatGoesRoundAndRound(t *testing.T) {
	r := newRecorder()
	r.apply([]hub.Change{change(hub.ChangeQueued, "shop", "j", dawn)})
	for i := range 500 {
		c := change(hub.ChangeOffered, "shop", "j", dawn.Add(time.Duration(i)*time.Second))
		r.apply([]hub.Change{c})
	}
	v, _, _ := r.timeline("shop", "j")
	require.Len(t, v.Steps, maxSteps)
	require.Equal(t, 501-maxSteps, v.Skipped)
	require.Equal(t, firstSteps, v.First)
	require.Equal(t, "queued", v.Steps[0].What, "how it began")
	require.Equal(t, dawn.Add(499*time.Second).UnixMilli(), v.Steps[maxSteps-1].At, "and how it goes on")
	require.True(t, slices.IsSortedFunc(v.Steps, func(a, b stepView) int { return int(a.At - b.At) }))
}

func TestAJobThatGoesToVeryManyRunners(t *testing.T) {
	r := newRecorder()
	for i := range 2000 {
		c := change(hub.ChangeOffered, "shop", "j", dawn)
		c.Runner = fmt.Sprint("d", i)
		r.apply([]hub.Change{c})
		v, _, _ := r.timeline("shop", "j")
		require.Equal(t, c.Runner, v.Steps[len(v.Steps)-1].Runner)
		require.Equal(t, "d0", v.Steps[0].Runner)
		if n := len(v.Steps); n == maxSteps {
			require.Equal(t, fmt.Sprint("d", i-1), v.Steps[n-2].Runner)
		}
	}
	w := newWords()
	for i := range 1000 {
		require.Less(t, int(w.index(fmt.Sprint(i))), len(w.list))
	}
	require.LessOrEqual(t, len(w.list), 255)
}

func TestTheLastThousandJobsOfASiteAreKept(t *testing.T) {
	r := newRecorder()
	for i := range 3000 {
		r.apply(life("shop", fmt.Sprint("j", i), dawn))
		if i == 0 {
			continue
		}
		r.apply([]hub.Change{change(hub.ChangeCancel, "shop", "j0", dawn)}) // it moves all the time
	}
	for i := range 3000 {
		v, _, ok := r.timeline("shop", fmt.Sprint("j", i))
		require.Equal(t, i == 0 || i > 3000-maxTimelines, ok, i)
		if ok && i > 0 {
			require.Len(t, v.Steps, 7, "a place that is used again holds nothing of the last job")
		}
	}
	require.Len(t, r.sites["shop"].jobs, maxTimelines)
}

// consistent checks the recorder's lists and sums against a scan.
func consistent(t require.TestingT, r *recorder) {
	kept, keeping := 0, 0
	for id, s := range r.sites {
		require.Equal(t, id, s.id)
		n := 0
		var before *timeline
		for at := s.first; at != nil; at = at.next {
			require.Same(t, at, s.jobs[at.job])
			require.Same(t, before, at.prev)
			before = at
			kept += at.bytes()
			n++
		}
		require.Same(t, before, s.last)
		require.Len(t, s.jobs, n)
		require.LessOrEqual(t, n, maxTimelines)
		require.Equal(t, n > 0, s.keeps != nil)
		if n > 0 {
			keeping++
		}
	}
	require.Equal(t, kept, r.kept)
	charted := 0
	for _, s := range r.sites {
		charted += s.charted
		own := seriesBytes
		for i := range s.series {
			own += slotBytes * cap(s.series[i].took)
		}
		require.Equal(t, own, s.charted)
	}
	require.Equal(t, charted, r.charted)
	require.LessOrEqual(t, charted, maxCharted)
	require.LessOrEqual(t, kept, maxKept)
	require.Equal(t, len(r.sites), r.recent.Len())
	require.Equal(t, keeping, r.keeping.Len())
	require.LessOrEqual(t, len(r.sites), maxSites)
}

func TestRecordsOfManySitesAreBounded(t *testing.T) {
	r := newRecorder()
	for i := range maxSites + 200 {
		r.apply(life(fmt.Sprint("s", i), "j", dawn))
	}
	consistent(t, r)
	_, _, ok := r.timeline("s0", "j")
	require.False(t, ok, "the site that moved longest ago made room")
	long := fmt.Sprint("runner-", string(make([]byte, 200)))
	for s := range 300 {
		for j := range 300 {
			c := change(hub.ChangeOffered, fmt.Sprint("t", s), fmt.Sprint(j, long), dawn)
			r.apply([]hub.Change{c, c, c, c, c})
		}
	}
	consistent(t, r)
	require.Greater(t, r.kept, maxKept/4)
}

// A thousand sites that all move have their charts and, each, some timelines; what that takes is as it is reckoned.
func TestAThousandSitesThatMove(t *testing.T) {
	r := newRecorder()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	const sites, jobs = 1000, 250
	for j := range jobs {
		for s := range sites {
			l := life(fmt.Sprint("site-", s), fmt.Sprintf("0198f2c4-8b6a-7c3e-9d41-%012d", j), dawn.Add(time.Duration(j)*3600*time.Millisecond))
			l[5].Age = time.Duration(j*j) * time.Millisecond
			r.apply(l)
		}
	}
	consistent(t, r)
	require.Len(t, r.sites, sites)
	for id, s := range r.sites {
		require.Greater(t, len(s.jobs), jobs/3, id)
		require.Len(t, r.chart(id, dawn.Add((jobs-1)*3600*time.Millisecond), buckets).Points, buckets, id)
	}
	clear(r.boards)
	runtime.GC()
	runtime.ReadMemStats(&after)
	took := int(after.HeapAlloc) - int(before.HeapAlloc) //nolint:gosec // of one process
	t.Logf("%d MiB of heap, reckoned as %d and %d", took>>20, r.kept>>20, r.charted>>20)
	require.Less(t, took, 2*(maxKept+maxCharted))
	runtime.KeepAlive(r)
}

func TestRecorderStaysConsistent(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := newRecorder()
		for range rapid.IntRange(1, 200).Draw(rt, "n") {
			c := change(hub.ChangeType(rapid.IntRange(1, int(hub.ChangeCollected)).Draw(rt, "type")),
				rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "site"), rapid.SampledFrom([]string{"1", "2", "3"}).Draw(rt, "job"), dawn)
			r.apply([]hub.Change{c})
		}
		consistent(rt, r)
	})
}

func TestTheChart(t *testing.T) {
	r := newRecorder()
	r.apply(life("shop", "a", dawn))
	r.apply(life("shop", "b", dawn.Add(bucketFor)))
	failed := change(hub.ChangeDone, "shop", "c", dawn.Add(bucketFor))
	failed.Disposition, failed.Age = "error", time.Second
	canceled, dropped, ended := failed, change(hub.ChangeDropped, "shop", "d", dawn.Add(bucketFor)), change(hub.ChangeEnded, "shop", "d", dawn.Add(bucketFor))
	canceled.Disposition = "canceled"
	r.apply([]hub.Change{failed, canceled, ended, dropped})
	r.depths(dawn.Add(bucketFor), []hub.SiteSummary{
		{Site: "shop", ByState: [hub.JobDropped + 1]int{hub.JobQueued: 7, hub.JobRunning: 2, hub.JobReady: 1, hub.JobDone: 9}}, {Site: "idle"},
	})
	c := r.chart("shop", dawn.Add(bucketFor), buckets)
	require.Len(t, c.Points, 2)
	first, second := c.Points[0], c.Points[1]
	require.EqualValues(t, 1, first.Enqueued)
	require.Nil(t, first.Queued, "nobody looked then")
	require.Equal(t, [6]uint32{1, 1, 1, 1, 1, 1}, [6]uint32{second.Enqueued, second.OK, second.Failed, second.Canceled, second.Dropped, second.Returned})
	require.EqualValues(t, 7, *second.Queued)
	require.EqualValues(t, 3, *second.Held)
	require.InDelta(t, 6000, first.P50, 2000)
	require.InDelta(t, 1e6, second.P99, 25e4)
	require.Len(t, r.chart("shop", dawn.Add(bucketFor), 1).Points, 1)
	require.Empty(t, r.chart("idle", dawn, buckets).Points)
	require.NotContains(t, r.sites, "idle", "a site without jobs takes no room")

	late := dawn.Add(bucketFor * (buckets + 1))
	require.Empty(t, r.chart("shop", late, buckets).Points, "what is older isn't shown")
	r.apply(life("shop", "e", late))
	require.EqualValues(t, 1, r.chart("shop", late, buckets).Points[0].Enqueued, "nor counted again")
}

func TestQuantiles(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var h histogram
		var all []time.Duration
		for range rapid.IntRange(1, 60).Draw(rt, "n") {
			d := time.Duration(rapid.Int64Range(0, int64(10*24*time.Hour)).Draw(rt, "d")) >> rapid.IntRange(0, 40).Draw(rt, "shift")
			all = append(all, d)
			h.add(d)
		}
		slices.Sort(all)
		for _, share := range []float64{0.5, 0.99, 1} {
			i := int(share*float64(len(all))+0.999999) - 1
			want, got := all[i], h.quantile(share)
			require.GreaterOrEqual(rt, got, want.Truncate(time.Microsecond))
			require.LessOrEqual(rt, float64(got), max(1.26*float64(want), float64(64*time.Microsecond)))
		}
	})
	var none, much histogram
	require.Zero(t, none.quantile(0.5))
	much.add(365 * 24 * time.Hour)
	much.merge(none)
	require.Equal(t, slots-1, slotOf(365*24*time.Hour))
	require.NotZero(t, much.quantile(0.5))
	require.Zero(t, slotOf(-time.Second))
}
