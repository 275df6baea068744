package crash

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// worlds run side by side: most of the time clients wait to come back.
const worlds = 4

// number reads a setting of the test from the environment.
func number(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	require.NoError(t, err, name)
	return n
}

// TestKilledAtRandomMoments kills relays killsByDefault times in all, or CRASH_KILLS. CRASH_SEED repeats the choices of a
// run, though not its timing.
func TestKilledAtRandomMoments(t *testing.T) {
	kills := int(number(t, "CRASH_KILLS", killsByDefault))
	seed := number(t, "CRASH_SEED", rand.Uint64())
	t.Logf("CRASH_SEED=%d CRASH_KILLS=%d", seed, kills)
	for i := range worlds {
		t.Run(fmt.Sprint("world ", i+1), func(t *testing.T) {
			t.Parallel()
			newWorld(t, seed+uint64(i)).killOften((kills + worlds - 1) / worlds)
		})
	}
}

func (w *world) killOften(kills int) {
	w.join()
	for range kills {
		w.start()
		w.liveAndDie()
		w.survey(openCopy)
		w.faultless("after a crash")
		w.renew()
	}
	w.start()
	w.listen()
	w.settle()
	w.faultless("in the end")
	w.report(kills)
	w.finish()
}

// liveAndDie lets clients work until the relay is killed: now and then while it starts.
func (w *world) liveAndDie() {
	w.t.Helper()
	if w.rng.IntN(8) == 0 {
		w.live(time.Duration(w.rng.IntN(60)) * time.Millisecond)
		w.kill()
		return
	}
	w.listen()
	w.live(time.Duration(20+w.rng.IntN(1500)) * time.Millisecond)
	if w.rng.IntN(4) == 0 { // a daemon leaves, and what it gives back may or may not be written down
		w.daemons[w.rng.IntN(len(w.daemons))].stop()
	}
	w.kill()
}

// renew replaces clients that crashed with the relay, and those that have borne enough.
func (w *world) renew() {
	for _, e := range append(w.daemons, w.sites...) {
		if e.age++; e.stop != nil && e.age < cutsBorne && w.rng.IntN(3) > 0 {
			continue
		}
		if e.stop != nil {
			e.stop()
		}
		if e.current() != nil {
			e.startSite()
		} else {
			e.startDaemon()
		}
	}
}

// report says how much was tried, so that a run that tries little is seen.
func (w *world) report(kills int) {
	var enqueued, seals, results, cancels, collected, again int
	for _, e := range w.ledger.copies() {
		one := func(n *int, ok bool) {
			if ok {
				*n++
			}
		}
		one(&enqueued, e.enqueued)
		one(&results, e.reported != "")
		one(&cancels, e.cancelled)
		one(&collected, e.collected)
		one(&again, e.runs > 1)
		seals += len(e.sealed)
	}
	w.t.Logf("%d kills: acknowledged %d enqueues, %d seals, %d results, %d cancels, %d collects; %d jobs ran more than once",
		kills, enqueued, seals, results, cancels, collected, again)
	require.Greater(w.t, results, kills, "hardly anything was tried")
}
