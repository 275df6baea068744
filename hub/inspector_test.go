package hub

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pushrelay/hub/projection"
	"pushrelay/store"
	"pushrelay/wire"
)

// why answers the first obstacle of each of the shop's jobs, by job.
func (w *world) why() map[string]ObstacleCode {
	w.t.Helper()
	jobs, next, err := w.hub.Jobs(w.t.Context(), "shop", 0, 1000)
	require.NoError(w.t, err)
	require.Zero(w.t, next)
	all, err := w.hub.Inspector().Explain(w.t.Context(), "shop", jobs)
	require.NoError(w.t, err)
	out := map[string]ObstacleCode{}
	for i, j := range jobs {
		if j.State == JobQueued {
			out[j.Job] = all[i][0].Code
		}
	}
	return out
}

func (w *world) because(job string, code ObstacleCode) {
	w.t.Helper()
	require.Equal(w.t, code, w.why()[job])
}

func TestWhyInALivingRelay(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site := w.site("shop")
		site.enqueue("j")
		w.because("j", ObstacleOffline)

		site.close()
		w.because("j", ObstacleNoSite)

		d := w.daemon("d1", func(a *Arrival) { a.Hello.Slots, a.Hello.Paused = 1, true })
		w.site("shop")
		w.because("j", ObstacleAsleep)

		ready := func(kind string, paused bool) {
			require.Nil(t, d.ask(wire.TypeReady, wire.Ready{
				Capabilities: []byte(strings.ReplaceAll(capabilities0, "llm.generate", kind)), Slots: 1, Paused: paused,
			}).err)
		}
		ready("llm.chat", false)
		w.because("j", ObstacleKind)

		require.NoError(t, w.hub.Replace(w.parse(w.basic().Roster("r", "ada"))))
		ready("llm.generate", false)
		require.Empty(t, w.why(), "it was claimed")
	})
}

func TestWhyRefusedAndBusy(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site := w.site("shop")
		d := w.daemon("d1", func(a *Arrival) { a.Hello.Slots = 1 })
		site.enqueue("j")
		first := d.claimed()
		d.accept(first...)
		site.enqueue("k")
		w.because("k", ObstacleBusy)

		require.Nil(t, d.ask(wire.TypeRelease, wire.Release{Grants: first, Reason: wire.ReleaseRefused}).err)
		synctest.Wait()
		second := d.claimed()
		require.Len(t, second, 1)
		w.because("j", ObstacleBusy)
		w.advance(2 * time.Second)
		w.because("j", ObstacleBarred)

		w.daemon("d2", func(a *Arrival) { a.Hello.Slots = 1 })
		require.NotContains(t, w.why(), "j", "another takes it")
	})
}

func TestWhyFollowsTheProjection(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		w.site("shop").enqueue("j")
		shop := func() *projection.Example {
			return new(projection.Example).Site("shop", w.party("shop").identity).Device("ada", "d1", w.party("d1").identity)
		}
		for code, e := range map[ObstacleCode]*projection.Example{
			ObstaclePaused: shop().Pause("ada", "shop"), ObstacleNoConsent: shop(), ObstacleRevoked: w.basic().Revoke("ada", "shop"),
			ObstacleOffline: shop().Consent("ada", "shop"), ObstacleNoDevice: shop().Consent("ada", "shop").MarkRevoked("d1", true),
			ObstacleUnknownSite: new(projection.Example).Site("other", w.party("other").identity),
		} {
			require.NoError(t, w.hub.Replace(w.parse(e)))
			synctest.Wait()
			w.because("j", code)
		}
	})
}

func TestWhySilentAndUnsealed(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site, d := w.site("shop"), w.daemon("d1", func(a *Arrival) { a.Hello.Slots = 9 })
		site.enqueue("a", "b", "c", "d", "k")
		d.accept(d.claimed()...)
		w.because("k", ObstacleUnsealed)
		w.advance(3 * time.Second)
		w.because("k", ObstacleSiteSilent)
		w.hub.StopClaims()
		w.because("k", ObstacleDraining)
	})
}

func TestSitesAndTheirDevices(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site := w.site("shop")
		d := w.daemon("d1", nil)
		site.enqueue("j")
		g := d.claimed()
		d.accept(g...)
		_, err := w.store.Enqueue(w.t.Context(), "left", wire.Dialect0, []wire.Stub{{
			ID: "old", Kind: "llm.generate", Owner: "ada", Audience: "self", DeadlineAt: time.Now().Add(time.Hour).UnixMilli(),
		}})
		require.NoError(t, err)

		all, err := w.hub.Inspector().Sites(w.t.Context())
		require.NoError(t, err)
		require.Len(t, all, 2)
		require.Equal(t, SiteSummary{Site: "left", ByState: [JobDropped + 1]int{JobQueued: 1}}, all[0])
		require.Equal(t, SiteSummary{
			Site: "shop", Known: true, Present: true, Sessions: 1, ByState: [JobDropped + 1]int{JobAwaiting: 1},
		}, all[1])

		detail, err := w.hub.Inspector().Site(w.t.Context(), "shop")
		require.NoError(t, err)
		require.True(t, detail.Known && detail.Present && !detail.Silent)
		require.Len(t, detail.Views, 1)
		require.Equal(t, 1, detail.Views[0].Seals)
		require.Equal(t, 1, detail.Connected)
		require.Len(t, detail.Devices, 2)
		here, gone := detail.Devices[0], detail.Devices[1]
		require.Equal(t, "d1", here.Runner)
		require.True(t, here.Here)
		require.Equal(t, 1, here.Leases)
		require.Equal(t, w.party("d1").keyID, here.KeyID)
		require.False(t, here.Seen.IsZero())
		require.Equal(t, "d2", gone.Runner)
		require.False(t, gone.Here || gone.Elsewhere)
		require.True(t, gone.Seen.IsZero())

		other, err := w.hub.Inspector().Site(w.t.Context(), "left")
		require.NoError(t, err)
		require.False(t, other.Known || other.Present)
		require.Empty(t, other.Devices, "whoever has no consent there isn't named")
	})
}

// A device on another replica is in the store's presence only.
func TestADeviceElsewhereCounts(t *testing.T) {
	inWorld(t, Settings{Shared: true}, func(w *world) {
		site := w.site("shop")
		site.enqueue("j")
		w.because("j", ObstacleOffline)
		party := store.Party{Role: store.RunnerRole, ID: "d2"}
		_, err := w.store.Attach(w.t.Context(), party, "there", time.Minute)
		require.NoError(t, err)
		require.NoError(t, w.store.Seen(w.t.Context(), store.Sighting{Runner: "d2", Kinds: []string{"llm.generate"}, Slots: 1, Dialect: wire.Dialect0}))
		w.because("j", Next)
		_, err = w.store.Claim(w.t.Context(), store.Claim{
			Runner: "d2", Owner: "ada", Device: w.party("d2").keyID, Dialect: wire.Dialect0, Routes: []store.Route{{Site: "shop", Owner: "ada"}},
			Kinds: []string{"llm.generate"}, Max: 1, Slots: 1, LeaseFor: time.Minute,
		})
		require.NoError(t, err)
		site.enqueue("k")
		w.because("k", ObstacleBusy)
		require.NoError(t, w.store.Detach(w.t.Context(), party, "there"))
		w.because("k", ObstacleOffline)
	})
}

// A device that polls is known by its claims: it is free while it asks, and busy while it holds a job.
func TestADeviceThatPollsCounts(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site := w.site("shop")
		held := w.claim("d1", time.Minute)
		detail, err := w.hub.Inspector().Site(w.t.Context(), "shop")
		require.NoError(t, err)
		require.Equal(t, 1, detail.Connected)
		require.True(t, detail.Devices[0].Polls)
		require.Equal(t, []string{"llm.generate"}, detail.Devices[0].Kinds)
		site.enqueue("j")
		require.Len(t, held.jobs(true), 1)
		site.enqueue("k")
		w.because("k", ObstacleBusy)
		w.advance(pollsFor)
		detail, err = w.hub.Inspector().Site(w.t.Context(), "shop")
		require.NoError(t, err)
		require.Zero(t, detail.Connected)
	})
}

func TestJobsComeInPagesWithoutContent(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site, d := w.site("shop"), w.daemon("d1", func(a *Arrival) { a.Hello.Slots = 1 })
		var ids []string
		for i := range 7 {
			ids = append(ids, fmt.Sprint("j", i))
		}
		site.enqueue(ids...)
		g := d.claimed()[0]
		before, ok, err := w.hub.Job(w.t.Context(), "shop", g.JobID)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, JobOffered, before.State)
		require.WithinDuration(t, w.hub.now().Add(5*time.Second), before.OfferEnds, 0)
		d.accept(g)
		require.Nil(t, site.seal(g, "d1").err)
		var got []JobView
		for next := uint64(0); ; {
			var page []JobView
			page, next, err = w.hub.Jobs(w.t.Context(), "shop", next, 3)
			require.NoError(t, err)
			got = append(got, page...)
			if next == 0 {
				break
			}
		}
		require.Len(t, got, 7)
		running := got[0]
		require.Equal(t, JobRunning, running.State)
		require.Equal(t, w.party("d1").keyID, running.DeviceKeyID)
		require.EqualValues(t, len(w.payloadFor("d1")), running.PayloadBytes)
		require.NotContains(t, fmt.Sprintf("%+v", got), "AAAA", "no ciphertext")

		require.Nil(t, d.complete(g).err)
		site.collect(g)
		_, err = w.store.Cancel(w.t.Context(), "shop", []string{"j6"})
		require.NoError(t, err)
		for id, want := range map[string]JobState{g.JobID: JobCollected, "j6": JobDropped} {
			v, ok, err := w.hub.Job(w.t.Context(), "shop", id)
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, want, v.State)
		}
		_, ok, err = w.hub.Job(w.t.Context(), "shop", "never")
		require.NoError(t, err)
		require.False(t, ok)
	})
}

func TestChangesTellALife(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		changes := w.hub.Changes()
		defer changes.Close()
		site, d := w.site("shop"), w.daemon("d1", nil)
		site.enqueue("j")
		w.advance(time.Second)
		require.Equal(t, []string{"j"}, w.live(site, d))
		var got []string
		for len(got) < 7 {
			list, err := changes.Wait(w.t.Context())
			require.NoError(t, err)
			for _, c := range list {
				got = append(got, c.Type.String())
				require.Equal(t, "shop", c.Site)
				require.Equal(t, "j", c.Job)
				require.Equal(t, c.Type == ChangeDone, c.Disposition == wire.DispositionOK)
				require.Equal(t, c.Type == ChangeDone, c.Age == time.Second)
			}
		}
		require.Equal(t, []string{"queued", "offered", "accepted", "ready", "running", "done", "collected"}, got)

		ctx, cancel := context.WithCancel(w.t.Context())
		cancel()
		_, err := changes.Wait(ctx)
		require.ErrorIs(t, err, context.Canceled)
	})
}

func TestChangesGoOnAfterAnOutage(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		changes := w.hub.Changes()
		changes.w.Close() // as a connection to a broker that breaks
		list, err := changes.Wait(w.t.Context())
		require.NoError(t, err)
		require.Equal(t, []ChangeType{ChangeResync}, []ChangeType{list[0].Type})
		w.site("shop").enqueue("j")
		list, err = changes.Wait(w.t.Context())
		require.NoError(t, err)
		require.Equal(t, "j", list[0].Job)
		changes.Close()
	})
}

// What operators see must not come to hold what they may not see, whatever is added to it.
func TestViewsHoldNoContent(t *testing.T) {
	var walk func(path string, typ reflect.Type)
	walk = func(path string, typ reflect.Type) {
		switch typ.Kind() {
		case reflect.Slice, reflect.Array, reflect.Pointer:
			require.NotEqual(t, reflect.Uint8, typ.Elem().Kind(), "%s may hold bytes", path)
			walk(path, typ.Elem())
		case reflect.Struct:
			for f := range typ.Fields() {
				for _, word := range []string{"Raw", "Envelope", "Signature", "Identity", "Roster", "Member"} {
					require.NotContains(t, f.Name, word, path)
				}
				if f.Type.PkgPath() == "pushrelay/wire" || f.Type.PkgPath() == "pushrelay/hub" || f.Type.Kind() != reflect.Struct {
					walk(path+"."+f.Name, f.Type)
				}
			}
		}
	}
	for _, v := range []any{JobView{}, SiteDetail{}, SiteSummary{}, Change{}, Obstacle{}, Snapshot{}} {
		walk(reflect.TypeOf(v).Name(), reflect.TypeOf(v))
	}
}
