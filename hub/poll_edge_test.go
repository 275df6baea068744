package hub

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pushrelay/hub/projection"
	"pushrelay/session"
	"pushrelay/store"
	"pushrelay/store/memory"
	"pushrelay/wire"
)

// resulting is a result that is being reported, whose answer is awaited by the caller.
func (w *world) resulting(name string, g wire.Grant) *polled {
	env, err := wire.ParseEnvelope(wire.AppendEnvelope(nil, wire.Envelope{
		RecipientKeyID: w.party("shop").keyID, SenderKeyID: w.party(name).keyID, Direction: wire.DirectionResult,
		DeadlineAt: time.Now().Add(time.Hour).UnixMilli(),
	}, strings.Repeat("B", 8)))
	require.NoError(w.t, err)
	r, call := &wire.ResultRequest{RunnerID: name, Grant: g, Envelope: env, Disposition: wire.DispositionOK}, w.call(name, wire.Dialect0)
	return w.poll(func(ctx context.Context) (session.Answer, error) { return w.hub.PollResult(ctx, call, r) })
}

// A daemon that polls reports once and gives a job up for a fetch that fails: while the store is out, both wait for it.
func TestPollsWaitForAStoreThatIsOut(t *testing.T) {
	var full *fullStore
	inWorldOf(t, Settings{}, zerolog.Nop(), func(s store.RoutingStore) store.RoutingStore {
		full = &fullStore{RoutingStore: s}
		return full
	}, func(w *world) {
		grant := func(id string) wire.Grant {
			w.results(true) // there is somebody to seal
			w.publish(id)
			g := leaseOf(w.claim("d1", 0).jobs(true)[0])
			w.pending(0).seals(true)
			require.NoError(t, w.sealFor(id, "d1"))
			return g
		}
		g := grant("a")
		full.full.Store(true)
		f := w.fetch("d1", g, 20*time.Second)
		w.advance(5 * time.Second)
		require.False(t, f.over())
		full.full.Store(false)
		w.advance(storeAgain)
		_, err := wire.ParseFetchResponse(f.text(true))
		require.NoError(t, err)

		full.full.Store(true)
		p := w.resulting("d1", g)
		w.advance(10 * time.Second)
		require.False(t, p.over())
		full.full.Store(false)
		w.advance(storeAgain)
		assert.Equal(t, `{"accepted":true,"state":"done"}`, string(p.text(true)))

		g = grant("b")
		full.full.Store(true)
		f, p = w.fetch("d1", g, 15*time.Second), w.resulting("d1", g)
		w.advance(15 * time.Second)
		require.True(t, f.over())
		assert.Equal(t, wire.CodeServerError, wire.AsError(f.err).Code, "no longer than a fetch is held")
		require.False(t, p.over())
		w.advance(resultsInsist - 15*time.Second + storeAgain)
		require.True(t, p.over())
		assert.Equal(t, wire.CodeServerError, wire.AsError(p.err).Code, "before its client gives up")
		full.full.Store(false)
	})
}

// A revocation that comes while a request is on its way to be held finds it all the same.
func TestRevocationOfWhoIsAboutToBeHeld(t *testing.T) {
	refused := func(w *world, p *polled, code wire.ErrorCode) {
		w.t.Helper()
		w.advance(150 * time.Millisecond)
		require.True(w.t, p.over())
		assert.Equal(w.t, code, wire.AsError(p.err).Code)
	}
	// once replaces the projection when the request gets there, and lets it be applied before the request goes on.
	once := func(w *world, change func()) func() {
		done := false
		return func() {
			if !done {
				done = true
				change()
				<-time.After(100 * time.Millisecond)
			}
		}
	}
	t.Run("claim", func(t *testing.T) {
		inWorld(t, Settings{}, func(w *world) {
			act := once(w, func() { require.NoError(t, w.hub.Replace(w.parse(w.basic().MarkRevoked("d1", true)))) })
			w.store.onHeld = func(runner string) { act() }
			refused(w, w.claim("d1", long), wire.CodeRevoked)
			w.store.onHeld = nil
		})
	})
	t.Run("claim of a device that left", func(t *testing.T) {
		inWorld(t, Settings{}, func(w *world) {
			act := once(w, func() {
				require.NoError(t, w.hub.Replace(w.parse(new(projection.Example).Site("shop", w.party("shop").identity))))
			})
			w.store.onHeld = func(runner string) { act() }
			refused(w, w.claim("d1", long), wire.CodeUnauthorized)
			w.store.onHeld = nil
		})
	})
	t.Run("pending", func(t *testing.T) {
		inWorld(t, Settings{}, func(w *world) {
			w.results(true)
			w.advance(10 * time.Second)
			act := once(w, func() {
				require.NoError(t, w.hub.Replace(w.parse(new(projection.Example).Device("ada", "d1", w.party("d1").identity))))
			})
			w.store.onAttach = func(store.Party) { act() }
			refused(w, w.pending(long), wire.CodeUnauthorized)
			w.store.onAttach = nil
		})
	})
}

// Results of a site that polls come again and again; where they would keep its next jobs out, those that were answered often
// make room.
func TestResultsMakeRoomForJobs(t *testing.T) {
	for name, set := range map[string]store.Settings{
		"jobs": {JobsPerSite: 4}, "bytes": {BytesPerSite: 1 << 10}, "plenty": {},
	} {
		t.Run(name, func(t *testing.T) {
			inWorldFor(t, func(cfg *Config) {
				cfg.Store.(*switchStore).RoutingStore = memory.New(memory.Options{Settings: set})
				cfg.Settings = Settings{JobsPerSite: set.JobsPerSite, BytesPerSite: set.BytesPerSite}
			}, func(w *world) {
				run := func(ids ...string) {
					w.results(true)
					w.publish(ids...)
					jobs := w.claim("d1", 0).jobs(true)
					require.Len(t, jobs, len(ids))
					for _, j := range jobs {
						w.reportSized("d1", leaseOf(j), 600)
					}
				}
				run("a", "b")
				require.Len(t, w.results(true), 2)
				for _, after := range []time.Duration{5, 10, 20, 40} {
					w.advance(after * time.Second)
					require.Len(t, w.results(true), 2)
				}
				w.advance(80 * time.Second)
				require.Len(t, w.results(false), 2, "the sixth answer doesn't arrive, so nothing is taken for collected")
				require.Len(t, w.results(true), 2)
				w.advance(store.MaxOffer)
				if name == "plenty" {
					require.Len(t, w.results(true), 2, "there is room for all")
					return
				}
				require.Empty(t, w.results(true))
				run("c", "d", "e", "f") // there would be no room for all
				require.Len(t, w.results(true), 4, "new ones are for the site to take, whatever the quota")
			})
		})
	}
}

// A fetch that finds no memory is told to ask again before its client gives up, and gets its payload as soon as there is some.
func TestFetchesWaitForRoom(t *testing.T) {
	budget := session.NewBudget(8 << 20)
	inWorldFor(t, func(cfg *Config) { cfg.Budget = budget }, func(w *world) {
		w.results(true)
		w.publish("j")
		g := leaseOf(w.claim("d1", 0).jobs(true)[0])
		require.NoError(t, w.sealFor("j", "d1"))
		others, err := budget.Hold(t.Context(), 8<<20)
		require.NoError(t, err)
		f := w.fetch("d1", g, 0)
		w.advance(roomWait)
		require.True(t, f.over())
		assert.Equal(t, wire.CodeNotReady, wire.AsError(f.err).Code)
		f = w.fetch("d1", g, 20*time.Second)
		w.advance(12 * time.Second)
		require.False(t, f.over())
		others.Keep(0)
		w.advance(storeAgain)
		_, err = wire.ParseFetchResponse(f.text(true))
		require.NoError(t, err)
		assert.Zero(t, budget.Used())
	})
}
