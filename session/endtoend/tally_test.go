package endtoend

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pushrelay/session/daemon"
	"pushrelay/wire"
)

// runs counts, by grant, how often a runner was called.
type runs struct {
	mu  sync.Mutex
	all map[wire.Grant]int
}

func (r *runs) counting(f runner) runner {
	return func(ctx context.Context, job daemon.Job) (daemon.Answer, error) {
		r.mu.Lock()
		if r.all == nil {
			r.all = map[wire.Grant]int{}
		}
		r.all[job.Grant]++
		r.mu.Unlock()
		return f(ctx, job)
	}
}

func (r *runs) onceEach(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for g, n := range r.all {
		assert.Equal(t, 1, n, "%v ran more than once", g)
	}
}

// ends waits until each job has one end, a result or a notice, and answers what it was; none may have two.
func (w *world) ends(in *inbox, ids []string) map[string]string {
	w.t.Helper()
	got := map[string]string{}
	limit := time.After(2 * patience)
	for len(got) < len(ids) {
		var id, what string
		select {
		case r := <-in.results:
			require.True(w.t, r.Verified, "%v", r.Err)
			id, what = r.JobID, r.Outcome.Outcome
		case n := <-in.notices:
			id, what = n.JobID, n.Why
		case <-limit:
			for _, id := range ids {
				if got[id] == "" {
					w.t.Errorf("%s has no end", id)
				}
			}
			w.t.Fatalf("what happened:\n%s", w.log)
		}
		require.Empty(w.t, got[id], "%s ended twice, then as %s", id, what)
		got[id] = what
	}
	for _, id := range ids {
		require.NotEmpty(w.t, got[id], id)
		w.log.wait(w.t, 1, in.owner, "collected", id)
	}
	assert.Empty(w.t, in.results)
	assert.Empty(w.t, in.notices)
	return got
}
