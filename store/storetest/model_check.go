package storetest

import (
	"sort"
	"strings"
	"time"

	"pushrelay/store"
	"pushrelay/wire"
)

// check compares all that can be read with the model, and holds the invariants.
func (s *subject) check() {
	s.checkJobs()
	s.checkLists()
	s.checkRunners()
	s.checkSites()
	if !s.rig.f.Gaps.SharedMemory {
		s.checkTotals()
	}
	s.checkEvents()
	s.m.settleTurns()
}

func (s *subject) checkJobs() {
	r := s.rig
	for k := range s.published {
		got, err := r.st.Job(r.ctx, k.Site, k.Job)
		want := s.m.jobs[k]
		if want == nil {
			r.ErrorIs(err, store.ErrNotFound, k.Job)
			continue
		}
		r.NoError(err, k.Job)
		s.before[k] = s.sameJob(want, got)
	}
}

// sameJob compares what a read shows; what the contract leaves open of done jobs is left out.
func (s *subject) sameJob(want *mjob, got store.Job) store.Job {
	r := s.rig
	w := want.Job
	w.Payload, w.Result = int64(len(want.payload.Raw)), int64(len(want.result.Raw))
	if w.Offered {
		w.WindowEnds = time.Time{}
	}
	if want.dropped != "" {
		r.Equal(store.Done, got.State)
		return got
	}
	if w.State == store.Done {
		w.WindowEnds, w.LeaseEnds, w.Cancelled = got.WindowEnds, got.LeaseEnds, got.Cancelled
		w.Takes, w.Waits, w.Lapses = got.Takes, got.Waits, got.Lapses
	}
	if w.Collected {
		w.Stub, w.Since, w.EnqueuedAt, w.RunnerOwner, w.Device = got.Stub, got.Since, got.EnqueuedAt, got.RunnerOwner, got.Device
		w.Identity = wire.PublicIdentity{}
	}
	if s.m.still() {
		w.WindowEnds, w.LeaseEnds, w.EnqueuedAt, w.Since, w.Deadline = got.WindowEnds, got.LeaseEnds, got.EnqueuedAt, got.Since, got.Deadline
	}
	r.Equal(w, got)
	if prev, ok := s.before[want.Key]; ok && prev.State == store.Done && prev.EnqueuedAt.Equal(got.EnqueuedAt) && !got.Collected {
		r.Equal(prev, got, "a done job never changes")
	}
	return got
}

// checkLists compares the pages of both sites and what waits there.
func (s *subject) checkLists() {
	r := s.rig
	for _, site := range modelSites {
		var all, awaiting, finished []*mjob
		waiting := map[store.Queue]int{}
		for _, j := range s.m.jobs {
			if j.Site != site || !j.live() {
				continue
			}
			all = append(all, j)
			if j.awaits() {
				awaiting = append(awaiting, j)
			}
			if j.State == store.Done {
				finished = append(finished, j)
			}
			if j.State == store.Queued {
				waiting[j.queue]++
			}
		}
		r.Equal(inOrder(all), jobIDs(r.pages(r.st.Jobs, site, 3)))
		r.Equal(inOrder(awaiting), jobIDs(r.pages(r.st.Awaiting, site, 2)))
		r.Equal(inOrder(finished), jobIDs(r.pages(r.st.Finished, site, 2)))
		r.Equal(waiting, r.backlog(site))
		for _, j := range finished {
			env, err := r.st.ResultEnvelope(r.ctx, site, grantOfJob(j))
			r.NoError(err)
			r.Equal(j.result, env)
		}
	}
}

func inOrder(js []*mjob) []string {
	sort.Slice(js, func(a, b int) bool { return js[a].seq < js[b].seq })
	out := []string{}
	for _, j := range js {
		out = append(out, j.Key.Job)
	}
	return out
}

// checkRunners compares what each runner holds, and that no slot or lease is held twice.
func (s *subject) checkRunners() {
	r := s.rig
	leases := map[string]bool{}
	for _, runner := range modelRunners {
		held, err := r.st.Held(r.ctx, runner)
		r.NoError(err)
		var want, got, cancelled []string
		for _, j := range s.m.heldBy(runner) {
			want = append(want, j.Lease)
			if j.Cancelled {
				cancelled = append(cancelled, j.Lease)
			}
		}
		for _, j := range held {
			r.False(leases[j.Lease], "one valid grant a job")
			leases[j.Lease] = true
			got = append(got, j.Lease)
		}
		r.ElementsMatch(want, got)
		var asked []string
		for _, g := range r.cancelRequests(runner) {
			asked = append(asked, g.LeaseID)
		}
		r.ElementsMatch(cancelled, asked)
	}
}

// checkSites compares the running counts of each site with a scan.
func (s *subject) checkSites() {
	for _, site := range modelSites {
		want := store.SiteStats{Site: site}
		for _, j := range s.m.jobs {
			if j.Site != site {
				continue
			}
			if j.live() {
				want.ByState[j.State]++
			}
			want.Bytes += j.bytes()
			if j.dropped != "" && !j.Collected {
				want.Notices++
			}
		}
		s.rig.Equal(want, s.rig.siteStats(site))
	}
}

// checkTotals compares the running counts with a scan.
func (s *subject) checkTotals() {
	r := s.rig
	want := store.Stats{ByState: map[store.State]int{}}
	for _, j := range s.m.jobs {
		if j.live() {
			want.ByState[j.State]++
		}
		want.Bytes += j.bytes()
		if j.dropped != "" && !j.Collected {
			want.Notices++
		}
	}
	for _, p := range s.m.parties {
		want.Sessions += len(p.sessions)
	}
	got := r.stats()
	for k, n := range got.ByState {
		if n == 0 {
			delete(got.ByState, k)
		}
	}
	got.Sites = 0
	r.Equal(want, got)
}

// checkEvents compares each job's events in order; over jobs the order is free.
func (s *subject) checkEvents() {
	r := s.rig
	want, got := map[store.Key][]string{}, map[store.Key][]string{}
	for _, e := range s.m.events {
		k := store.Key{Site: e.Site, Job: e.Job}
		want[k] = append(want[k], eventText(&e))
	}
	for _, e := range s.tap.read() {
		if e.Job != "" {
			k := store.Key{Site: e.Site, Job: e.Job}
			got[k] = append(got[k], eventText(&e))
		}
	}
	r.Equal(want, got)
	s.m.events = nil
}

// eventText tells an event by what its type promises. The why of a cancelled job's end may be the cancel's.
func eventText(e *store.Event) string {
	parts := []string{itoa(int(e.Type)), e.Owner, e.Kind, string(e.Dialect)}
	if e.Type != store.EventQueued && e.Type != store.EventDropped && e.Type != store.EventCollected {
		parts = append(parts, e.Lease, e.Runner, e.Disposition)
	}
	if e.Type == store.EventQueued || e.Type == store.EventDropped {
		parts = append(parts, string(e.Why))
	}
	return strings.Join(parts, "|")
}

// nothingStuck lets so much time go by that every job must have ended, and then all traces.
func (s *subject) nothingStuck() {
	if s.rig.f.Gaps.NoClock {
		return
	}
	s.pass(3 * time.Minute)
	s.jump(modelReach)
	for _, j := range s.m.jobs {
		s.rig.Equal(store.Done, j.State, "stuck: "+j.Key.Job)
	}
	s.check()
	s.jump(50 * time.Hour)
	s.check()
	s.rig.Empty(s.m.jobs)
}

func (s *subject) pass(d time.Duration) {
	s.sweep() // or a step after an unswept wait would give a grace
	for d > 0 {
		n := min(d, step)
		s.rig.clock.Advance(n)
		s.m.now = s.m.now.Add(n)
		s.sweep()
		d -= n
	}
}

func (s *subject) jump(d time.Duration) {
	for _, j := range s.m.jobs {
		s.rig.False(j.held(), "a jump with a lease held would give it a grace")
	}
	s.rig.clock.Advance(d)
	s.m.now = s.m.now.Add(d)
	s.sweep()
}

func (s *subject) sweep() {
	s.rig.sweep()
	s.m.fire()
	s.unswept = 0
}
