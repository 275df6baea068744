package daemon

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pushrelay/session"
	"pushrelay/session/internal/fake"
	"pushrelay/wire"
	"pushrelay/wire/seal"
)

func TestWholeLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := &echo{}
		w := newWorld(t, run, nil)
		w.offer("a", "b")
		synctest.Wait()
		accepts := fake.Sent[wire.Grants](t, w.conn, wire.TypeAccept)
		require.Len(t, accepts, 1, "one accept for all jobs of a push")
		assert.Equal(t, []wire.Grant{grant("a"), grant("b")}, accepts[0].Grants)

		w.payload("a", "one")
		w.payload("b", "two")
		synctest.Wait()
		got := map[string]string{}
		for _, r := range w.results() {
			got[r.Grant.JobID] = w.outcome(r).Text
		}
		assert.Equal(t, map[string]string{"a": "re: one", "b": "re: two"}, got)
		assert.Empty(t, w.files(), "an answered result is removed")
		assert.Empty(t, w.d.ledger.byGrant)
		assert.Empty(t, w.released())
	})
}

func (w *world) files() []string {
	found, err := filepath.Glob(filepath.Join(w.dir, "results", "*"))
	require.NoError(w.t, err)
	return found
}

func TestNothingRunsTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := &echo{}
		w := newWorld(t, run, nil)
		w.payload("a", "for a grant that isn't held")
		w.offer("a")
		synctest.Wait()
		w.payload("a", "one")
		w.payload("a", "one")
		synctest.Wait()
		w.payload("a", "one")
		w.offer("a")
		synctest.Wait()
		w.payload("a", "one")
		synctest.Wait()
		assert.Equal(t, 1, run.count("a"))

		w.kill()
		w.start(run)
		w.connect(newFakeConn("s2"))
		w.offer("a")
		synctest.Wait()
		w.payload("a", "one")
		synctest.Wait()
		assert.Equal(t, 1, run.count("a"), "the record on disk outlives the process")
		assert.Empty(t, w.results())
	})
}

func TestPrivateFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, &echo{}, nil)
		w.conn.Hang(wire.TypeResult)
		w.offer("a")
		synctest.Wait()
		w.payload("a", "very secret words")
		synctest.Wait()
		require.NoError(t, filepath.Walk(w.dir, func(path string, info os.FileInfo, err error) error {
			require.NoError(t, err)
			if path == w.dir {
				return nil
			}
			assert.Zero(t, info.Mode().Perm()&0o077, path)
			if info.Mode().IsRegular() {
				raw, err := os.ReadFile(path)
				require.NoError(t, err)
				assert.NotContains(t, string(raw), "secret words")
			}
			return nil
		}))
	})
}

func TestBadPayloadsAreNeverRun(t *testing.T) {
	stranger := newKeys(t)
	cases := map[string]func(w *world) []byte{
		"another sender": func(w *world) []byte {
			return sealAs(t, stranger, w.device.Public(), "a", wire.DirectionPayload, testDeadline, "x")
		},
		"another recipient": func(w *world) []byte {
			return sealAs(t, w.site, stranger.Public(), "a", wire.DirectionPayload, testDeadline, "x")
		},
		"another job": func(w *world) []byte { return w.sealed("b", "x") },
		"a deadline that has passed": func(w *world) []byte {
			return sealAs(t, w.site, w.device.Public(), "a", wire.DirectionPayload, time.Now().Add(-time.Second).UnixMilli(), "x")
		},
		"a result": func(w *world) []byte {
			return sealAs(t, w.site, w.device.Public(), "a", wire.DirectionResult, testDeadline, "x")
		},
		"the sender's name on another's work": func(w *world) []byte {
			raw := sealAs(t, stranger, w.device.Public(), "a", wire.DirectionPayload, testDeadline, "x")
			return []byte(strings.Replace(string(raw), stranger.KeyID(), w.site.KeyID(), 1))
		},
		"no envelope": func(*world) []byte { return []byte(`{"x":1}`) },
		"another shape": func(w *world) []byte {
			e, err := seal.Seal(w.site, w.device.Public(), seal.Context{
				JobID: "a", Direction: wire.DirectionPayload, DeadlineAt: testDeadline,
			}, []byte(`{"messages":[]}`))
			require.NoError(t, err)
			return e.Raw
		},
	}
	for name, envelope := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				run := &echo{}
				w := newWorld(t, run, nil)
				w.offer("a")
				synctest.Wait()
				w.push(payloadFrame(grant("a"), envelope(w)))
				synctest.Wait()
				assert.Zero(t, run.count("a"))
				assert.Empty(t, w.results())
				assert.Equal(t, map[string][]wire.Grant{wire.ReleaseRefused: {grant("a")}}, w.released())
			})
		})
	}
}

// Sites that poll sign a later deadline than the stub's; the relay could show an earlier or a later one. The earlier counts.
func TestTheEarlierDeadlineCounts(t *testing.T) {
	for name, c := range map[string]struct{ signed, want int64 }{
		"signed for a day": {testDeadline + 86_400_000, testDeadline},
		"signed earlier":   {testDeadline - 1000, testDeadline - 1000},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var seen time.Time
				w := newWorld(t, runnerFunc(func(_ context.Context, j Job) (Answer, error) {
					seen = j.Deadline
					return Answer{Text: "done"}, nil
				}), nil)
				w.offer("a")
				synctest.Wait()
				w.push(payloadFrame(grant("a"), sealAs(t, w.site, w.device.Public(), "a", wire.DirectionPayload, c.signed, "x")))
				synctest.Wait()
				assert.Equal(t, c.want, seen.UnixMilli())
				assert.Len(t, w.results(), 1)
			})
		})
	}
}

func TestOffersThatAreGivenBack(t *testing.T) {
	cases := map[string]struct {
		stub   func(w *world, s *wire.Stub)
		before func(w *world)
		reason string
	}{
		"unknown site":       {stub: func(_ *world, s *wire.Stub) { s.Site = newKeys(t).KeyID() }, reason: wire.ReleaseBackendDown},
		"unknown kind":       {stub: func(_ *world, s *wire.Stub) { s.Kind = "llm.paint" }, reason: wire.ReleaseRefused},
		"another dialect":    {stub: func(_ *world, s *wire.Stub) { s.Audience = "public" }, reason: wire.ReleaseRefused},
		"paused":             {before: func(w *world) { w.d.Pause() }, reason: wire.ReleasePause},
		"no slot":            {before: func(w *world) { w.offer("1", "2", "3", "4", "5", "6", "7", "8") }, reason: wire.ReleaseBackendDown},
		"no room in a hello": {before: func(w *world) { w.d.budget = 10 }, reason: wire.ReleaseBackendDown},
		"not trusted": {before: func(w *world) {
			w.d.cfg.TrustSite = func(string, wire.PublicIdentity) bool { return false }
			w.connect(newFakeConn("s2"))
		}, reason: wire.ReleaseRefused},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, &echo{}, nil)
				if c.before != nil {
					c.before(w)
					synctest.Wait()
				}
				s := w.stub("a")
				if c.stub != nil {
					c.stub(w, &s)
				}
				w.push(w.claimed(s))
				synctest.Wait()
				assert.Equal(t, map[string][]wire.Grant{c.reason: {grant("a")}}, w.released())
				for _, a := range fake.Sent[wire.Grants](t, w.conn, wire.TypeAccept) {
					assert.NotContains(t, a.Grants, grant("a"))
				}
			})
		})
	}
}

func TestSuccession(t *testing.T) {
	old := newKeys(t)
	for name, c := range map[string]struct{ stubOf, sealedBy func(w *world) *seal.Keys }{
		"old stub, old key": {func(*world) *seal.Keys { return old }, func(*world) *seal.Keys { return old }},
		"old stub, new key": {func(*world) *seal.Keys { return old }, func(w *world) *seal.Keys { return w.site }},
		"new stub, old key": {func(w *world) *seal.Keys { return w.site }, func(*world) *seal.Keys { return old }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, &echo{}, nil)
				link, err := seal.SignSuccession(old, w.site.Public())
				require.NoError(t, err)
				frame, err := wire.Encode(wire.Sites{
					Type: wire.TypeSites, Sites: map[string]wire.PublicIdentity{w.siteID: w.site.Public()},
					Successions: map[string][]wire.Succession{w.siteID: {link}}, AwaitingConsent: []string{},
				})
				require.NoError(t, err)
				w.push(frame)
				s := w.stub("a")
				s.Site = c.stubOf(w).KeyID()
				w.push(w.claimed(s))
				synctest.Wait()
				w.push(payloadFrame(grant("a"), sealAs(t, c.sealedBy(w), w.device.Public(), "a", wire.DirectionPayload, testDeadline, "hi")))
				synctest.Wait()
				require.Len(t, w.results(), 1, "%v", w.released())
				assert.Equal(t, "re: hi", w.outcome(w.results()[0]).Text, "sealed to the key that is listed")
			})
		})
	}
}

func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		causes := make(chan error, 1)
		w := newWorld(t, until(causes), nil)
		w.offer("running", "waiting")
		synctest.Wait()
		w.payload("running", "x")
		synctest.Wait()
		w.push(wire.AppendGrantsPush(nil, wire.TypeCancel, []wire.Grant{grant("running"), grant("waiting"), grant("none")}, ""))
		synctest.Wait()
		require.ErrorIs(t, <-causes, ErrCanceled)
		require.Len(t, w.results(), 1)
		assert.Equal(t, wire.DispositionCanceled, w.outcome(w.results()[0]).Outcome)
		assert.Equal(t, map[string][]wire.Grant{wire.ReleaseRefused: {grant("waiting")}}, w.released())
	})
}

func TestLostReportsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		causes := make(chan error, 1)
		w := newWorld(t, until(causes), nil)
		w.offer("a", "b")
		synctest.Wait()
		w.payload("a", "x")
		synctest.Wait()
		w.push(wire.AppendGrantsPush(nil, wire.TypeLost, []wire.Grant{grant("a"), grant("b")}, wire.LostUnaccepted))
		synctest.Wait()
		require.ErrorIs(t, <-causes, ErrLost)
		assert.Empty(t, w.results())
		assert.Empty(t, w.released())
		assert.Empty(t, w.files())
		assert.Len(t, fake.Sent[wire.Ready](t, w.conn, wire.TypeReady), 1, "unaccepted asks for a ready")
	})
}

func TestLostAfterTheResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, &echo{}, nil)
		w.conn.Hang(wire.TypeResult)
		w.offer("a")
		synctest.Wait()
		w.payload("a", "x")
		synctest.Wait()
		require.Len(t, w.files(), 1)
		w.push(wire.AppendGrantsPush(nil, wire.TypeLost, []wire.Grant{grant("a")}, wire.LostLapsed))
		w.cut()
		w.connect(newFakeConn("s2"))
		synctest.Wait()
		assert.Empty(t, w.files())
		assert.Empty(t, w.results())
	})
}

func TestUnavailableIsGivenBackOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, runnerFunc(func(context.Context, Job) (Answer, error) {
			return Answer{}, ErrUnavailable
		}), nil)
		w.offer("a")
		synctest.Wait()
		w.payload("a", "x")
		synctest.Wait()
		assert.Equal(t, map[string][]wire.Grant{wire.ReleaseBackendDown: {grant("a")}}, w.released())
		s := w.stub("a")
		s.Raw = wire.AppendStub(nil, s)
		again := wire.Grant{JobID: "a", LeaseID: "second"}
		w.push(wire.AppendClaimed(nil, []wire.ClaimedJob{{Stub: &s, Lease: wire.ClaimLease{
			ID: again.LeaseID, RunnerID: "runner", ExpiresAt: testDeadline,
		}}}, 1))
		synctest.Wait()
		w.push(payloadFrame(again, w.sealed("a", "x")))
		synctest.Wait()
		require.Len(t, w.results(), 1)
		assert.Equal(t, wire.DispositionError, w.outcome(w.results()[0]).Outcome)
	})
}

func TestRunnerFailures(t *testing.T) {
	cases := map[string]struct {
		run  runnerFunc
		want seal.Outcome
	}{
		"told": {
			func(context.Context, Job) (Answer, error) {
				return Answer{}, &RunError{Code: "c", Message: "m", Retryable: true}
			}, seal.Failed("c", "m", true),
		},
		"plain": {
			func(context.Context, Job) (Answer, error) { return Answer{}, errors.New("boo") },
			seal.Failed("failed", "boo", true),
		},
		"panic": {
			func(context.Context, Job) (Answer, error) { panic("secret") },
			seal.Failed("runner-panic", "the device's runner failed; try again later", true),
		},
		"not text": {
			func(context.Context, Job) (Answer, error) { return Answer{Text: "a\xffb"}, nil },
			seal.OK("a\uFFFDb"),
		},
		"too large": {
			func(context.Context, Job) (Answer, error) {
				return Answer{Text: strings.Repeat("x", 5<<20)}, nil
			},
			seal.Failed("result-too-large", "the answer is larger than the relay carries; ask for a shorter one", false),
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, c.run, nil)
				w.offer("a")
				synctest.Wait()
				w.payload("a", "x")
				synctest.Wait()
				require.Len(t, w.results(), 1)
				assert.Equal(t, c.want, w.outcome(w.results()[0]))
			})
		})
	}
}

func TestStopFinishesWhatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		w := newWorld(t, runnerFunc(func(context.Context, Job) (Answer, error) {
			<-release
			return Answer{Text: "late"}, nil
		}), nil)
		w.offer("running", "waiting")
		synctest.Wait()
		w.payload("running", "x")
		synctest.Wait()
		stopped := make(chan error, 1)
		go func() { stopped <- w.d.Stop(t.Context()) }()
		synctest.Wait()
		assert.Equal(t, map[string][]wire.Grant{wire.ReleaseShutdown: {grant("waiting")}}, w.released())
		w.offer("new")
		synctest.Wait()
		assert.Contains(t, w.released()[wire.ReleaseShutdown], grant("new"))
		close(release)
		require.NoError(t, <-stopped)
		require.Len(t, w.results(), 1)
		assert.Equal(t, "late", w.outcome(w.results()[0]).Text)
	})
}

func TestStopCutShortGivesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		causes := make(chan error, 1)
		w := newWorld(t, until(causes), nil)
		w.offer("a")
		synctest.Wait()
		w.payload("a", "x")
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, w.d.Stop(ctx), context.DeadlineExceeded)
		require.ErrorIs(t, <-causes, ErrStopped)
		synctest.Wait()
		assert.Equal(t, map[string][]wire.Grant{wire.ReleaseShutdown: {grant("a")}}, w.released())
		assert.Empty(t, w.results())
	})
}

func TestCutForgetsOnlyWhatWasntAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, &echo{}, nil)
		w.conn.Hang(wire.TypeAccept)
		w.offer("a")
		synctest.Wait()
		w.cut()
		var b wire.HelloBody
		w.d.hello(&b)
		assert.Equal(t, []wire.Grant{grant("a")}, b.ActiveLeases, "an accept was sent: the relay says what became of it")
		next := newFakeConn("s2")
		next.On(wire.TypeFetch, func(_ context.Context, frame []byte) ([]byte, error) {
			return nil, wire.Errorf(wire.CodeNotFound, "no")
		})
		w.connect(next)
		synctest.Wait()
		assert.Empty(t, w.d.ledger.byGrant)
	})
}

func TestOldSessionsCountForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, &echo{}, nil)
		old := w.conn
		w.connect(newFakeConn("s2"))
		frame := w.claimed(w.stub("a"))
		w.d.push(old, wire.Head{Type: wire.TypeClaimed}, frame)
		w.d.ended(old, session.End{Reason: session.ReasonSuperseded})
		synctest.Wait()
		assert.NotNil(t, w.d.link, "the end of an old session doesn't end the new one")
		assert.Empty(t, w.d.ledger.byGrant)
		w.offer("b")
		synctest.Wait()
		assert.Len(t, fake.Sent[wire.Grants](t, w.conn, wire.TypeAccept), 1)
	})
}
