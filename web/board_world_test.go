package web

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"pushrelay/hub"
)

// shelf is a source that holds what a test puts there, and counts what it is asked.
type shelf struct {
	mu     sync.Mutex
	jobs   []hub.JobView
	fail   bool
	why    []hub.Obstacle
	reads  map[string]int // by job
	pages  int
	sites  int
	onPage func()
}

func newShelf(n int) *shelf {
	s := &shelf{reads: map[string]int{}}
	for i := range n {
		s.jobs = append(s.jobs, hub.JobView{
			Site: "shop", Job: fmt.Sprintf("job-%06d", i), Owner: "ada", Kind: "llm.chat", State: hub.JobQueued, EnqueuedAt: dawn, Since: dawn,
			Deadline: dawn.Add(time.Hour),
		})
	}
	return s
}

var errOut = errors.New("the store is out")

func (s *shelf) Now() time.Time { return time.Now() }

func (s *shelf) Sites(context.Context) ([]hub.SiteSummary, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sites++
	if s.fail {
		return nil, errOut
	}
	return []hub.SiteSummary{
		{Site: "other"},
		{Site: "shop", Known: true, Present: true, Sessions: 1, ByState: [hub.JobDropped + 1]int{hub.JobQueued: len(s.jobs)}},
	}, nil
}

func (s *shelf) Site(_ context.Context, id string) (hub.SiteDetail, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail {
		return hub.SiteDetail{}, errOut
	}
	return hub.SiteDetail{
		SiteSummary: hub.SiteSummary{Site: id, Known: true},
		Devices:     []hub.DeviceView{{Runner: "d1", Here: true}, {Runner: "d2", Elsewhere: true}, {Runner: "d3"}},
	}, nil
}

func (s *shelf) Jobs(_ context.Context, _ string, after uint64, most int) ([]hub.JobView, uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pages++
	if s.onPage != nil {
		s.onPage()
	}
	if s.fail {
		return nil, 0, errOut
	}
	end := min(int(after)+most, len(s.jobs))
	page := append([]hub.JobView{}, s.jobs[after:end]...)
	if end == len(s.jobs) {
		return page, 0, nil
	}
	return page, uint64(end), nil
}

func (s *shelf) Job(_ context.Context, _, id string) (hub.JobView, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads[id]++
	for _, j := range s.jobs {
		if j.Job == id {
			return j, true, nil
		}
	}
	return hub.JobView{}, false, nil
}

func (s *shelf) Explain(_ context.Context, _ string, jobs []hub.JobView) ([][]hub.Obstacle, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([][]hub.Obstacle, len(jobs))
	for i := range out {
		out[i] = s.why
	}
	return out, nil
}

// set changes a job of the shelf.
func (s *shelf) set(i int, f func(*hub.JobView)) hub.JobView {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.jobs[i])
	return s.jobs[i]
}

func (s *shelf) read(job string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads[job]
}

// screen is a viewer that takes everything at once.
type screen struct {
	*viewer
	mu   sync.Mutex
	got  []shown
	done chan error
}

// shown is an update as a page would have read it.
type shown struct {
	Fresh bool
	Rows  *struct {
		Total, From, Loaded int
		Loading, Full       bool
		Order               []uint32
		Changed             []jobJSON
	}
	Site  *siteJSON
	Job   *detailJSON
	Sites *sitesJSON
	at    time.Time
}

func parseUpdate(t testing.TB, u update) shown {
	raw, err := json.Marshal(u)
	require.NoError(t, err)
	var s shown
	require.NoError(t, json.Unmarshal(raw, &s, json.MatchCaseInsensitiveNames(true)))
	s.at = time.Now()
	return s
}

// watch lets a viewer look at a feed until the test's context ends.
func watch(t *testing.T, ctx context.Context, f feed, l look) *screen {
	s := &screen{viewer: newViewer(), done: make(chan error, 1)}
	s.ask(l)
	go func() {
		s.done <- s.show(ctx, f, time.Now, func(u update) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.got = append(s.got, parseUpdate(t, u))
			return nil
		})
	}()
	synctest.Wait()
	return s
}

// take answers what came since it was asked last, beats left out.
func (s *screen) take() (out []shown) {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range s.got {
		if u.Rows != nil || u.Site != nil || u.Job != nil || u.Sites != nil {
			out = append(out, u)
		}
	}
	s.got = nil
	return out
}

func (s *screen) messages() int {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.got)
}

// world is a desk at work in a bubble.
type world struct {
	t    *testing.T
	ctx  context.Context
	src  *shelf
	rec  *recorder
	desk *desk
}

func inWorld(t *testing.T, src *shelf, f func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		w := &world{t: t, ctx: ctx, src: src, rec: newRecorder()}
		w.desk = newDesk(src, w.rec)
		w.desk.start(ctx)
		f(w)
		cancel()
		w.desk.end()
		w.pass(5 * time.Second) // viewers that are in a send come back
		require.EqualValues(t, maxRows, w.desk.all.left.Load(), "all room is given back")
		require.Empty(t, w.rec.boards)
	})
}

// open answers the board of the shop; it is looked at until the world ends.
func (w *world) open() *board {
	f, _, leave, ok := w.desk.enter("shop")
	require.True(w.t, ok)
	context.AfterFunc(w.ctx, leave)
	b, isBoard := f.(*board)
	require.True(w.t, isBoard)
	return b
}

// enqueue publishes a job.
func (w *world) enqueue(id string) {
	w.src.mu.Lock()
	w.src.jobs = append(w.src.jobs, hub.JobView{Site: "shop", Job: id, Owner: "ada", Kind: "llm.chat", State: hub.JobQueued})
	w.src.mu.Unlock()
	w.rec.apply([]hub.Change{change(hub.ChangeQueued, "shop", id, time.Now())})
}

func (w *world) pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}
