package storetest

import (
	"context"
	"strconv"
	"strings"
	"time"

	"pushrelay/store"
	"pushrelay/wire"
)

func itoa(n int) string { return strconv.Itoa(n) }

// patience is how long a case waits for an event that a store sends by itself; only a failing case uses it up.
const patience = 20 * time.Second

const markPrefix = "mark-"

// tap is a watcher that can be read to a point: all that happened before the call has come.
type tap struct {
	r     *rig
	w     store.Watcher
	sites []string
	times []time.Time // of the job events that were read last
}

func (r *rig) tap(in store.Interest, sites ...string) *tap {
	w := r.st.Watch(in)
	r.t.Cleanup(w.Close)
	if len(sites) == 0 {
		sites = []string{siteA, siteB}
	}
	return &tap{r: r, w: w, sites: sites}
}

// read answers the events until now, and their times apart. It marks the end with sessions of its own, one for each site.
func (t *tap) read() []store.Event {
	t.r.t.Helper()
	t.r.marks++
	open := map[store.Party]bool{}
	name := markPrefix + itoa(t.r.marks)
	for _, s := range t.sites {
		p := store.Party{Role: store.SiteRole, ID: s}
		open[p] = true
		t.r.attachFor(p, name, time.Hour)
		t.r.NoError(t.r.st.Detach(t.r.ctx, p, name))
	}
	ctx, cancel := context.WithTimeout(t.r.ctx, patience)
	defer cancel()
	out := []store.Event{}
	t.times = nil
	for len(open) > 0 {
		es, err := t.w.Wait(ctx)
		t.r.NoError(err)
		for _, e := range es {
			if strings.HasPrefix(e.Session, markPrefix) {
				if e.Session == name && e.Type == store.EventDetached {
					delete(open, e.Party)
				}
				continue
			}
			if e.Job != "" {
				t.times = append(t.times, time.Unix(0, e.At))
				e.At = 0
			}
			out = append(out, e)
		}
	}
	return out
}

var watchClauses = []clause{
	{"only from now on", store.Settings{}, func(r *rig) {
		r.enqueue(siteA, "before")
		t := r.tap(store.Interest{})
		r.enqueue(siteA, "after")
		got := t.read()
		r.Len(got, 1)
		r.Equal("after", got[0].Job)
		r.Empty(t.read())
	}},
	{"watch first, then read: nothing falls between", store.Settings{}, func(r *rig) {
		done := make(chan error, 1)
		go func() {
			var err error
			for i := 0; i < 200 && err == nil; i++ {
				_, err = r.st.Enqueue(r.ctx, siteA, wire.Dialect0, []wire.Stub{r.stubAt("j-"+itoa(i), r.clock.Now().Add(10000*time.Hour))})
			}
			done <- err
		}()
		t := r.tap(store.Interest{})
		seen := map[string]bool{}
		for _, j := range r.pages(r.st.Jobs, siteA, 1000) {
			seen[j.Job] = true
		}
		r.NoError(<-done)
		for _, e := range t.read() {
			seen[e.Job] = true
		}
		r.Len(seen, 200)
	}},
	{"an interest limits to its sites", store.Settings{}, func(r *rig) {
		t := r.tap(store.Interest{Sites: []string{siteB}}, siteB)
		r.enqueue(siteA, "a")
		r.enqueue(siteB, "b")
		r.attachSite(siteA, "s")
		r.attachSite(siteB, "s")
		got := t.read()
		r.Equal([]store.EventType{store.EventQueued, store.EventAttached}, types(got))
		r.Equal("b", got[0].Job)
		r.Equal(siteB, got[1].Party.ID)
	}},
	{"an interest in sites hears of runners all the same", store.Settings{}, func(r *rig) {
		t := r.tap(store.Interest{Sites: []string{siteB}}, siteB)
		n := r.attach(r1, "s")
		r.Equal([]store.Event{{Type: store.EventAttached, Party: runnerParty, Session: "s", Number: n}}, bare(t.read()))
	}},
	{"every watcher gets every event", store.Settings{}, func(r *rig) {
		a, b := r.tap(store.Interest{}), r.tap(store.Interest{})
		r.enqueue(siteA, "j")
		r.Equal([]string{"j"}, eventJobs(a.read()))
		r.Equal([]string{"j"}, eventJobs(b.read()))
	}},
	{"a refused call and a replay tell nothing", store.Settings{}, func(r *rig) {
		g := r.done("j")
		h := r.ready("k")
		t := r.tap(store.Interest{})
		r.enqueueAll(siteA, r.stub("j"), r.stub("k"), r.stub(""))
		r.duplicate(r1, g, "again")
		r.takeErr(r2, h, store.ErrNotHolder)
		r.release(r2, wire.ReleaseShutdown, 0, h)
		r.release(r1, wire.ReleaseShutdown, 0, g)
		_, err := r.st.Seal(r.ctx, siteA, h, payloadFor(r1, "again"))
		r.NoError(err)
		r.tooLate(bogus("k"), payloadFor(r1, "x"), store.Ready)
		r.cancel(siteA, "j", "none")
		r.accept(r1, h)
		r.renew(r1, h)
		r.claim(r2)
		r.collect(siteA, bogus("j"))
		r.Empty(eventJobs(t.read()))
	}},
	{"bounded: an overflow shows as one resync, then it goes on", store.Settings{}, func(r *rig) {
		if r.f.Gaps.Unbounded {
			r.t.Skip("gap Unbounded: events wait outside the process")
		}
		w := r.st.Watch(store.Interest{})
		r.t.Cleanup(w.Close)
		const n = 50_000 // sessions that come and go: two events each, and no store keeps them
		for range n {
			r.attachFor(runnerParty, "flood", time.Hour)
			r.NoError(r.st.Detach(r.ctx, runnerParty, "flood"))
		}
		ctx, cancel := context.WithTimeout(r.ctx, patience)
		defer cancel()
		got, err := w.Wait(ctx)
		r.NoError(err)
		r.Less(len(got), 2*n)
		resyncs := 0
		for _, e := range got {
			if e.Type == store.EventResync {
				resyncs++
			}
		}
		r.Equal(1, resyncs)
		r.enqueue(siteA, "after")
		got, err = w.Wait(ctx)
		r.NoError(err)
		r.Equal([]string{"after"}, eventJobs(got))
	}},
	{"a slow watcher holds up nobody", store.Settings{JobsPerSite: 1 << 20}, func(r *rig) {
		w := r.st.Watch(store.Interest{})
		r.t.Cleanup(w.Close)
		t := r.tap(store.Interest{Sites: []string{siteB}}, siteB)
		r.enqueueN(siteA, "flood", 20_000)
		r.enqueue(siteB, "b")
		r.Equal([]string{"b"}, eventJobs(t.read()))
	}},
	{"wait ends with its context", store.Settings{}, func(r *rig) {
		w := r.st.Watch(store.Interest{})
		r.t.Cleanup(w.Close)
		ctx, cancel := context.WithCancel(r.ctx)
		out := make(chan error, 1)
		go func() { _, err := w.Wait(ctx); out <- err }()
		cancel()
		r.ErrorIs(r.waitErr(out), context.Canceled)
	}},
	{"close ends a wait as unavailable", store.Settings{}, func(r *rig) {
		w := r.st.Watch(store.Interest{})
		out := make(chan error, 1)
		go func() { _, err := w.Wait(r.ctx); out <- err }()
		w.Close()
		r.ErrorIs(r.waitErr(out), store.ErrUnavailable)
		_, err := w.Wait(r.ctx)
		r.errIs(err, store.ErrUnavailable)
		w.Close()
	}},
	{"the store's close ends all waits", store.Settings{}, func(r *rig) {
		out := make(chan error, 3)
		for range 3 {
			w := r.st.Watch(store.Interest{})
			go func() { _, err := w.Wait(r.ctx); out <- err }()
		}
		r.NoError(r.st.Close())
		for range 3 {
			r.ErrorIs(r.waitErr(out), store.ErrUnavailable)
		}
		w := r.st.Watch(store.Interest{})
		_, err := w.Wait(r.ctx)
		r.errIs(err, store.ErrUnavailable)
	}},
}

// stubAt is stub for goroutines: it asks the store for nothing.
func (r *rig) stubAt(id string, deadline time.Time) wire.Stub {
	return wire.Stub{ID: id, Kind: chat, Owner: ann, Site: "BYOLLM-" + siteA, Audience: "public", DeadlineAt: deadline.UnixMilli(), Raw: []byte(id)}
}

func (r *rig) waitErr(out <-chan error) error {
	r.t.Helper()
	select {
	case err := <-out:
		return err
	case <-time.After(patience):
		r.FailNow("a wait doesn't end")
		return nil
	}
}

func types(es []store.Event) []store.EventType {
	out := []store.EventType{}
	for _, e := range es {
		out = append(out, e.Type)
	}
	return out
}

// eventJobs answers the job ids of the job events, in order.
func eventJobs(es []store.Event) []string {
	out := []string{}
	for _, e := range es {
		if e.Job != "" {
			out = append(out, e.Job)
		}
	}
	return out
}
