package hub

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pushrelay/session"
	"pushrelay/store"
	"pushrelay/wire"
)

func endReason(t *testing.T, err error) session.Reason {
	t.Helper()
	var e *session.EndError
	require.ErrorAs(t, err, &e)
	return e.Reason
}

func TestSupersede(t *testing.T) {
	for name, closeFirst := range map[string]bool{"open, then the old one closes": false, "the old one closes, then open": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Settings{}, func(w *world) {
				site, old := w.site("shop"), w.daemon("d1", nil)
				if closeFirst {
					old.close()
				}
				fresh := w.daemon("d1", nil)
				if !closeFirst {
					require.Equal(t, session.ReasonSuperseded, old.reason())
					old.close()
				}
				require.Empty(t, fresh.reason())
				require.Equal(t, fresh.peer, w.hub.reg.daemon("d1"), "the successor stays registered")
				there, err := w.store.Present(t.Context(), store.Party{Role: store.RunnerRole, ID: "d1"})
				require.NoError(t, err)
				require.True(t, there)
				site.enqueue("j")
				require.Equal(t, []string{"j"}, w.live(site, fresh))
				w.advance(time.Minute) // presence is renewed
				site.enqueue("k")
				require.Equal(t, []string{"k"}, w.live(site, fresh))
			})
		})
	}
}

func TestLateCleanUpLeavesTheSuccessorsOffers(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site, old := w.site("shop"), w.daemon("d1", nil)
		fresh := w.daemon("d1", nil)
		site.enqueue("j")
		grants := fresh.claimed()
		require.Len(t, grants, 1)
		old.close()
		require.Empty(t, fresh.accept(grants...))
	})
}

func TestSupersededByAnotherReplica(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		d := w.daemon("d1", nil)
		_, err := w.store.Attach(t.Context(), store.Party{Role: store.RunnerRole, ID: "d1"}, "elsewhere", time.Minute)
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, session.ReasonSuperseded, d.reason())
		require.Equal(t, 1, w.obs.of(CountSuperseded))
	})
}

func TestSupersededElsewhereIsFoundByAClaim(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site, d := w.site("shop"), w.daemon("d1", nil)
		w.store.swallow.Store(true)
		_, err := w.store.Attach(t.Context(), store.Party{Role: store.RunnerRole, ID: "d1"}, "elsewhere", time.Minute)
		require.NoError(t, err)
		synctest.Wait()
		require.Empty(t, d.reason())
		site.enqueue("j")
		w.advance(10 * time.Second)
		require.Equal(t, session.ReasonSuperseded, d.reason())
		require.Empty(t, d.claimed())
	})
}

func TestWhoIsRefused(t *testing.T) {
	inWorld(t, Settings{SessionsPerSite: 1}, func(w *world) {
		wrongKey := func(a *Arrival) { a.Key = w.party("stranger").key }
		_, err := w.admit(wire.RoleDaemon, "stranger", nil)
		require.Equal(t, session.ReasonUnknown, endReason(t, err))
		_, err = w.admit(wire.RoleDaemon, "d1", wrongKey)
		require.Equal(t, session.ReasonUnknown, endReason(t, err))
		_, err = w.admit(wire.RoleSite, "stranger", nil)
		require.Equal(t, session.ReasonUnknown, endReason(t, err))
		_, err = w.admit(wire.RoleSite, "shop", wrongKey)
		require.Equal(t, session.ReasonUnknown, endReason(t, err))
		_, err = w.admit("editor", "shop", nil)
		require.Equal(t, session.ReasonBadFrame, endReason(t, err))
		_, err = w.admit(wire.RoleDaemon, "d1", func(a *Arrival) { a.Hello.Capabilities = []byte(`[{}]`) })
		require.Equal(t, session.ReasonBadFrame, endReason(t, err))
		w.site("shop")
		_, err = w.admit(wire.RoleSite, "shop", nil)
		require.Equal(t, session.ReasonBusy, endReason(t, err))
		w.store.fail.Store(true)
		_, err = w.admit(wire.RoleDaemon, "d1", nil)
		require.Equal(t, session.ReasonBusy, endReason(t, err))
		w.store.fail.Store(false)
		require.NoError(t, w.hub.Replace(w.parse(w.basic().MarkRevoked("d1", true))))
		_, err = w.admit(wire.RoleDaemon, "d1", nil)
		require.Equal(t, session.ReasonRevoked, endReason(t, err))
	})
}

func TestDirectory(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		c, found := w.hub.Caller(wire.RoleDaemon, "d1")
		require.True(t, found)
		require.Equal(t, w.party("d1").key, c.Keys[0])
		require.False(t, c.Revoked)
		c, found = w.hub.Caller(wire.RoleSite, "shop")
		require.True(t, found)
		require.Equal(t, w.party("shop").key, c.Keys[0])
		for _, role := range []string{wire.RoleDaemon, wire.RoleSite, "other"} {
			_, found = w.hub.Caller(role, "nobody")
			require.False(t, found)
		}
		require.NoError(t, w.hub.Replace(w.parse(w.basic().MarkRevoked("d1", true))))
		c, found = w.hub.Caller(wire.RoleDaemon, "d1")
		require.True(t, found)
		require.True(t, c.Revoked)
	})
}

func TestPausedDaemonGetsNothingNew(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site := w.site("shop")
		d := w.daemon("d1", func(a *Arrival) { a.Hello.Paused = true })
		site.enqueue("j")
		require.Empty(t, d.claimed())
		no := false
		require.Nil(t, d.ask(wire.TypeHeartbeat, wire.Heartbeat{ActiveLeases: []wire.Grant{}, Paused: &no}).err)
		require.Len(t, d.claimed(), 1)
	})
}

func TestHeartbeatKeepsAJobForManyLeases(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site, d := w.site("shop"), w.daemon("d1", nil)
		site.enqueue("j")
		g := d.claimed()
		d.accept(g...)
		require.Nil(t, site.seal(grantOf(site.sealRequests()[0]), "d1").err)
		for range 60 { // 20 leases
			w.advance(20 * time.Second)
			r := d.ask(wire.TypeHeartbeat, wire.Heartbeat{ActiveLeases: g})
			require.Nil(t, r.err)
			v, err := wire.Decode[wire.HeartbeatReply](r.answer)
			require.NoError(t, err)
			require.Empty(t, v.Lost)
			require.InDelta(t, time.Now().UnixMilli(), v.ServerTime, 5)
		}
		require.Len(t, take[wire.Payload](d, wire.TypePayload), 1)
		w.advance(61 * time.Second)
		require.Equal(t, g, d.lost(wire.LostLapsed))
		v, err := wire.Decode[wire.HeartbeatReply](d.ask(wire.TypeHeartbeat, wire.Heartbeat{ActiveLeases: g}).answer)
		require.NoError(t, err)
		require.Equal(t, g, v.Lost)
	})
}

func TestDrain(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site, d := w.site("shop"), w.daemon("d1", nil)
		site.enqueue("j")
		g := d.claimed()
		d.accept(g...)
		w.hub.StopClaims()
		site.enqueue("k")
		w.advance(5 * time.Second)
		require.Empty(t, d.claimed(), "no new claims")
		_, err := w.admit(wire.RoleDaemon, "d2", nil)
		require.Equal(t, session.ReasonGoingAway, endReason(t, err))
		require.Equal(t, 1, w.hub.Leases())
		w.hub.EndAll("over")
		require.Equal(t, session.ReasonGoingAway, d.reason())
		require.Equal(t, session.ReasonGoingAway, site.reason())
		require.True(t, w.hub.Snapshot().Draining)
	})
}

func TestStoreOutage(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site, d := w.site("shop"), w.daemon("d1", nil)
		w.store.fail.Store(true)
		site.enqueue("j")
		require.Empty(t, d.claimed())
		r := d.ask(wire.TypeHeartbeat, wire.Heartbeat{ActiveLeases: []wire.Grant{{JobID: "a", LeaseID: "b"}}})
		require.Equal(t, wire.CodeServerError, r.err.Code)
		require.Positive(t, r.err.RetryAfter)
		w.advance(40 * time.Second) // presence lapses meanwhile
		require.Empty(t, d.reason())
		require.Empty(t, site.reason())
		w.store.fail.Store(false)
		require.Equal(t, []string{"j"}, w.liveFor(15*time.Second, site, d))
		require.Empty(t, d.reason(), "a lapsed presence isn't a newer session")
	})
}

func TestSnapshot(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site, d := w.site("shop"), w.daemon("d1", func(a *Arrival) { a.Hello.Slots = 1 })
		site.enqueue("j", "k")
		require.Len(t, d.claimed(), 1)
		s := w.hub.Snapshot()
		require.Len(t, s.Daemons, 1)
		require.Equal(t, 1, s.Daemons[0].Leases)
		require.Len(t, s.Sites, 1)
		require.True(t, s.Sites[0].Present)
		require.Equal(t, []RouteView{{Route: store.Route{Site: "shop", Owner: "ada"}, Waiting: 1}}, s.Waiting)
	})
}

func TestRunsOnce(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) { require.Error(t, w.hub.Run(t.Context())) })
}

func TestSettingsThatMissSilenceAreRefused(t *testing.T) {
	require.NoError(t, Settings{}.Check())
	for name, s := range map[string]Settings{
		"heartbeats too rare": {HeartbeatEvery: 21 * time.Second},
		"silence over lease":  {SilenceFor: 61 * time.Second},
		"pings too rare":      {PingEvery: 30 * time.Second},
		"offer over lease":    {OfferFor: time.Minute},
		"presence once":       {PresenceEvery: 20 * time.Second},
		"drain over limit":    {DrainSpread: 30 * time.Second},
		"tiny lease":          {LeaseFor: time.Millisecond},
		"negative workers":    {Workers: -1},
		"negative offer":      {OfferFor: -1},
		"negative wait":       {MuteFor: -1},
		"negative resync":     {ResyncEvery: -1},
	} {
		require.Error(t, s.Check(), name)
	}
	_, err := New(Config{})
	require.Error(t, err)
}
