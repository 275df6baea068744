package storetest

import (
	"time"

	"pushrelay/store"
	"pushrelay/wire"
)

// operatorClauses are what an operator who asks why a job doesn't move is told.
var operatorClauses = []clause{
	{"a site's totals are right in every state", store.Settings{}, func(r *rig) {
		r.enqueue(siteB, "another's")
		for _, l := range lives {
			before := r.siteStats(siteA)
			g := l.make(r, l.name)
			want := before
			switch l.name {
			case "collected":
			case "dropped":
				want.Notices++
			default:
				want.ByState[l.state]++
			}
			got := r.siteStats(siteA)
			want.Bytes = got.Bytes
			r.Equal(want, got, l.name)
			if l.held {
				r.release(r1, wire.ReleaseRefused, 0, g)
			}
			r.cancel(siteA, l.name)
		}
		r.Equal(1, r.siteStats(siteB).ByState[store.Queued])
		r.Equal(store.SiteStats{Site: "none"}, r.siteStats("none"))
	}},
	{"a site's bytes are its envelopes'", store.Settings{}, func(r *rig) {
		r.ready("a")
		r.EqualValues(len("payload of a"), r.siteStats(siteA).Bytes)
		r.done("b")
		r.EqualValues(r.job(siteA, "a").Payload+r.job(siteA, "b").Result, r.siteStats(siteA).Bytes)
	}},
	{"totals of all sites that have any", store.Settings{}, func(r *rig) {
		r.noStats()
		got, err := r.st.SiteStats(r.ctx, "")
		r.NoError(err)
		r.Empty(got)
		r.collect(siteA, r.done("gone"))
		got, err = r.st.SiteStats(r.ctx, "")
		r.NoError(err)
		r.Empty(got, "a tombstone counts nowhere")
		r.enqueue(siteA, "j")
		got, err = r.st.SiteStats(r.ctx, "")
		r.NoError(err)
		r.Equal([]store.SiteStats{r.siteStats(siteA)}, got)
		r.enqueue(siteB, "k")
		r.cancel(siteB, "k")
		got, err = r.st.SiteStats(r.ctx, "")
		r.NoError(err)
		r.ElementsMatch([]store.SiteStats{r.siteStats(siteA), r.siteStats(siteB)}, got)
	}},
	{"a done job's event tells how old it is", store.Settings{}, func(r *rig) {
		r.needClock()
		g := r.running("j")
		t := r.tap(store.Interest{})
		r.advance(3 * time.Second)
		r.complete(r1, g)
		got := t.read()
		r.Equal([]store.EventType{store.EventDone}, types(got))
		r.Equal(3*time.Second, got[0].Age)
	}},
	{"a job's event tells when it happened", store.Settings{}, func(r *rig) {
		t := r.tap(store.Interest{})
		before := r.now()
		r.enqueue(siteA, "j")
		if !r.f.Gaps.NoClock {
			r.advance(time.Second)
		}
		r.cancel(siteA, "j")
		after := r.now()
		t.read()
		r.Len(t.times, 2)
		r.False(t.times[0].Before(before) || t.times[1].Before(t.times[0]) || t.times[1].After(after))
		if !r.f.Gaps.NoClock {
			r.Equal(time.Second, t.times[1].Sub(t.times[0]))
		}
	}},
	{"barred: who refused it, for good", store.Settings{}, func(r *rig) {
		r.release(r1, wire.ReleaseRefused, 0, r.awaiting("j"))
		r.Equal([]store.Bar{{Runner: r1}}, r.barred("j", r1, r2))
		r.Empty(r.barred("j", r2))
		r.Empty(r.barred("j"))
	}},
	{"barred: who gave it back, for a while", store.Settings{}, func(r *rig) {
		r.release(r1, wire.ReleaseBackendDown, time.Minute, r.awaiting("j"))
		got := r.barred("j", r2, r1)
		r.Len(got, 1)
		r.Equal(r1, got[0].Runner)
		r.False(got[0].Queue)
		r.False(got[0].Until.IsZero())
		if !r.f.Gaps.NoClock {
			r.Equal(r.now().Add(time.Minute), got[0].Until)
			r.advance(time.Minute)
			r.Empty(r.barred("j", r1, r2))
		}
	}},
	{"barred: who refused too many of the queue", store.Settings{}, func(r *rig) {
		r.refuse(store.RefusalStreak, "a")
		r.enqueue(siteA, "j")
		r.enqueue(siteA, "other", ofKind(gen))
		got := r.barred("j", r1, r2)
		r.Len(got, 1)
		r.True(got[0].Queue)
		r.False(got[0].Until.IsZero())
		if !r.f.Gaps.NoClock {
			r.Equal(r.now().Add(store.RefusalWait), got[0].Until)
		}
		r.Empty(r.barred("other", r1, r2))
	}},
	{"barred: nobody from a job that isn't queued", store.Settings{}, func(r *rig) {
		r.refuse(1, "j")
		g := r.grant(r2, along(routes(ann, siteA)...))
		r.Empty(r.barred(g.JobID, r1, r2))
	}},
	{"barred: scoped to the site", store.Settings{}, func(r *rig) {
		r.enqueue(siteA, "j")
		for _, at := range [][2]string{{siteB, "j"}, {siteA, "none"}} {
			_, err := r.st.Barred(r.ctx, at[0], at[1], []string{r1})
			r.errIs(err, store.ErrNotFound)
		}
	}},
}

func (r *rig) siteStats(site string) store.SiteStats {
	r.t.Helper()
	got, err := r.st.SiteStats(r.ctx, site)
	r.NoError(err)
	r.Len(got, 1)
	return got[0]
}

func (r *rig) barred(job string, runners ...string) []store.Bar {
	r.t.Helper()
	got, err := r.st.Barred(r.ctx, siteA, job, runners)
	r.NoError(err)
	return got
}
