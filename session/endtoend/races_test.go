package endtoend

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pushrelay/hub"
	"pushrelay/hub/projection"
	"pushrelay/session/daemon"
	"pushrelay/session/site"
	"pushrelay/wire"
	"pushrelay/wire/seal"
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

// TestCompleteMeetsLapse has a device report exactly when its leases end and its jobs go to another one: one of them is
// taken for each job, and both hear the truth.
func TestCompleteMeetsLapse(t *testing.T) {
	t.Parallel()
	const n = 24
	w := newWorld(t, hub.Settings{LeaseFor: time.Second, OfferFor: 500 * time.Millisecond})
	shop, in, _ := w.site("shop")
	slots := func(b *wire.HelloBody) { b.Slots = wire.MaxSlots }
	late := w.raw(wire.RoleDaemon, "d1", slots)
	want := prompts("job", n)
	w.submit(shop, "ada", want)
	reports := map[string]string{}
	ends := time.NewTimer(time.Hour)
	for len(reports) < n {
		for _, g := range late.claims() {
			j, _ := w.jobs.Load(g.JobID)
			plain, err := seal.Result{Outcome: seal.OK("late"), Ran: seal.Ran{Model: "m", BackendClass: "process"}}.Encode()
			require.NoError(t, err)
			e, err := seal.Seal(late.keys, w.keys["shop"].Public(), seal.Context{
				JobID: g.JobID, Direction: wire.DirectionResult, DeadlineAt: j.(site.Job).Deadline.UnixMilli(),
			}, plain)
			require.NoError(t, err)
			reports[g.JobID] = fmt.Sprintf(`{"type":"result","id":%q,"grant":{"jobId":%q,"leaseId":%q},"disposition":"ok","envelope":%s}`,
				g.JobID, g.JobID, g.LeaseID, e.Raw)
			require.NoError(t, late.write(fmt.Sprintf(`{"type":"accept","id":"a-%s",%s}`, g.JobID, grants("grants", g))))
			ends.Reset(970 * time.Millisecond) // of the last one; earlier ones lapse first
		}
	}
	w.daemon("d2", echo)
	<-ends.C
	for _, id := range slices.Sorted(maps.Keys(reports)) {
		require.NoError(t, late.write(reports[id]))
	}
	taken := map[string]bool{}
	for answers := 0; answers < n; answers++ {
		late.until("an answer", func(s said, frame []byte) bool {
			if reports[s.Re] == "" {
				return false
			}
			taken[s.Re] = s.Type == wire.TypeReply && strings.Contains(string(frame), `"accepted":true`)
			return true
		})
	}
	byLate := 0
	for range n {
		r := next(w, in.results)
		if r.RunnerID == "d1" {
			byLate++
		}
		require.True(t, r.Verified, "%v", r.Err)
		heard, first := taken[r.JobID]
		require.True(t, first, "%s ended twice", r.JobID)
		delete(taken, r.JobID)
		assert.Equal(t, heard, r.RunnerID == "d1", "%s: the first device was told %v, the site got %s", r.JobID, heard, r.RunnerID)
	}
	w.log.until(t, "nothing is held", func() bool {
		held, err := w.store.Held(t.Context(), "d2")
		return err == nil && len(held) == 0
	})
	assert.Empty(t, in.results)
	t.Logf("%d of %d were taken from the first device", byLate, n)
}

// TestCancelMeetsComplete cancels each job at the moment when it begins, and its runner answers at once.
func TestCancelMeetsComplete(t *testing.T) {
	t.Parallel()
	w := newWorld(t, hub.Settings{})
	shop, in, _ := w.site("shop")
	began := make(chan string, 1000)
	var counted runs
	work := counted.counting(func(ctx context.Context, job daemon.Job) (daemon.Answer, error) {
		began <- job.Grant.JobID
		return echo(ctx, job)
	})
	w.daemon("d1", work)
	w.daemon("d2", work)
	want := prompts("job", 200)
	cancelled := make(chan error, len(want))
	go func() {
		for range want {
			id := <-began
			go func() {
				_, err := shop.Cancel(t.Context(), id)
				cancelled <- err
			}()
		}
	}()
	w.submit(shop, "ada", want)
	for id, end := range w.ends(in, slices.Collect(maps.Keys(want))) {
		assert.Contains(t, []string{"ok", "canceled", "cancelled"}, end, id)
	}
	for range want {
		require.NoError(t, next(w, cancelled))
	}
	counted.onceEach(t)
}

// TestReleaseMeetsPayload has a device give jobs back while their payloads are on their way to it.
func TestReleaseMeetsPayload(t *testing.T) {
	t.Parallel()
	w := newWorld(t, hub.Settings{})
	shop, in, _ := w.site("shop")
	var counted runs
	fickle := w.raw(wire.RoleDaemon, "d1", nil)
	w.daemon("d2", counted.counting(echo))
	quit := make(chan struct{})
	var fickles sync.WaitGroup
	fickles.Go(func() {
		for {
			var frame []byte
			select {
			case frame = <-fickle.frames:
			case <-quit:
				return
			}
			f, err := wire.Decode[wire.Claimed](frame)
			if err != nil || f.Type != wire.TypeClaimed {
				continue
			}
			for _, raw := range f.Jobs {
				stub, lease, err := wire.ParseClaimed(wire.Dialect2, raw)
				if err != nil {
					continue
				}
				g := grants("grants", wire.Grant{JobID: stub.ID, LeaseID: lease.ID})
				if fickle.write(`{"type":"accept","id":"a",`+g+`}`) != nil {
					return
				}
				asked := w.log.changes() // the site is asked to seal, or has sealed: something happens
				select {
				case <-asked:
				case <-quit:
					return
				}
				if fickle.write(`{"type":"release","id":"r","reason":"refused",`+g+`}`) != nil {
					return
				}
			}
		}
	})
	want := map[string]string{}
	for i := range 40 {
		want[fmt.Sprint("job-", i)] = strings.Repeat("x", 100+i%2*200_000)
	}
	w.submit(shop, "ada", want)
	for id, end := range w.ends(in, slices.Collect(maps.Keys(want))) {
		assert.Equal(t, "ok", end, id)
	}
	counted.onceEach(t)
	close(quit)
	fickles.Wait()
}

// TestPauseStorm pauses and resumes devices without end while jobs come.
func TestPauseStorm(t *testing.T) {
	t.Parallel()
	// What a paused device gives back isn't offered to it again for a while; a short one here.
	w := newWorld(t, hub.Settings{BackendDownWait: 200 * time.Millisecond, ResyncEvery: time.Second})
	shop, in, _ := w.site("shop")
	var counted runs
	stop := make(chan struct{})
	var storm sync.WaitGroup
	for _, name := range []string{"d1", "d2"} {
		d, _ := w.daemon(name, counted.counting(echo))
		storm.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					d.Resume()
					return
				default:
				}
				d.Pause()
				d.Resume()
			}
		})
	}
	want := prompts("job", 120)
	w.submit(shop, "ada", want)
	half := time.NewTimer(time.Second)
	defer half.Stop()
	<-half.C
	close(stop)
	storm.Wait()
	for id, end := range w.ends(in, slices.Collect(maps.Keys(want))) {
		assert.Equal(t, "ok", end, id)
	}
	counted.onceEach(t)
}

// TestConsentFlaps gives and takes ada's consent again and again while her jobs run. Whenever it is taken, none of her
// devices holds one of them a second later; once it stands, each ends once.
func TestConsentFlaps(t *testing.T) {
	t.Parallel()
	w := newWorld(t, hub.Settings{ResyncEvery: time.Minute})
	shop, in, _ := w.site("shop")
	var counted runs
	proceed := make(chan struct{})
	work := counted.counting(func(ctx context.Context, job daemon.Job) (daemon.Answer, error) {
		select {
		case <-proceed:
			return echo(ctx, job)
		case <-ctx.Done():
			return daemon.Answer{}, ctx.Err()
		}
	})
	w.daemon("d1", work)
	w.daemon("d2", work)
	want := prompts("job", 20)
	w.submit(shop, "ada", want)
	stands := func(e *projection.Example) { e.Consent("ada", "shop") }
	none := func(*projection.Example) {}
	held := func() int {
		n := 0
		for _, name := range []string{"d1", "d2"} {
			list, err := w.store.Held(t.Context(), name)
			require.NoError(t, err)
			n += len(list)
		}
		return n
	}
	for i := range 50 {
		if i%2 == 0 { // let something be claimed
			w.log.until(t, "something is held", func() bool { return held() > 0 })
		}
		w.replace(none)
		taken := time.Now()
		if i%5 != 0 { // otherwise the next one comes at once
			w.log.until(t, "nothing is held without consent", func() bool { return held() == 0 })
			assert.Less(t, time.Since(taken), time.Second)
		}
		w.replace(stands)
	}
	close(proceed)
	for id, end := range w.ends(in, slices.Collect(maps.Keys(want))) {
		assert.Equal(t, "ok", end, id)
	}
	counted.onceEach(t)
	w.log.until(t, "nothing is held", func() bool { return held() == 0 })
}
