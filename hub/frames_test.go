package hub

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pushrelay/wire"
)

func code(r *request) wire.ErrorCode {
	if r.err == nil {
		return ""
	}
	return r.err.Code
}

func TestDaemonFrames(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site, d, d2 := w.site("shop"), w.daemon("d1", nil), w.daemon("d2", func(a *Arrival) { a.Hello.Paused = true })
		site.enqueue("j")
		g := d.claimed()[0]
		d.accept(g)
		require.Nil(t, site.seal(g, "d1").err)
		unknown := wire.Grant{JobID: "j", LeaseID: "other"}
		foreign := wire.Grant{JobID: "nothing", LeaseID: "at all"}
		result := func(g wire.Grant, change func(*wire.Envelope)) wire.Result {
			e := wire.Envelope{
				RecipientKeyID: w.party("shop").keyID, SenderKeyID: w.party("d1").keyID, Direction: wire.DirectionResult,
				DeadlineAt: time.Now().Add(time.Hour).UnixMilli(),
			}
			change(&e)
			return wire.Result{Grant: g, Envelope: wire.AppendEnvelope(nil, e, "AAAA"), Disposition: wire.DispositionOK}
		}
		same := func(*wire.Envelope) {}
		for _, c := range []struct {
			name string
			who  *client
			t    wire.FrameType
			do   any
			want wire.ErrorCode
		}{
			{"ready", d, wire.TypeReady, wire.Ready{Capabilities: []byte(capabilities0), Slots: 4}, ""},
			{"ready without slots", d, wire.TypeReady, wire.Ready{Capabilities: []byte(capabilities0)}, wire.CodeBadRequest},
			{"ready of another dialect", d, wire.TypeReady, wire.Ready{Capabilities: []byte(capabilities2), Slots: 4}, wire.CodeBadRequest},
			{"accept again", d, wire.TypeAccept, wire.Grants{Grants: []wire.Grant{g}}, ""},
			{"heartbeat", d, wire.TypeHeartbeat, wire.Heartbeat{ActiveLeases: []wire.Grant{g}}, ""},
			{
				"heartbeat of another dialect", d, wire.TypeHeartbeat,
				wire.Heartbeat{ActiveLeases: []wire.Grant{}, Capabilities: []byte(capabilities2)},
				wire.CodeBadRequest,
			},
			{"fetch", d, wire.TypeFetch, wire.Fetch{Grant: g}, ""},
			{"fetch under another lease", d, wire.TypeFetch, wire.Fetch{Grant: unknown}, wire.CodeForbidden},
			{"fetch of another's", d2, wire.TypeFetch, wire.Fetch{Grant: g}, wire.CodeForbidden},
			{"fetch of nothing", d, wire.TypeFetch, wire.Fetch{Grant: foreign}, wire.CodeNotFound},
			{"result as a payload", d, wire.TypeResult, result(g, func(e *wire.Envelope) { e.Direction = wire.DirectionPayload }), wire.CodeBadRequest},
			{"result of another device", d, wire.TypeResult, result(g, func(e *wire.Envelope) { e.SenderKeyID = w.party("d2").keyID }), wire.CodeBadRequest},
			{"result for another site", d, wire.TypeResult, result(g, func(e *wire.Envelope) { e.RecipientKeyID = "BYOLLM" }), wire.CodeBadRequest},
			{"result under another lease", d, wire.TypeResult, result(unknown, same), wire.CodeForbidden},
			{"result of nothing", d, wire.TypeResult, result(foreign, same), wire.CodeNotFound},
			{"release of nothing", d, wire.TypeRelease, wire.Release{Grants: []wire.Grant{foreign}, Reason: wire.ReleaseShutdown}, ""},
			{"release without a reason", d, wire.TypeRelease, wire.Release{Grants: []wire.Grant{}}, wire.CodeBadRequest},
			{"a site's frame", d, wire.TypeEnqueue, wire.Enqueue{}, wire.CodeBadRequest},
			{"too many grants", d, wire.TypeAccept, wire.Grants{Grants: make([]wire.Grant, wire.MaxList+1)}, wire.CodeBadRequest},
			{"an empty id", d, wire.TypeAccept, wire.Grants{Grants: make([]wire.Grant, 1)}, wire.CodeBadRequest},
			{"result", d, wire.TypeResult, result(g, same), ""},
			{"fetch after the end", d, wire.TypeFetch, wire.Fetch{Grant: g}, wire.CodeTooLate},
		} {
			require.Equal(t, c.want, code(c.who.ask(c.t, c.do)), c.name)
		}
		for _, ty := range []wire.FrameType{
			wire.TypeReady, wire.TypeAccept, wire.TypeFetch, wire.TypeHeartbeat, wire.TypeResult, wire.TypeRelease, "unheard-of",
		} {
			for _, text := range []string{``, `{}`, `[]`, `{"type":1}`, `{"grants":null}`, `{"grants":7}`} {
				require.Equal(t, wire.CodeBadRequest, code(d.raw(ty, text)), string(ty)+text)
			}
		}
		require.Positive(t, w.obs.of(CountRefusedFrames))
	})
}

func TestSiteFrames(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site, d := w.site("shop"), w.daemon("d1", nil)
		site.enqueue("j")
		g := d.claimed()[0]
		d.accept(g)
		seal := func(g wire.Grant, change func(*wire.Envelope)) wire.Seal {
			e := wire.Envelope{
				RecipientKeyID: w.party("d1").keyID, SenderKeyID: w.party("shop").keyID, Direction: wire.DirectionPayload,
				DeadlineAt: time.Now().Add(time.Hour).UnixMilli(),
			}
			change(&e)
			return wire.Seal{JobID: g.JobID, LeaseID: g.LeaseID, Envelope: wire.AppendEnvelope(nil, e, "AAAA")}
		}
		same := func(*wire.Envelope) {}
		grants := wire.Grants{Grants: []wire.Grant{{JobID: "nothing", LeaseID: "x"}}}
		for _, c := range []struct {
			name string
			t    wire.FrameType
			do   any
			want wire.ErrorCode
		}{
			{"seal as a result", wire.TypeSeal, seal(g, func(e *wire.Envelope) { e.Direction = wire.DirectionResult }), wire.CodeBadRequest},
			{"seal by another key", wire.TypeSeal, seal(g, func(e *wire.Envelope) { e.SenderKeyID = "BYOLLM" }), wire.CodeBadRequest},
			{"seal to another device", wire.TypeSeal, seal(g, func(e *wire.Envelope) { e.RecipientKeyID = w.party("d2").keyID }), wire.CodeTooLate},
			{"seal of the past", wire.TypeSeal, seal(g, func(e *wire.Envelope) { e.DeadlineAt = 1 }), wire.CodeTooLate},
			{"seal of nothing", wire.TypeSeal, seal(grants.Grants[0], same), wire.CodeNotFound},
			{"seal under another lease", wire.TypeSeal, seal(wire.Grant{JobID: "j", LeaseID: "x"}, same), wire.CodeTooLate},
			{"seal", wire.TypeSeal, seal(g, same), ""},
			{"seal again", wire.TypeSeal, seal(g, same), ""},
			{"sealing of nothing", wire.TypeSealing, grants, ""},
			{"decline of nothing", wire.TypeDecline, grants, ""},
			{"collected of nothing", wire.TypeCollected, grants, ""},
			{"collected, empty", wire.TypeCollected, wire.Grants{Grants: []wire.Grant{}}, ""},
			{"cancel of nothing", wire.TypeCancel, wire.CancelJobs{JobIDs: []string{"nothing"}}, ""},
			{"cancel without jobs", wire.TypeCancel, wire.CancelJobs{}, wire.CodeBadRequest},
			{"enqueue without stubs", wire.TypeEnqueue, wire.Enqueue{}, wire.CodeBadRequest},
			{"a daemon's frame", wire.TypeReady, wire.Ready{Capabilities: []byte(`[]`), Slots: 1}, wire.CodeBadRequest},
		} {
			require.Equal(t, c.want, code(site.ask(c.t, c.do)), c.name)
		}
		for _, ty := range []wire.FrameType{
			wire.TypeEnqueue, wire.TypeSeal, wire.TypeSealing, wire.TypeDecline, wire.TypeCollected, wire.TypeCancel, "unheard-of",
		} {
			for _, text := range []string{``, `{}`, `[]`, `{"type":1}`, `{"grants":7}`} {
				require.Equal(t, wire.CodeBadRequest, code(site.raw(ty, text)), string(ty)+text)
			}
		}
	})
}

func TestEnqueueAnswersEachStub(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site := w.site("shop")
		r := site.ask(wire.TypeEnqueue, wire.Enqueue{Stubs: []jsonValue{
			w.stub("good", nil),
			w.stub("strange audience", func(s *wire.Stub) { s.Audience = "team" }),
			w.stub("another key", func(s *wire.Stub) { s.Site = w.party("d1").keyID }),
			w.stub("late", func(s *wire.Stub) { s.DeadlineAt = 1 }),
			jsonValue(`{"id":"half"}`),
			jsonValue(`7`),
			w.stub("good", nil),
			w.stub("no consent", func(s *wire.Stub) { s.Owner = "nobody" }),
		}})
		require.Nil(t, r.err)
		v, err := wire.Decode[wire.EnqueueReply](r.answer)
		require.NoError(t, err)
		require.Len(t, v.Jobs, 8)
		want := []struct{ id, state, code string }{
			{"good", "queued", ""},
			{"strange audience", "", "bad-request"},
			{"another key", "", "forbidden"},
			{"late", "", "too-late"},
			{"half", "", "bad-request"},
			{"", "", "bad-request"},
			{"good", "queued", ""},
			{"no consent", "queued", ""},
		}
		for i, j := range v.Jobs {
			require.Equal(t, want[i].id, j.JobID)
			require.Equal(t, want[i].state, j.State, j.JobID)
			require.Equal(t, want[i].code, j.Error, j.JobID)
			require.Equal(t, want[i].code == "too-late", j.ServerTime != 0)
		}
	})
}

// TestEnvelopesDontKeepTheirFrames: what a frame carries beside its envelope is ignored, and must not be kept either.
func TestEnvelopesDontKeepTheirFrames(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		site, d := w.site("shop"), w.daemon("d1", nil)
		site.enqueue("j")
		g := d.claimed()[0]
		d.accept(g)
		pad := `"pad":"` + strings.Repeat("x", 64<<10) + `"`
		overwrite := func(r *request) {
			require.Nil(t, r.err)
			for i := range r.frame {
				r.frame[i] = '!'
			}
		}
		overwrite(site.raw(wire.TypeSeal, fmt.Sprintf(`{"type":"seal","id":"1","jobId":%q,"leaseId":%q,"envelope":%s,%s}`,
			g.JobID, g.LeaseID, w.payloadFor("d1"), pad)))
		r := d.ask(wire.TypeFetch, wire.Fetch{Grant: g})
		require.Nil(t, r.err)
		require.Contains(t, string(r.answer), "AAAA")
		site.close()
		overwrite(d.raw(wire.TypeResult, fmt.Sprintf(`{"type":"result","id":"1","grant":{"jobId":%q,"leaseId":%q},"disposition":"ok","envelope":%s,%s}`,
			g.JobID, g.LeaseID, w.resultOf("d1"), pad)))
		env, err := w.store.ResultEnvelope(t.Context(), "shop", g)
		require.NoError(t, err)
		require.Contains(t, string(env.Raw), "BBBB")
	})
}
