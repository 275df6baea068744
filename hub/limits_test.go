package hub

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pushrelay/wire"
)

func TestTheWindowOfResultsIsBoundedInBytes(t *testing.T) {
	probe := &world{t: t, parties: map[string]party{}}
	size := int64(len(probe.resultOf("d1")))
	inWorld(t, Settings{OfferBytes: 2*size + size/2}, func(w *world) {
		site, d := w.site("shop"), w.daemon("d1", nil)
		var all []wire.Grant
		for _, id := range []string{"a", "b", "c"} {
			all = append(all, finish(w, site, d, id))
		}
		require.Len(t, site.results(), 2)
		site.collect(all[0])
		last := site.results()
		require.Len(t, last, 1, "its bytes are free")
		require.Equal(t, "c", last[0].JobID)
	})
}

func TestWhatAWelcomeSays(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		epoch, err := w.store.Epoch(t.Context())
		require.NoError(t, err)
		want := wire.Welcome{
			Type: wire.TypeWelcome, Epoch: epoch, ServerTime: time.Now().UnixMilli(), LeaseMs: 60_000, HeartbeatMs: 20_000,
			PingMs: 25_000, MaxFrameBytes: 8 << 20, RelayVersion: "test",
		}
		site := w.site("shop")
		want.SessionID = site.id
		require.Equal(t, want, site.welcome, "nothing of a daemon's")
		w.replace(w.without().Pause("ada", "shop").Site("other", w.party("other").identity))
		d := w.daemon("d1", nil)
		want.SessionID = d.id
		shop := w.party("shop")
		want.Sites, want.AwaitingConsent = map[string]wire.PublicIdentity{shop.keyID: shop.identity}, []string{shop.keyID}
		require.Equal(t, want, d.welcome, "no site that the owner has nothing to do with")
	})
}

func TestWhatAHeartbeatIsAnswered(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site, d := w.site("shop"), w.daemon("d1", nil)
		site.enqueue("j")
		g := d.claimed()[0]
		d.accept(g)
		w.replace(w.without().Pause("ada", "shop"))
		w.advance(5 * time.Second)
		gone := wire.Grant{JobID: "k", LeaseID: "gone"}
		v, err := wire.Decode[wire.HeartbeatReply](d.ask(wire.TypeHeartbeat, wire.Heartbeat{ActiveLeases: []wire.Grant{gone, g}}).answer)
		require.NoError(t, err)
		require.Equal(t, wire.HeartbeatReply{
			Type: wire.TypeReply, Re: "1", Cancel: []wire.Grant{}, Lost: []wire.Grant{gone}, ServerTime: time.Now().UnixMilli(),
			AwaitingConsent: []string{w.party("shop").keyID},
		}, v)
		require.Nil(t, d.ask(wire.TypeHeartbeat, wire.Heartbeat{ActiveLeases: many(wire.MaxActiveLeases)}).err)
		require.Equal(t, wire.CodeBadRequest, code(d.ask(wire.TypeHeartbeat, wire.Heartbeat{ActiveLeases: many(wire.MaxActiveLeases + 1)})))
	})
}

func many(n int) []wire.Grant {
	out := make([]wire.Grant, n)
	for i := range out {
		out[i] = wire.Grant{JobID: "j", LeaseID: time.Duration(i).String()}
	}
	return out
}

// TestOneClaimAtATimeOnARoute: while one asks the store for all that waits, nobody else does.
func TestOneClaimAtATimeOnARoute(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site, a, b := w.site("shop"), w.daemon("d1", nil), w.daemon("d2", nil)
		running, most := 0, 0
		w.store.onClaim = func() {
			running++
			most = max(most, running)
			<-time.After(time.Second)
			running--
		}
		site.enqueue("j", "k")
		site.enqueue("l")
		w.advance(4 * time.Second) // three claims at most; an offer ends after 5 s
		w.store.onClaim = nil
		require.Equal(t, 1, most)
		require.Len(t, append(a.claimed(), b.claimed()...), 3)
		held, err := w.store.Held(t.Context(), "d1")
		require.NoError(t, err)
		others, err := w.store.Held(t.Context(), "d2")
		require.NoError(t, err)
		require.Len(t, append(held, others...), 3)
	})
}
