package daemon

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pushrelay/session"
	"pushrelay/session/internal/fake"
	"pushrelay/wire"
)

// withResult makes a daemon that finished job a, and whose relay never answered.
func withResult(t testing.TB, run Runner) *world {
	w := newWorld(t, run, nil)
	w.conn.Hang(wire.TypeResult)
	w.offer("a")
	synctest.Wait()
	w.payload("a", "x")
	synctest.Wait()
	require.Len(t, w.files(), 1)
	return w
}

func TestRestartReportsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := withResult(t, &echo{})
		w.offer("b")
		synctest.Wait()
		w.cut()
		var body wire.HelloBody
		w.d.hello(&body)
		assert.ElementsMatch(t, []wire.Grant{grant("a"), grant("b")}, body.ActiveLeases)

		next := newFakeConn("s2")
		slow := make(chan struct{})
		next.On(wire.TypeResult, func(_ context.Context, frame []byte) ([]byte, error) {
			<-slow
			h, _ := wire.DecodeHead(frame)
			return quiet(h, frame)
		})
		next.On(wire.TypeFetch, func(_ context.Context, frame []byte) ([]byte, error) {
			f, err := wire.Decode[wire.Fetch](frame)
			require.NoError(t, err)
			head := wire.AppendFetchReplyHead(nil, f.ID)
			return wire.AppendTail(append(head, w.sealed("b", "fetched")...)), nil
		})
		w.connect(next)
		synctest.Wait()
		assert.Equal(t, []wire.FrameType{wire.TypeResult}, next.Types(), "results before fetches")
		close(slow)
		synctest.Wait()
		assert.Equal(t, []wire.FrameType{wire.TypeResult, wire.TypeFetch, wire.TypeResult}, next.Types())
		assert.Equal(t, "re: fetched", w.outcome(w.results()[1]).Text)
		assert.Empty(t, w.files())
	})
}

func TestCrashKeepsResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := withResult(t, &echo{})
		before := w.results()[0]
		w.kill()
		require.NoError(t, os.WriteFile(filepath.Join(w.dir, "results", strings.Repeat("0", 64)+".json"), []byte("{torn"), 0o600))
		w.start(&echo{})
		var body wire.HelloBody
		w.d.hello(&body)
		assert.Equal(t, []wire.Grant{grant("a")}, body.ActiveLeases)
		w.connect(newFakeConn("s2"))
		synctest.Wait()
		require.Len(t, w.results(), 1)
		assert.Equal(t, string(before.Envelope), string(w.results()[0].Envelope), "an identical resend")
		files := w.files()
		require.Len(t, files, 1)
		assert.True(t, strings.HasSuffix(files[0], ".corrupt"), "a damaged file is set aside, not lost")
	})
}

func TestAnswersToResults(t *testing.T) {
	answer := func(accepted, duplicate bool) func(context.Context, []byte) ([]byte, error) {
		return func(_ context.Context, frame []byte) ([]byte, error) {
			h, _ := wire.DecodeHead(frame)
			return wire.AppendResultReply(nil, h.ID, accepted, duplicate, "done"), nil
		}
	}
	refusal := func(c wire.ErrorCode) func(context.Context, []byte) ([]byte, error) {
		return func(context.Context, []byte) ([]byte, error) { return nil, wire.Errorf(c, "x") }
	}
	cases := map[string]struct {
		script func(context.Context, []byte) ([]byte, error)
		gone   bool
	}{
		"accepted":     {answer(true, false), true},
		"duplicate":    {answer(false, true), true},
		"too late":     {refusal(wire.CodeTooLate), true},
		"not found":    {refusal(wire.CodeNotFound), true},
		"forbidden":    {refusal(wire.CodeForbidden), true},
		"server error": {refusal(wire.CodeServerError), false},
		"rate limited": {refusal(wire.CodeRateLimited), false},
		"unknown code": {refusal("strange"), false},
		"garbage":      {func(context.Context, []byte) ([]byte, error) { return []byte("x"), nil }, false},
		"ended":        {func(context.Context, []byte) ([]byte, error) { return nil, session.ErrEnded }, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, &echo{}, nil)
				w.conn.On(wire.TypeResult, c.script)
				w.offer("a")
				synctest.Wait()
				w.payload("a", "x")
				synctest.Wait()
				require.Len(t, w.results(), 1)
				if c.gone {
					assert.Empty(t, w.files())
					return
				}
				assert.Len(t, w.files(), 1)
				if name != "ended" {
					w.conn.On(wire.TypeResult, answer(true, false))
					<-time.After(time.Second)
				} else {
					w.cut()
					w.connect(newFakeConn("s2"))
				}
				synctest.Wait()
				assert.Empty(t, w.files(), "sent again")
				r := w.results()
				assert.Equal(t, "re: x", w.outcome(r[len(r)-1]).Text, "a success doesn't degrade")
			})
		})
	}
}

func TestRefusedAsItIsBecomesAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, &echo{}, nil)
		w.conn.Refuse(wire.TypeResult, wire.BadRequest("no"))
		w.offer("a")
		synctest.Wait()
		w.payload("a", "x")
		synctest.Wait()
		<-time.After(time.Minute)
		r := w.results()
		require.Len(t, r, 2)
		assert.Equal(t, wire.DispositionError, w.outcome(r[1]).Outcome)
		assert.Empty(t, w.files())
	})
}

func TestLargeResultFailsVisiblyAfterCuts(t *testing.T) {
	for name, c := range map[string]struct {
		size int
		want string
	}{
		"large": {400 << 10, wire.DispositionError},
		"small": {1 << 10, wire.DispositionOK},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := withResult(t, runnerFunc(func(context.Context, Job) (Answer, error) {
					return Answer{Text: strings.Repeat("y", c.size)}, nil
				}))
				for range maxCuts {
					w.cut()
					synctest.Wait()
					next := newFakeConn("again")
					next.Hang(wire.TypeResult)
					w.connect(next)
					synctest.Wait()
				}
				w.cut()
				w.connect(newFakeConn("last"))
				synctest.Wait()
				require.Len(t, w.results(), 1)
				assert.Equal(t, c.want, w.outcome(w.results()[0]).Outcome)
				assert.Empty(t, w.files())
			})
		})
	}
}

func TestHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		causes := make(chan error, 1)
		w := newWorld(t, until(causes), nil)
		<-time.After(time.Minute)
		assert.Empty(t, w.conn.Types(), "nothing is held")
		w.offer("a")
		synctest.Wait()
		w.payload("a", "x")
		<-time.After(5 * time.Minute)
		beats := fake.Sent[wire.Heartbeat](t, w.conn, wire.TypeHeartbeat)
		assert.InDelta(t, 15, len(beats), 1)
		assert.Equal(t, []wire.Grant{grant("a")}, beats[0].ActiveLeases)
		w.conn.On(wire.TypeHeartbeat, func(_ context.Context, frame []byte) ([]byte, error) {
			h, _ := wire.DecodeHead(frame)
			return wire.AppendHeartbeatReply(nil, h.ID, []wire.Grant{grant("a")}, nil, 1, nil), nil
		})
		<-time.After(25 * time.Second)
		require.ErrorIs(t, <-causes, ErrCanceled)
		synctest.Wait()
		require.Len(t, w.results(), 1)
	})
}

func TestUnansweredHeartbeatsMakeSuspect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		w := newWorld(t, runnerFunc(func(context.Context, Job) (Answer, error) {
			<-release
			return Answer{Text: "x"}, nil
		}), nil)
		w.offer("a")
		synctest.Wait()
		w.payload("a", "x")
		w.conn.Refuse(wire.TypeHeartbeat, wire.Unavailable(1, "slow store"))
		<-time.After(70 * time.Second)
		assert.True(t, w.has(EventSuspect))
		w.conn.On(wire.TypeHeartbeat, func(_ context.Context, frame []byte) ([]byte, error) {
			h, _ := wire.DecodeHead(frame)
			return wire.AppendHeartbeatReply(nil, h.ID, nil, []wire.Grant{grant("a")}, 1, nil), nil
		})
		close(release)
		synctest.Wait()
		assert.True(t, w.has(EventConfirmed))
		assert.Empty(t, w.results(), "the relay was asked first and said lost")
		assert.Empty(t, w.files())
	})
}

func TestSleepIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slept time.Duration
		causes := make(chan error, 1)
		w := &world{t: t, dir: t.TempDir(), device: newKeys(t), site: newKeys(t), ctx: t.Context()}
		w.siteID = w.site.KeyID()
		w.wall = func() time.Time {
			w.mu.Lock()
			defer w.mu.Unlock()
			return time.Now().Add(slept)
		}
		w.start(until(causes))
		w.connect(newFakeConn("s1"))
		w.offer("a")
		synctest.Wait()
		w.payload("a", "x")
		<-time.After(3 * time.Second)
		w.mu.Lock()
		slept = time.Hour
		w.mu.Unlock()
		<-time.After(3 * time.Second)
		synctest.Wait()
		assert.True(t, w.has(EventSuspect))
		assert.Len(t, fake.Sent[wire.Heartbeat](t, w.conn, wire.TypeHeartbeat), 1, "the relay is asked at once")
		assert.True(t, w.has(EventConfirmed))
	})
}

func TestFetchAnswers(t *testing.T) {
	for code, kept := range map[wire.ErrorCode]bool{
		wire.CodeNotReady: true, wire.CodeTooLate: false, wire.CodeNotFound: false, wire.CodeForbidden: false,
	} {
		t.Run(string(code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, &echo{}, nil)
				w.offer("a")
				synctest.Wait()
				w.cut()
				next := newFakeConn("s2")
				next.Refuse(wire.TypeFetch, wire.Errorf(code, "x"))
				w.connect(next)
				synctest.Wait()
				assert.Equal(t, kept, w.d.ledger.byGrant[grant("a")] != nil)
				w.payload("a", "x")
				synctest.Wait()
				assert.Equal(t, kept, len(w.results()) == 1)
			})
		})
	}
}

func TestPushOvertakesFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, &echo{}, nil)
		w.offer("a")
		synctest.Wait()
		w.cut()
		next := newFakeConn("s2")
		next.On(wire.TypeFetch, func(context.Context, []byte) ([]byte, error) {
			w.payload("a", "pushed")
			return nil, wire.Errorf(wire.CodeTooLate, "withheld")
		})
		w.connect(next)
		synctest.Wait()
		require.Len(t, w.results(), 1)
		assert.Equal(t, "re: pushed", w.outcome(w.results()[0]).Text)
		assert.Empty(t, w.released())
	})
}

func TestFreshOffersAreNotFetched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, &echo{}, nil)
		w.offer("a") // before any goroutine of the session ran
		synctest.Wait()
		assert.Equal(t, []wire.FrameType{wire.TypeAccept}, w.conn.Types())
	})
}

func TestWelcomeNamesLostAndCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		causes := make(chan error, 2)
		w := newWorld(t, until(causes), nil)
		w.offer("lost", "cancelled")
		synctest.Wait()
		w.payload("lost", "x")
		w.payload("cancelled", "x")
		synctest.Wait()
		w.cut()
		welcome := w.welcome()
		welcome.Lost, welcome.Cancel = []wire.Grant{grant("lost")}, []wire.Grant{grant("cancelled")}
		w.connectWith(newFakeConn("s2"), welcome)
		synctest.Wait()
		got := []error{<-causes, <-causes}
		assert.True(t, slices.Contains(got, error(ErrLost)) && slices.Contains(got, error(ErrCanceled)))
		require.Len(t, w.results(), 1)
		assert.Equal(t, "cancelled", w.results()[0].Grant.JobID)
	})
}

func TestOneDaemonForADirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, &echo{}, nil)
		_, err := New(w.d.cfg)
		assert.ErrorContains(t, err, "in use by another daemon")
	})
}

func TestHistoryTurns(t *testing.T) {
	dir := t.TempDir()
	h, _, err := openHistory(dir)
	require.NoError(t, err)
	h.disk.Lock()
	for i := range historyMax - 1 {
		h.now[wire.Grant{JobID: "j", LeaseID: time.Duration(i).String()}] = struct{}{}
	}
	h.disk.Unlock()
	require.NoError(t, h.add(grant("last")))
	assert.Empty(t, h.now)
	assert.True(t, h.has(grant("last")))
	require.NoError(t, h.add(grant("next")))
	require.NoError(t, h.close())
	require.NoError(t, os.WriteFile(filepath.Join(dir, historyName), append([]byte("{torn"), 0), 0o600))
	h, skipped, err := openHistory(dir)
	require.NoError(t, err)
	assert.Equal(t, 1, skipped)
	assert.True(t, h.has(grant("last")))
	require.NoError(t, h.add(grant("more")))
	require.NoError(t, h.close())
	h, _, err = openHistory(dir)
	require.NoError(t, err)
	assert.True(t, h.has(grant("more")), "a torn line swallows only itself")
	require.NoError(t, h.close())
}

// TestHistoryWithoutItsLastByte was cut between a line and its end.
func TestHistoryWithoutItsLastByte(t *testing.T) {
	dir := t.TempDir()
	h, _, err := openHistory(dir)
	require.NoError(t, err)
	require.NoError(t, h.add(grant("a")))
	require.NoError(t, h.close())
	path := filepath.Join(dir, historyName)
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, bytes.TrimSuffix(raw, []byte("\n")), 0o600))
	for _, next := range []string{"b", "c"} {
		var skipped int
		h, skipped, err = openHistory(dir)
		require.NoError(t, err)
		assert.Zero(t, skipped)
		assert.True(t, h.has(grant("a")))
		require.NoError(t, h.add(grant(next)))
		require.NoError(t, h.close())
	}
}
