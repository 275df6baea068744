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
	"pushrelay/wire"
)

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
	want := prompts("job", 60)
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
				job, err := wire.ParseClaimed(wire.Dialect2, raw)
				if err != nil {
					continue
				}
				g := grants("grants", wire.Grant{JobID: job.Stub.ID, LeaseID: job.Lease.ID})
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
	for i := range 12 {
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
	var storm sync.WaitGroup
	for _, name := range []string{"d1", "d2"} {
		d, _ := w.daemon(name, counted.counting(echo))
		storm.Go(func() {
			for range 150 {
				d.Pause()
				d.Resume()
			}
		})
	}
	want := prompts("job", 80)
	w.submit(shop, "ada", want)
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
			assert.Less(t, time.Since(taken), soon)
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
