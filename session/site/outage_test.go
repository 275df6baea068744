package site

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pushrelay/session/internal/fake"
	"pushrelay/wire"
)

// While the relay can't keep some payloads, others go on, and none is given up: the relay would count its job as not sealed.
func TestSealsOutliveTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		var ids []string
		for i := range 2 * parallelSeals {
			ids = append(ids, fmt.Sprint("held-", i))
		}
		w.submit(append(jobs(ids...), job("free"))...)
		var mu sync.Mutex
		out := true
		tries := map[string][]byte{}
		w.conn.On(wire.TypeSeal, func(_ context.Context, frame []byte) ([]byte, error) {
			f, err := wire.Decode[wire.Seal](frame)
			require.NoError(t, err)
			mu.Lock()
			defer mu.Unlock()
			if first := tries[f.JobID]; first != nil {
				assert.Equal(t, first, []byte(f.Envelope), "what the relay may have isn't sealed anew")
			}
			tries[f.JobID] = f.Envelope
			if out && f.JobID != "free" {
				return nil, wire.Unavailable(7, "store")
			}
			return wire.AppendStateReply(nil, f.ID, "ready"), nil
		})
		w.ask(ids...)
		<-time.After(10 * time.Minute)
		w.ask(ids...) // a copy changes nothing
		w.ask("free")
		synctest.Wait()
		assert.Contains(t, tries, "free")
		before := len(fake.Sent[wire.Seal](t, w.conn, wire.TypeSeal))
		assert.InDelta(t, 10*60/7*len(ids), before, float64(len(ids)*2), "each comes again when the relay asked it to")

		mu.Lock()
		out = false
		mu.Unlock()
		<-time.After(10 * time.Minute)
		synctest.Wait()
		assert.Len(t, fake.Sent[wire.Seal](t, w.conn, wire.TypeSeal), before+len(ids))
		assert.Empty(t, w.declined())
	})
}

// A job that is withdrawn meanwhile isn't handed over any more.
func TestWithdrawnInTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.submit(job("a"))
		w.conn.On(wire.TypeSeal, func(context.Context, []byte) ([]byte, error) { return nil, wire.Unavailable(7, "store") })
		w.ask("a")
		synctest.Wait()
		_, err := w.s.Cancel(t.Context(), "a")
		require.NoError(t, err)
		<-time.After(10 * time.Minute)
		assert.Equal(t, []wire.Grant{grant("a")}, w.declined())
		assert.Len(t, fake.Sent[wire.Seal](t, w.conn, wire.TypeSeal), 1)
	})
}

// What was handled is told as soon as the relay can note it, all of it: a result that stays is counted against its site.
func TestCollectingOutlivesTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.conn.On(wire.TypeCollected, func(context.Context, []byte) ([]byte, error) { return nil, wire.Unavailable(7, "store") })
		var ids []string
		for i := range wire.MaxList + 1 {
			ids = append(ids, fmt.Sprint(i))
		}
		w.submit(jobs(ids...)...)
		for batch := range slices.Chunk(ids, 128) {
			w.ask(batch...)
			synctest.Wait()
			var done []wire.ResultJob
			for _, id := range batch {
				done = append(done, w.finished(id, "text"))
			}
			w.push(resultsFrame(done...))
		}
		<-time.After(10 * time.Minute)
		assert.Len(t, w.results, len(ids))
		w.conn.On(wire.TypeCollected, nil)
		before := len(w.collected())
		<-time.After(time.Minute)
		synctest.Wait()
		told := map[wire.Grant]bool{}
		for _, batch := range w.collected()[before:] {
			for _, g := range batch {
				told[g] = true
			}
		}
		assert.Len(t, told, len(ids))
		assert.Empty(t, w.s.toTell)
	})
}

func jobs(ids ...string) (out []Job) {
	for _, id := range ids {
		out = append(out, job(id))
	}
	return out
}
