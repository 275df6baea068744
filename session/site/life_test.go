package site

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pushrelay/session"
	"pushrelay/session/internal/ask"
	"pushrelay/session/internal/fake"
	"pushrelay/wire"
	"pushrelay/wire/seal"
)

func TestWholeLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.submit(job("a"), job("b"))
		require.Len(t, fake.Sent[wire.Enqueue](t, w.conn, wire.TypeEnqueue), 1, "one frame for jobs of one Submit")
		w.ask("a", "b")
		synctest.Wait()
		seals := fake.Sent[wire.Seal](t, w.conn, wire.TypeSeal)
		require.Len(t, seals, 2)
		for _, s := range seals {
			e, err := wire.ParseEnvelope(s.Envelope)
			require.NoError(t, err)
			plain, err := seal.Open(w.device, w.keys.Public(), seal.Expected{JobID: s.JobID, Direction: wire.DirectionPayload}, e)
			require.NoError(t, err)
			p, err := seal.ParseGenerate(plain)
			require.NoError(t, err)
			assert.Equal(t, "do "+s.JobID, p.Prompt)
			assert.Equal(t, deadline().UnixMilli(), e.DeadlineAt)
		}
		w.push(resultsFrame(w.finished("a", "A"), w.finished("b", "B")))
		synctest.Wait()
		require.Len(t, w.results, 2)
		for _, r := range w.results {
			require.True(t, r.Verified, "%v", r.Err)
			assert.Equal(t, strings.ToUpper(r.JobID), r.Outcome.Text)
		}
		total := 0
		for _, c := range w.collected() {
			total += len(c)
		}
		assert.Equal(t, 2, total)
		assert.Empty(t, w.s.jobs)

		before := len(w.collected())
		w.push(resultsFrame(w.finished("a", "A")))
		synctest.Wait()
		assert.Len(t, w.results, 2, "a copy isn't told twice")
		assert.Len(t, w.collected(), before+1, "a copy is collected again")
	})
}

func TestSubmitInFramesOf256(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		var jobs []Job
		for i := range 600 {
			jobs = append(jobs, job(fmt.Sprint(i)))
		}
		for i, r := range w.s.Submit(t.Context(), jobs...) {
			require.NoError(t, r.Err)
			assert.Equal(t, fmt.Sprint(i), r.JobID)
			assert.Equal(t, "queued", r.State)
		}
		var sizes []int
		for _, f := range fake.Sent[wire.Enqueue](t, w.conn, wire.TypeEnqueue) {
			sizes = append(sizes, len(f.Stubs))
		}
		assert.Equal(t, []int{256, 256, 88}, sizes)
	})
}

func TestSubmitRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.conn.On(wire.TypeEnqueue, func(_ context.Context, frame []byte) ([]byte, error) {
			h, _ := wire.DecodeHead(frame)
			return wire.AppendEnqueueReply(nil, h.ID, []wire.EnqueueState{
				{JobID: "late", Error: string(wire.CodeTooLate), Message: "passed"},
				{JobID: "full", Error: string(wire.CodeRateLimited), Message: "full", RetryAfter: 3},
				{JobID: "good", State: "queued"},
			}), nil
		})
		bad := job("bad")
		bad.Kind = ""
		both := job("both")
		both.Load = func(context.Context) ([]byte, error) { return nil, nil }
		shape := job("shape")
		shape.Payload = []byte(`{}`)
		got := w.s.Submit(t.Context(), bad, both, shape, job("late"), job("full"), job("good"))
		assert.Error(t, got[0].Err)
		assert.Error(t, got[1].Err)
		assert.ErrorIs(t, got[2].Err, seal.ErrBadPlaintext)
		assert.ErrorIs(t, got[3].Err, &wire.Error{Code: wire.CodeTooLate})
		assert.ErrorIs(t, got[4].Err, &wire.Error{Code: wire.CodeRateLimited})
		assert.NoError(t, got[5].Err)
		assert.Len(t, w.s.jobs, 1)
	})
}

func TestSubmitOutlivesTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.conn.On(wire.TypeEnqueue, func(context.Context, []byte) ([]byte, error) {
			return nil, wire.Unavailable(1, "store")
		})
		done := make(chan []Submitted, 1)
		go func() { done <- w.s.Submit(t.Context(), job("a")) }()
		<-time.After(5 * time.Second)
		w.conn.Hang(wire.TypeEnqueue)
		<-time.After(5 * time.Second)
		w.cut()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		got := w.s.Submit(ctx, job("a"))
		require.ErrorIs(t, got[0].Err, ErrPending)
		require.ErrorIs(t, got[0].Err, context.DeadlineExceeded)
		w.connect(newFakeConn("s2"), "epoch")
		require.NoError(t, (<-done)[0].Err)
		assert.Len(t, fake.Sent[wire.Enqueue](t, w.conn, wire.TypeEnqueue), 1)
	})
}

func TestRelayThatForgot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.submit(job("open"), job("done"), job("cancelled"))
		w.push(resultsFrame(w.finished("done", "D")))
		_, err := w.s.Cancel(t.Context(), "cancelled")
		require.NoError(t, err)
		synctest.Wait()
		w.cut()
		w.connect(newFakeConn("s2"), "epoch")
		synctest.Wait()
		assert.Empty(t, fake.Sent[wire.Enqueue](t, w.conn, wire.TypeEnqueue), "the same memory: nothing to do")
		w.cut()
		w.connect(newFakeConn("s3"), "another epoch")
		synctest.Wait()
		frames := fake.Sent[wire.Enqueue](t, w.conn, wire.TypeEnqueue)
		require.Len(t, frames, 1)
		require.Len(t, frames[0].Stubs, 1)
		assert.Contains(t, string(frames[0].Stubs[0]), `"open"`)
		assert.Equal(t, []Notice{{JobID: "cancelled", Why: WhyCancelled}}, w.notices)
	})
}

func TestRelayThatForgotAndRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.submit(job("a"))
		w.cut()
		next := newFakeConn("s2")
		next.On(wire.TypeEnqueue, func(_ context.Context, frame []byte) ([]byte, error) {
			h, _ := wire.DecodeHead(frame)
			return wire.AppendEnqueueReply(nil, h.ID, []wire.EnqueueState{{JobID: "a", Error: "too-late", Message: "x"}}), nil
		})
		w.connect(next, "another")
		synctest.Wait()
		assert.Equal(t, []Notice{{JobID: "a", Why: "refused: too-late"}}, w.notices)
	})
}

func TestSealDeclines(t *testing.T) {
	cases := map[string]struct {
		tweak func(*Config)
		job   func(j *Job)
		ask   string
	}{
		"unknown": {ask: "other"},
		"not found": {tweak: func(c *Config) {
			c.Lookup = func(context.Context, string) (Job, bool, error) { return Job{}, false, nil }
		}, ask: "other"},
		"not trusted": {tweak: func(c *Config) {
			c.Trust = func(string, wire.PublicIdentity) error { return errors.New("no") }
		}, ask: "a"},
		"can't be loaded": {job: func(j *Job) {
			j.Payload, j.Load = nil, func(context.Context) ([]byte, error) { return nil, errors.New("no") }
		}, ask: "a"},
		"too large": {job: func(j *Job) {
			j.Payload, j.Load = nil, func(context.Context) ([]byte, error) { return bytes.Repeat([]byte("x"), 5<<20), nil }
		}, ask: "a"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, c.tweak)
				j := job("a")
				if c.job != nil {
					c.job(&j)
				}
				w.submit(j)
				w.ask(c.ask)
				synctest.Wait()
				assert.Empty(t, fake.Sent[wire.Seal](t, w.conn, wire.TypeSeal))
				assert.Equal(t, []wire.Grant{grant(c.ask)}, w.declined())
			})
		})
	}
}

func TestSealForABadIdentityIsDeclined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.submit(job("a"))
		forged := w.device.Public()
		forged.Encryption = newKeys(t).Public().Encryption
		w.push(wire.AppendSealRequest(nil, []wire.SealJob{{JobID: "a", LeaseID: "lease-a", RunnerID: "r", Device: forged}}))
		synctest.Wait()
		assert.Equal(t, []wire.Grant{grant("a")}, w.declined())
	})
}

func TestSealOfAnotherProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(c *Config) {
			c.Lookup = func(_ context.Context, id string) (Job, bool, error) { return job(id), true, nil }
		})
		w.ask("elsewhere")
		synctest.Wait()
		assert.Len(t, fake.Sent[wire.Seal](t, w.conn, wire.TypeSeal), 1)
		w.push(resultsFrame(w.finished("elsewhere", "x")))
		synctest.Wait()
		require.Len(t, w.results, 1)
		assert.True(t, w.results[0].Verified)
	})
}

func TestLargePayloadsAreAnnounced(t *testing.T) {
	large, err := seal.GeneratePayload{Prompt: strings.Repeat("x", 300<<10)}.Encode()
	require.NoError(t, err)
	cases := map[string]func(j *Job){
		"kept":   func(j *Job) { j.Payload = large },
		"loaded": func(j *Job) { j.Payload, j.Load = nil, func(context.Context) ([]byte, error) { return large, nil } },
		"slow": func(j *Job) {
			plain := j.Payload
			j.Payload, j.Load = nil, func(ctx context.Context) ([]byte, error) { return plain, ask.Sleep(ctx, 5*time.Second) }
		},
	}
	for name, tweak := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, nil)
				j := job("a")
				tweak(&j)
				w.submit(j)
				w.ask("a")
				<-time.After(10 * time.Second)
				synctest.Wait()
				assert.Equal(t, []wire.FrameType{wire.TypeEnqueue, wire.TypeSealing, wire.TypeSeal}, w.conn.Types())
			})
		})
	}
}

func TestSealAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.submit(job("a"))
		w.conn.Hang(wire.TypeSeal)
		w.ask("a")
		synctest.Wait()
		w.ask("a")
		synctest.Wait()
		first := fake.Sent[wire.Seal](t, w.conn, wire.TypeSeal)
		require.Len(t, first, 1, "a copy of a request changes nothing")
		w.cut()
		w.connect(newFakeConn("s2"), "epoch")
		w.ask("a")
		synctest.Wait()
		second := fake.Sent[wire.Seal](t, w.conn, wire.TypeSeal)
		require.Len(t, second, 1)
		assert.Equal(t, string(first[0].Envelope), string(second[0].Envelope), "the relay may have it already")
	})
}

func TestResultsThatDontVerify(t *testing.T) {
	cases := map[string]func(w *world, j *wire.ResultJob){
		"another device": func(w *world, j *wire.ResultJob) {
			forger := newKeys(t)
			j.Device, j.Envelope = forger.Public(), w.answer(forger, w.keys, "a", deadline().UnixMilli(), "forged")
		},
		"another signer": func(w *world, j *wire.ResultJob) {
			j.Envelope = w.answer(newKeys(t), w.keys, "a", deadline().UnixMilli(), "forged")
		},
		"another recipient": func(w *world, j *wire.ResultJob) {
			j.Envelope = w.answer(w.device, newKeys(t), "a", deadline().UnixMilli(), "x")
		},
		"another deadline": func(w *world, j *wire.ResultJob) {
			j.Envelope = w.answer(w.device, w.keys, "a", deadline().UnixMilli()+1, "x")
		},
		"another job": func(w *world, j *wire.ResultJob) {
			j.Envelope = w.answer(w.device, w.keys, "b", deadline().UnixMilli(), "x")
		},
		"another disposition": func(_ *world, j *wire.ResultJob) { j.Disposition = wire.DispositionError },
		"no envelope":         func(_ *world, j *wire.ResultJob) { j.Envelope = []byte(`{}`) },
		"no identity":         func(_ *world, j *wire.ResultJob) { j.Device = wire.PublicIdentity{} },
	}
	for name, tweak := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, nil)
				w.submit(job("a"))
				w.ask("a")
				synctest.Wait()
				w.push(resultsFrame(w.finished("a", "x", func(j *wire.ResultJob) { tweak(w, j) })))
				synctest.Wait()
				require.Len(t, w.results, 1)
				assert.False(t, w.results[0].Verified)
				require.ErrorIs(t, w.results[0].Err, ErrUnverified)
				assert.Zero(t, w.results[0].Outcome)
				assert.Equal(t, [][]wire.Grant{{grant("a")}}, w.collected())
			})
		})
	}
}

// A polling device sets the deadline of its results itself: a day after it sealed them.
func TestDeadlinesOfPollingDevices(t *testing.T) {
	cases := map[string]struct {
		sealed time.Duration // after the job was submitted
		good   bool
	}{
		"sealed just now":                 {time.Hour, true},
		"by a clock that is ahead":        {time.Hour + 9*time.Minute, true},
		"by a clock that is far ahead":    {time.Hour + 11*time.Minute, false},
		"at once, by a clock behind":      {-9 * time.Minute, true},
		"before there was such a job":     {-11 * time.Minute, false},
		"a day before there was such one": {-24 * time.Hour, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, nil)
				w.submit(job("a"))
				submitted := time.Now()
				w.ask("a")
				<-time.After(time.Hour)
				w.push(resultsFrame(w.finished("a", "x", func(j *wire.ResultJob) {
					j.Envelope = w.answer(w.device, w.keys, "a", submitted.Add(c.sealed+24*time.Hour).UnixMilli(), "x")
				})))
				synctest.Wait()
				require.Len(t, w.results, 1)
				assert.Equal(t, c.good, w.results[0].Verified)
			})
		})
	}
}

func TestPreviousKeysStillOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := newKeys(t)
		w := newWorld(t, func(c *Config) { c.Previous = []*seal.Keys{old} })
		w.push(resultsFrame(w.finished("a", "x", func(j *wire.ResultJob) {
			j.Envelope = w.answer(w.device, old, "a", deadline().UnixMilli(), "x")
		})))
		synctest.Wait()
		require.Len(t, w.results, 1)
		assert.True(t, w.results[0].Verified)
	})
}

func TestCallbackFailureIsOfferedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.submit(job("a"), job("n"))
		w.failing(errors.New("database is down"))
		w.push(resultsFrame(w.finished("a", "x")))
		w.push(noticesFrame(t, wire.TypeNotices, wire.Notice{JobID: "n", LeaseID: "n1", Why: "deadline"}))
		synctest.Wait()
		assert.Empty(t, w.collected())
		assert.Len(t, w.s.jobs, 2)
		w.failing(nil)
		w.push(resultsFrame(w.finished("a", "x")))
		w.push(noticesFrame(t, wire.TypeNotices, wire.Notice{JobID: "n", LeaseID: "n1", Why: "deadline"}))
		w.push(noticesFrame(t, wire.TypeRequeued, wire.Notice{JobID: "n", Why: "shutdown"}))
		synctest.Wait()
		assert.Len(t, w.results, 1)
		assert.Equal(t, []Notice{{JobID: "n", Why: "deadline"}}, w.notices)
		assert.Empty(t, w.s.jobs)
	})
}

func TestCollectedOutlivesACut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.conn.Hang(wire.TypeCollected)
		for _, id := range []string{"a", "b", "c"} {
			w.push(resultsFrame(w.finished(id, "x")))
			synctest.Wait()
		}
		w.cut()
		w.connect(newFakeConn("s2"), "epoch")
		synctest.Wait()
		require.Len(t, w.collected(), 1, "in one frame")
		assert.ElementsMatch(t, []wire.Grant{grant("a"), grant("b"), grant("c")}, w.collected()[0])
	})
}

// TestCollectedOnTwoSessions has an old session's answer come after a newer session told the same: what waits since then
// must not be forgotten for it.
func TestCollectedOnTwoSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		notice := func(id string) {
			w.push(noticesFrame(t, wire.TypeNotices, wire.Notice{JobID: id, LeaseID: grant(id).LeaseID, Why: "deadline"}))
			synctest.Wait()
		}
		answer := make(chan struct{})
		w.conn.On(wire.TypeCollected, func(ctx context.Context, frame []byte) ([]byte, error) {
			if ctx.Err() != nil {
				return nil, session.ErrEnded // only the first is answered
			}
			<-answer
			h, err := wire.DecodeHead(frame)
			return wire.AppendReplyOK(nil, h.ID), err
		})
		notice("a")
		w.connect(newFakeConn("s2"), "epoch")
		synctest.Wait()
		require.Equal(t, [][]wire.Grant{{grant("a")}}, w.collected())
		w.conn.Hang(wire.TypeCollected)
		notice("b")
		close(answer)
		synctest.Wait()
		w.connect(newFakeConn("s3"), "epoch")
		synctest.Wait()
		require.Equal(t, [][]wire.Grant{{grant("b")}}, w.collected())
	})
}

func TestCallbackPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(c *Config) { c.OnResult = func(context.Context, Result) error { panic("boo") } })
		w.push(resultsFrame(w.finished("a", "x")))
		synctest.Wait()
		assert.Empty(t, w.collected())
	})
}

func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.submit(job("a"))
		got, err := w.s.Cancel(t.Context(), "a", "b")
		require.NoError(t, err)
		assert.Equal(t, []bool{true, true}, got)
		w.ask("a")
		synctest.Wait()
		assert.Equal(t, []wire.Grant{grant("a")}, w.declined(), "a cancelled job isn't sealed any more")
	})
}

func TestCancelSurvivesACut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.submit(job("a"))
		w.conn.Hang(wire.TypeCancel)
		done := make(chan []bool, 1)
		go func() {
			got, err := w.s.Cancel(t.Context(), "a")
			assert.NoError(t, err)
			done <- got
		}()
		synctest.Wait()
		w.cut()
		synctest.Wait()
		w.connect(newFakeConn("s2"), "epoch")
		assert.Equal(t, []bool{true}, <-done)
	})
}

func TestCancelBeforePublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.cut()
		submitted := make(chan []Submitted, 1)
		go func() { submitted <- w.s.Submit(t.Context(), job("a")) }()
		synctest.Wait()
		cancelled := make(chan []bool, 1)
		go func() {
			got, err := w.s.Cancel(t.Context(), "a")
			assert.NoError(t, err)
			cancelled <- got
		}()
		synctest.Wait()
		next := newFakeConn("s2")
		next.On(wire.TypeCancel, func(_ context.Context, frame []byte) ([]byte, error) {
			h, _ := wire.DecodeHead(frame)
			return wire.Encode(wire.CancelReply{Type: wire.TypeReply, Re: h.ID, Cancelled: []bool{false}})
		})
		next.On(wire.TypeEnqueue, func(_ context.Context, frame []byte) ([]byte, error) {
			h, _ := wire.DecodeHead(frame)
			<-time.After(time.Second)
			next.On(wire.TypeCancel, nil) // from here on the relay knows the job
			return quiet(h, frame)
		})
		w.connect(next, "epoch")
		assert.Equal(t, []bool{true}, <-cancelled)
		<-submitted // published or withdrawn: both are good
	})
}

// While the relay can keep nothing a job is neither published nor cancelled; whoever waits for either hears of it afterwards.
func TestCancelOutlivesTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		trouble := func(context.Context, []byte) ([]byte, error) { return nil, wire.Unavailable(7, "store") }
		w.conn.On(wire.TypeEnqueue, trouble)
		w.conn.On(wire.TypeCancel, trouble)
		submitted := make(chan []Submitted, 1)
		go func() { submitted <- w.s.Submit(t.Context(), job("a")) }()
		synctest.Wait()
		cancelled := make(chan []bool, 1)
		go func() {
			got, err := w.s.Cancel(t.Context(), "a")
			assert.NoError(t, err)
			cancelled <- got
		}()
		<-time.After(5 * time.Minute)
		assert.Empty(t, cancelled)
		assert.Empty(t, submitted)
		tries := len(fake.Sent[wire.CancelJobs](t, w.conn, wire.TypeCancel))
		assert.InDelta(t, 5*60/7, tries, 5, "it comes again when the relay asked it to")
		w.conn.On(wire.TypeCancel, func(_ context.Context, frame []byte) ([]byte, error) {
			h, _ := wire.DecodeHead(frame)
			return wire.Encode(wire.CancelReply{Type: wire.TypeReply, Re: h.ID, Cancelled: []bool{false}})
		})
		assert.Equal(t, []bool{true}, <-cancelled)
		assert.ErrorIs(t, (<-submitted)[0].Err, ErrWithdrawn)
	})
}

func TestCancelEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.conn.Hang(wire.TypeCancel)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := w.s.Cancel(ctx, "a")
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.submit(job("a"))
		w.s.expire(deadline().Add(time.Hour))
		w.ask("a")
		synctest.Wait()
		assert.Equal(t, []wire.Grant{grant("a")}, w.declined())
		w.s.expire(deadline().Add(48 * time.Hour))
		assert.Empty(t, w.s.jobs)
	})
}

func TestRing(t *testing.T) {
	r := newRing[int](3)
	for i := range 10 {
		r.add(i)
		r.add(i)
	}
	assert.Len(t, r.has, 3)
	assert.True(t, r.seen(9) && r.seen(7) && !r.seen(6))
}
