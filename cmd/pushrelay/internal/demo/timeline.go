package demo

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"pushrelay/session/daemon"
	"pushrelay/session/site"
)

// Steps of a job, as they are shown.
const (
	published = "published"
	enqueued  = "enqueued"
	offered   = "offered"
	accepted  = "accepted"
	sealed    = "sealed"
	running   = "running"
	reported  = "reported"
	requeued  = "requeued"
	cancelled = "cancel asked"
	stopped   = "stopped"
	killed    = "killed"
	away      = "site away"
	back      = "site back"
	done      = "done"
	dropped   = "dropped"
)

// step is one thing that happened to a job. The clock is this machine's: everything runs on it.
type step struct {
	at   time.Time
	what string
	who  string // a runner or a site
	note string
}

// story is what happened to a job.
type story struct {
	job, site, owner, text string

	steps   []step
	results []site.Result // each counts: there must be one
	notices []string
}

// first answers the first step of that name at or after a time.
func (s *story) first(what string) (step, bool) {
	i := slices.IndexFunc(s.steps, func(st step) bool { return st.what == what })
	if i < 0 {
		return step{}, false
	}
	return s.steps[i], true
}

// has reports whether a step was taken by somebody; "" is anybody.
func (s *story) has(what, who string) bool {
	return slices.ContainsFunc(s.steps, func(st step) bool { return st.what == what && (who == "" || st.who == who) })
}

// stories collects what all parts tell.
type stories struct {
	mu      sync.Mutex
	byJob   map[string]*story
	online  map[string]int // sessions that each party had
	ended   map[string]int // results by disposition, and dropped jobs
	changed chan struct{}  // closed and made anew with each change
}

func newStories() *stories {
	return &stories{byJob: map[string]*story{}, online: map[string]int{}, ended: map[string]int{}, changed: make(chan struct{})}
}

func (s *stories) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.changed)
	s.changed = make(chan struct{})
}

// begin tells of a job that is about to be published.
func (s *stories) begin(st *story) {
	s.change(func() { s.byJob[st.job] = st })
}

func (s *stories) note(job, what, who, note string, at time.Time) {
	s.change(func() {
		if st := s.byJob[job]; st != nil {
			st.steps = append(st.steps, step{at, what, who, note})
			slices.SortStableFunc(st.steps, func(a, b step) int { return a.at.Compare(b.at) })
		}
	})
}

// await waits until ready, which is called with the stories held, is true.
func (s *stories) await(ctx context.Context, what string, ready func() bool) error {
	for {
		s.mu.Lock()
		ok, changed := ready(), s.changed
		s.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, context.Cause(ctx))
		}
	}
}

// sessions answers how many sessions a party had.
func (s *stories) sessions(party string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.online[party]
}

// connects waits until a party had so many sessions.
func (s *stories) connects(ctx context.Context, party string, times int) error {
	return s.await(ctx, party+" to connect", func() bool { return s.online[party] >= times })
}

// hearDaemon takes a daemon's event.
func (s *stories) hearDaemon(runner string, e daemon.Event) {
	names := map[daemon.EventType]string{
		daemon.EventOffered: offered, daemon.EventAccepted: accepted, daemon.EventStarted: running,
		daemon.EventCanceled: stopped, daemon.EventReported: reported,
	}
	if e.Type == daemon.EventConnected {
		s.change(func() { s.online[runner]++ })
	}
	if what := names[e.Type]; what != "" {
		s.note(e.Grant.JobID, what, runner, e.Detail, e.At)
	}
}

// hearSite takes a site's event.
func (s *stories) hearSite(name string, e site.Event) {
	names := map[site.EventType]string{
		site.EventEnqueued: enqueued, site.EventSealed: sealed, site.EventRequeued: requeued,
	}
	if e.Type == site.EventConnected {
		s.change(func() { s.online[name]++ })
	}
	if what := names[e.Type]; what != "" {
		s.note(e.JobID, what, name, e.Detail, e.At)
	}
}

// hearResult takes a result that a site verified.
func (s *stories) hearResult(name string, r site.Result) {
	at := time.Now()
	s.change(func() {
		s.ended[r.Disposition]++
		if st := s.byJob[r.JobID]; st != nil {
			st.results = append(st.results, r)
		}
	})
	s.note(r.JobID, done, name, r.Disposition, at)
}

func (s *stories) hearNotice(n site.Notice) {
	s.change(func() {
		s.ended[dropped]++
		if st := s.byJob[n.JobID]; st != nil {
			st.notices = append(st.notices, n.Why)
		}
	})
}
