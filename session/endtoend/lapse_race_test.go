package endtoend

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pushrelay/hub"
	"pushrelay/session/site"
	"pushrelay/wire"
	"pushrelay/wire/seal"
)

// TestCompleteMeetsLapse has a device report exactly when its leases end and its jobs go to another one: one of them is
// taken for each job, and both hear the truth.
func TestCompleteMeetsLapse(t *testing.T) {
	t.Parallel()
	const n = 16
	w := newWorld(t, hub.Settings{LeaseFor: 1500 * time.Millisecond, OfferFor: time.Second})
	shop, in, _ := w.site("shop")
	slots := func(b *wire.HelloBody) { b.Slots = wire.MaxSlots }
	late := w.raw(wire.RoleDaemon, "d1", slots)
	want := prompts("job", n)
	w.submit(shop, "ada", want)
	reports := map[string]string{}
	var held []wire.Grant
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
			held = append(held, g)
		}
		require.NoError(t, late.write(`{"type":"heartbeat","id":"beat",`+grants("activeLeases", held...)+"}"))
	}
	for _, g := range held {
		w.log.wait(t, 1, "shop", "sealed", g.JobID)
	}
	late.ask(wire.TypeReady, `"capabilities":[],"slots":1,"paused":true`)
	late.ask(wire.TypeHeartbeat, grants("activeLeases", held...)) // so that all end together
	ends := time.NewTimer(1490 * time.Millisecond)
	w.daemon("d2", echo)
	<-ends.C
	apart := time.NewTicker(time.Millisecond) // some before the end, some after it
	defer apart.Stop()
	for _, id := range slices.Sorted(maps.Keys(reports)) {
		require.NoError(t, late.write(reports[id]))
		<-apart.C
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
