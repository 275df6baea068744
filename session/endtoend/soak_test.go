package endtoend

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pushrelay/hub"
)

// TestSoak lives many jobs of two sites on three devices while all connections are cut at random, one and all at once,
// also in the middle of large envelopes. Each job ends exactly once, at its own site; nothing runs twice under one grant.
func TestSoak(t *testing.T) {
	t.Parallel()
	jobs, cutsEach, over := 120, 3, 6*time.Second
	if testing.Short() {
		jobs, cutsEach, over = 60, 2, 2*time.Second
	}
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 2))
	w := newWorld(t, hub.Settings{})
	var counted runs
	var networks []*dialer
	ins, sites := map[string]*inbox{}, map[string]func(map[string]string){}
	for name, owner := range map[string]string{"shop": "ada", "blog": "bob"} {
		dial := newDialer()
		s, in, _ := w.siteOver(name, dial)
		networks, ins[name] = append(networks, dial), in
		sites[name] = func(prompts map[string]string) { w.submit(s, owner, prompts) }
	}
	for _, name := range []string{"d1", "d2", "d3"} {
		dial := newDialer()
		w.daemonOver(name, t.TempDir(), dial, counted.counting(echo))
		networks = append(networks, dial)
	}

	var going sync.WaitGroup
	ids := map[string][]string{}
	for name, submit := range sites {
		var batches []map[string]string
		for i := range jobs / 2 / 10 {
			batch := map[string]string{}
			for k := range 10 {
				id := fmt.Sprintf("%s-%d-%d", name, i, k)
				batch[id] = strings.Repeat("x", 10+random.IntN(100))
				if random.IntN(10) == 0 {
					batch[id] = strings.Repeat("x", 200_000+random.IntN(300_000))
				}
				ids[name] = append(ids[name], id)
			}
			batches = append(batches, batch)
		}
		going.Go(func() {
			pace := time.NewTicker(over / time.Duration(len(batches)))
			defer pace.Stop()
			for _, b := range batches {
				submit(b)
				<-pace.C
			}
		})
	}
	// A client waits longer after each cut, so there are few for each of them, anywhere in the time.
	cuts := cutsEach * len(networks)
	for i := range cuts {
		pause := time.NewTimer(time.Duration(random.Int64N(int64(2 * over / time.Duration(cuts)))))
		<-pause.C
		if i%7 == 6 {
			for _, n := range networks {
				n.cut(false)
			}
			continue
		}
		networks[random.IntN(len(networks))].cut(false)
	}
	going.Wait()
	for name, list := range ids {
		for id, end := range w.ends(ins[name], list) {
			assert.Equal(t, "ok", end, id)
		}
	}
	counted.onceEach(t)
	for _, name := range []string{"d1", "d2", "d3"} {
		w.log.until(t, "nothing is held", func() bool {
			held, err := w.store.Held(t.Context(), name)
			require.NoError(t, err)
			return len(held) == 0
		})
	}
}
