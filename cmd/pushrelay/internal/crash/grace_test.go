package crash

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A device works on while the relay is down for longer than its lease, and comes back after another device of its owner:
// its jobs stay its own, and none is run twice.
func TestLeasesOutlastARestart(t *testing.T) {
	t.Parallel()
	const lease = 5 * time.Second // on a busy machine a shorter one ends by itself
	w := newWorld(t, 1, "--lease", lease.String())
	steady, other, site := w.daemons[0], w.daemons[1], w.sites[0]
	steady.gate = newGate()
	site.startSite()
	steady.startDaemon()
	w.start()
	w.listen()
	steady.gate.set(true)
	finish := make(chan struct{})
	const jobs = 3
	for range jobs {
		e := w.newJob(site.name)
		e.owner, e.held = "owner-a", finish
		w.ledger.add(e)
		site.submit(e.id)
	}
	running := func(e *entry) bool { return e.runs > 0 }
	w.until("running", jobs, running)

	steady.gate.set(false)
	w.kill()
	w.survey(openCopy)
	other.startDaemon()
	require.True(t, pause(w.life, lease+lease/2))
	w.start()
	w.listen()
	w.connected(other)
	require.True(t, pause(w.life, lease/2)) // the other one could take them now, were they given back
	steady.gate.set(true)
	w.connected(steady)
	require.True(t, pause(w.life, lease/2)) // with heartbeats
	close(finish)
	w.settle()
	w.faultless("in the end")
	for _, e := range w.ledger.copies() {
		require.Equal(t, 1, e.runs, "job %s", e.id)
	}
	w.finish()
}
