package hub

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pushrelay/store"
	"pushrelay/wire"
)

func TestWholeLife(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site, d := w.site("shop"), w.daemon("d1", nil)
		require.Contains(t, d.welcome.Sites, w.party("shop").keyID)
		require.Equal(t, int64(60_000), d.welcome.LeaseMs)
		site.enqueue("j1")
		grants := d.claimed()
		require.Len(t, grants, 1)
		require.Empty(t, site.sealRequests(), "nobody accepted yet")
		require.Empty(t, d.accept(grants...))
		seals := site.sealRequests()
		require.Len(t, seals, 1)
		require.Equal(t, w.party("d1").identity, seals[0].Device)
		require.Equal(t, "d1", seals[0].RunnerID)

		r := d.ask(wire.TypeFetch, wire.Fetch{Grant: grants[0]})
		require.Equal(t, wire.CodeNotReady, r.err.Code)

		require.Nil(t, site.seal(grantOf(seals[0]), "d1").err)
		payloads := take[wire.Payload](d, wire.TypePayload)
		require.Len(t, payloads, 1)
		require.JSONEq(t, string(w.payloadFor("d1")), string(payloads[0].Envelope))

		require.Nil(t, d.complete(grants[0]).err)
		results := site.results()
		require.Len(t, results, 1)
		require.Equal(t, "ada", results[0].RunnerOwner)
		require.JSONEq(t, string(w.resultOf("d1")), string(results[0].Envelope))

		again := d.complete(grants[0])
		require.Nil(t, again.err)
		require.Contains(t, string(again.answer), `"duplicate":true`)

		site.collect(grants[0])
		w.advance(time.Hour)
		require.Empty(t, site.results(), "collected is collected")
		require.Zero(t, w.hub.Leases())
	})
}

func TestManyJobsShareFramesAndSlots(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site, d1, d2 := w.site("shop"), w.daemon("d1", nil), w.daemon("d2", nil)
		var ids []string
		for i := range 50 {
			ids = append(ids, fmt.Sprintf("j%d", i))
		}
		site.enqueue(ids...)
		require.ElementsMatch(t, ids, w.live(site, d1, d2))
		stats, err := w.store.Stats(t.Context())
		require.NoError(t, err)
		require.Zero(t, stats.ByState[store.Queued])
	})
}

func TestClaimsNeverExceedSlots(t *testing.T) {
	inWorld(t, Settings{UnsealedPerRoute: 4}, func(w *world) {
		site := w.site("shop")
		d := w.daemon("d1", func(a *Arrival) { a.Hello.Slots = 2 })
		site.enqueue("a", "b", "c")
		first := d.claimed()
		require.Len(t, first, 2)
		d.accept(first...)
		require.Empty(t, d.claimed())
		d.ask(wire.TypeRelease, wire.Release{Grants: first[:1], Reason: wire.ReleaseRefused})
		second := d.claimed()
		require.Len(t, second, 1)
		require.Equal(t, "c", second[0].JobID)
	})
}

func TestLeastLoadedIsAskedFirst(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site := w.site("shop")
		d1, d2 := w.daemon("d1", nil), w.daemon("d2", nil)
		site.enqueue("a")
		site.enqueue("b")
		require.Len(t, d1.claimed(), 1)
		require.Len(t, d2.claimed(), 1)
	})
}

func TestClaimsWithinOneFrameSize(t *testing.T) {
	inWorld(t, Settings{UnsealedPerRoute: 64}, func(w *world) {
		site := w.site("shop")
		var f wire.Enqueue
		for i := range 40 {
			f.Stubs = append(f.Stubs, w.stub(fmt.Sprintf("%0256d", i), nil))
		}
		require.Nil(t, site.ask(wire.TypeEnqueue, f).err)
		d := w.daemon("d1", func(a *Arrival) { a.Hello.Slots = 64 })
		for _, frame := range d.frames {
			require.LessOrEqual(t, len(frame), wire.MaxTextBytes)
		}
		require.NotEmpty(t, d.claimed())
	})
}

func TestAcceptTooLate(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site, d1 := w.site("shop"), w.daemon("d1", nil)
		site.enqueue("j")
		grants := d1.claimed()
		require.Len(t, grants, 1)
		w.advance(4 * time.Second)
		require.Empty(t, d1.lost(wire.LostUnaccepted))
		w.advance(1100 * time.Millisecond)
		require.Equal(t, grants, d1.lost(wire.LostUnaccepted))
		require.Equal(t, grants, d1.accept(grants...), "it is gone")
		require.Empty(t, d1.claimed(), "it is deaf until it says ready")
		require.Empty(t, site.notices(wire.TypeRequeued), "it was never accepted")

		d2 := w.daemon("d2", nil)
		other := d2.claimed()
		require.Len(t, other, 1)
		d2.accept(other...)
		site.enqueue("k")
		for _, g := range d2.claimed() {
			d2.ask(wire.TypeRelease, wire.Release{Grants: []wire.Grant{g}, Reason: wire.ReleaseRefused})
		}
		require.Empty(t, d1.claimed())
		require.Nil(t, d1.ask(wire.TypeReady, wire.Ready{Capabilities: []byte(capabilities0), Slots: 4}).err)
		require.Len(t, d1.claimed(), 1)
	})
}

func TestCutBeforeAcceptMovesAtOnce(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site, d1 := w.site("shop"), w.daemon("d1", nil)
		site.enqueue("j")
		require.Len(t, d1.claimed(), 1)
		d2 := w.daemon("d2", nil)
		require.Empty(t, d2.claimed())
		d1.close()
		require.Len(t, d2.claimed(), 1)
	})
}

func TestAcceptedSurvivesACut(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site, d := w.site("shop"), w.daemon("d1", nil)
		site.enqueue("j")
		grants := d.claimed()
		d.accept(grants...)
		d.close()
		require.Nil(t, site.seal(grantOf(site.sealRequests()[0]), "d1").err)
		back := w.daemon("d1", func(a *Arrival) { a.Hello.ActiveLeases = grants })
		require.Empty(t, back.welcome.Lost)
		r := back.ask(wire.TypeFetch, wire.Fetch{Grant: grants[0]})
		require.Nil(t, r.err)
		require.Nil(t, back.complete(grants[0]).err)
		require.Len(t, site.results(), 1)
	})
}

func TestReturnWithoutItsLeases(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site, d := w.site("shop"), w.daemon("d1", nil)
		site.enqueue("j")
		grants := d.claimed()
		d.accept(grants...)
		d.close()
		ghost := wire.Grant{JobID: "x", LeaseID: "y"}
		back := w.daemon("d1", func(a *Arrival) { a.Hello.ActiveLeases = []wire.Grant{ghost} })
		require.Equal(t, []wire.Grant{ghost}, back.welcome.Lost)
		moved := site.notices(wire.TypeRequeued)
		require.Len(t, moved, 1)
		require.Equal(t, string(store.WhyAbandoned), moved[0].Why)
		require.Len(t, back.claimed(), 1, "it is free again")
		require.Empty(t, back.lost(""), "it knows that it came without")
	})
}
