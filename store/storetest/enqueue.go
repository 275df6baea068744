package storetest

import (
	"strings"
	"time"

	"pushrelay/store"
	"pushrelay/wire"
)

var enqueueClauses = []clause{
	{"a new job is queued", store.Settings{}, func(r *rig) {
		before := r.now()
		r.enqueue(siteA, "j")
		j := r.job(siteA, "j")
		r.Equal(store.Key{Site: siteA, Job: "j"}, j.Key)
		r.Equal(store.Queued, j.State)
		r.Equal(wire.Dialect0, j.Dialect)
		r.Equal(r.stub("j").Raw, j.Stub.Raw)
		r.False(j.EnqueuedAt.Before(before))
		r.Equal(j.EnqueuedAt, j.Since)
		r.Equal(j.Stub.DeadlineAt, j.Deadline.UnixMilli())
	}},
	{"a known key answers what is routing, unchanged", store.Settings{}, func(r *rig) {
		for _, l := range lives {
			g := l.make(r, l.name)
			before := r.job(siteA, l.name)
			got := r.enqueueAll(siteA, r.stub(l.name, ofKind(gen), ownedBy(bob)))
			r.Equal([]store.Enqueued{{JobID: l.name, State: l.state, Known: true}}, got, l.name)
			r.Equal(before, r.job(siteA, l.name), l.name)
			if l.held {
				r.release(r1, wire.ReleaseRefused, 0, g)
			}
			r.cancel(siteA, l.name)
		}
	}},
	{"a key known is judged before its deadline and the quota", store.Settings{JobsPerSite: 1}, func(r *rig) {
		r.enqueue(siteA, "j")
		got := r.enqueueAll(siteA, r.stub("j", r.dueIn(-time.Hour)))
		r.Equal([]store.Enqueued{{JobID: "j", State: store.Queued, Known: true}}, got)
	}},
	{"a key twice in one call is known the second time", store.Settings{}, func(r *rig) {
		got := r.enqueueAll(siteA, r.stub("j"), r.stub("j"))
		r.False(got[0].Known)
		r.True(got[1].Known)
		r.Equal(1, r.siteTotal(siteA))
	}},
	{"two sites may choose one id and never see each other", store.Settings{}, func(r *rig) {
		r.enqueue(siteA, "j")
		r.enqueue(siteB, "j", ofKind(gen))
		r.Equal([]bool{true}, r.cancel(siteA, "j"))
		r.Equal(store.Queued, r.job(siteB, "j").State)
		r.Equal(gen, r.job(siteB, "j").Stub.Kind)
	}},
	{"keys are structs: no join of two names meets another", store.Settings{}, func(r *rig) {
		pairs := [][2]string{{"a", "b:c"}, {"a:b", "c"}, {"a", "b/c"}, {"a/b", "c"}, {"a", "b|c"}, {"a|b", "c"}, {"a1", "1c"}, {"a11", "c"}}
		for _, p := range pairs {
			r.enqueue(p[0], p[1])
		}
		for _, p := range pairs {
			r.Equal(store.Key{Site: p[0], Job: p[1]}, r.job(p[0], p[1]).Key)
			r.Equal([]bool{true}, r.cancel(p[0], p[1]))
		}
	}},
	{"ids of 1 to 256 bytes without U+0000", store.Settings{}, func(r *rig) {
		long := strings.Repeat("x", wire.MaxIDBytes)
		bad := []string{"", long + "x", "a\x00b", "\x00", strings.Repeat("ü", 129)}
		good := []string{"x", long, "a b\n", strings.Repeat("ü", 128)}
		for _, id := range bad {
			got := r.enqueueAll(siteA, r.stub(id))
			r.ErrorIs(got[0].Err, store.ErrBadID, "%q", id)
			_, err := r.st.Job(r.ctx, siteA, id)
			r.ErrorIs(err, store.ErrNotFound)
		}
		for _, id := range good {
			r.enqueue(siteA, id)
		}
	}},
	{"a passed deadline is too late, with the store's time", store.Settings{}, func(r *rig) {
		for _, ago := range []time.Duration{-time.Millisecond, -time.Hour} {
			got := r.enqueueAll(siteA, r.stub("j", r.dueIn(ago)))[0]
			r.ErrorIs(got.Err, store.ErrTooLate)
			var ref *store.Refusal
			r.ErrorAs(got.Err, &ref)
			r.WithinDuration(r.now(), ref.ServerTime, time.Minute)
			_, err := r.st.Job(r.ctx, siteA, "j")
			r.ErrorIs(err, store.ErrNotFound)
		}
	}},
	{"a deadline at now is passed, a millisecond later isn't", store.Settings{}, func(r *rig) {
		r.needClock()
		r.ErrorIs(r.enqueueAll(siteA, r.stub("now", r.dueIn(0)))[0].Err, store.ErrTooLate)
		r.enqueue(siteA, "soon", r.dueIn(time.Millisecond))
	}},
	{"a deadline counts as at most MaxDeadline ahead", store.Settings{MaxDeadline: time.Hour}, func(r *rig) {
		r.enqueue(siteA, "far", r.dueIn(48*time.Hour))
		r.enqueue(siteA, "near", r.dueIn(30*time.Minute))
		far, near := r.job(siteA, "far"), r.job(siteA, "near")
		r.Equal(far.EnqueuedAt.Add(time.Hour).UnixMilli(), far.Deadline.UnixMilli())
		r.Equal(near.Stub.DeadlineAt, near.Deadline.UnixMilli())
		r.jump(time.Hour)
		r.Len(r.notices(siteA), 2)
	}},
	{"the default reach of a deadline is seven days", store.Settings{}, func(r *rig) {
		r.enqueue(siteA, "j", r.dueIn(1000*time.Hour))
		j := r.job(siteA, "j")
		r.Equal(7*24*time.Hour, j.Deadline.Sub(j.EnqueuedAt))
	}},
	{"too many jobs of a site are over quota, others don't notice", store.Settings{JobsPerSite: 2}, func(r *rig) {
		got := r.enqueueAll(siteA, r.stub("a"), r.stub("b"), r.stub("c"), r.stub("a"))
		r.NoError(got[0].Err)
		r.NoError(got[1].Err)
		r.ErrorIs(got[2].Err, store.ErrOverQuota)
		r.True(got[3].Known)
		r.enqueue(siteB, "c")
	}},
	{"the quota counts uncollected results, not tombstones or drops", store.Settings{JobsPerSite: 1}, func(r *rig) {
		g := r.done("a")
		r.ErrorIs(r.enqueueAll(siteA, r.stub("b"))[0].Err, store.ErrOverQuota)
		r.collect(siteA, g)
		r.enqueue(siteA, "b")
		r.cancel(siteA, "b")
		r.enqueue(siteA, "c")
	}},
	{"one bad stub doesn't fail the rest, answers stand in order", store.Settings{}, func(r *rig) {
		got := r.enqueueAll(siteA, r.stub("a"), r.stub(""), r.stub("late", r.dueIn(-time.Second)), r.stub("b"))
		r.Equal([]string{"a", "", "late", "b"}, []string{got[0].JobID, got[1].JobID, got[2].JobID, got[3].JobID})
		r.NoError(got[0].Err)
		r.ErrorIs(got[1].Err, store.ErrBadID)
		r.ErrorIs(got[2].Err, store.ErrTooLate)
		r.NoError(got[3].Err)
	}},
	{"what the caller does to its stub afterwards changes nothing", store.Settings{}, func(r *rig) {
		s := r.stub("j")
		r.enqueueAll(siteA, s)
		want := string(s.Raw)
		clear(s.Raw)
		r.Equal(want, string(r.job(siteA, "j").Stub.Raw))
	}},
	{"an empty call answers nothing", store.Settings{}, func(r *rig) {
		got, err := r.st.Enqueue(r.ctx, siteA, wire.Dialect0, nil)
		r.NoError(err)
		r.Empty(got)
	}},
}

// siteTotal counts the jobs of a site through its pages.
func (r *rig) siteTotal(site string) int {
	r.t.Helper()
	n, after := 0, store.Cursor(0)
	for {
		p, err := r.st.Jobs(r.ctx, site, after, 100)
		r.NoError(err)
		n += len(p.Jobs)
		if p.Next == 0 {
			return n
		}
		after = p.Next
	}
}
