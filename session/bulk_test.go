package session

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"pushrelay/session/internal/throttle"

	"pushrelay/wire"
)

// sealed is the frame of a payload or a result with an envelope of n bytes.
func sealed(n int) []byte { return []byte(`{"ciphertext":"` + strings.Repeat("A", n-17) + `"}`) }

func fetchReply(id string, envelope []byte) [][]byte {
	return [][]byte{wire.AppendFetchReplyHead(nil, id), envelope, wire.AppendTail(nil)}
}

// sendsEnvelopes answers fetches with an envelope of n bytes, and results with ok.
func sendsEnvelopes(n int) func(context.Context, *Session, *Request) {
	envelope := sealed(n)
	return func(_ context.Context, _ *Session, q *Request) {
		switch q.Type() {
		case wire.TypeFetch:
			q.ReplyBulk(func(context.Context) ([][]byte, error) { return fetchReply(q.ID(), envelope), nil })
		case wire.TypeResult:
			if _, err := wire.Decode[wire.Result](q.Frame()); err != nil {
				q.Refuse(wire.AsError(err))
				return
			}
			q.Reply(wire.AppendResultReply(nil, q.ID(), true, false, "done"))
		default:
			q.Reply(wire.AppendReplyOK(nil, q.ID()))
		}
	}
}

func fetch(ctx context.Context, c *Conn, job string) ([]byte, error) {
	return c.Request(ctx, func(dst []byte, id string) []byte {
		return wire.AppendFetch(dst, id, wire.Grant{JobID: job, LeaseID: "l"})
	})
}

func result(ctx context.Context, c *Conn, job string, envelope []byte) ([]byte, error) {
	return c.RequestBulk(ctx, func(id string) [][]byte {
		return [][]byte{
			wire.AppendResultHead(nil, id, wire.Grant{JobID: job, LeaseID: "l"}, wire.DispositionOK), envelope, wire.AppendTail(nil),
		}
	})
}

func heartbeat(ctx context.Context, c *Conn) ([]byte, error) {
	return c.Request(ctx, func(dst []byte, id string) []byte {
		return append(dst, fmt.Sprintf(`{"type":"heartbeat","id":%q,"activeLeases":[]}`, id)...)
	})
}

func TestBulkBothWays(t *testing.T) {
	const n = wire.MaxEnvelopeBytes
	r := newRelay(t)
	r.op.handle = sendsEnvelopes(n)
	h := newHandler()
	_, c := r.client(t, h, "runner_1", wire.RoleDaemon)
	envelope := sealed(n)
	var wg sync.WaitGroup
	for i := range 3 {
		job := fmt.Sprint(i)
		wg.Go(func() {
			if reply, err := fetch(t.Context(), c, job); err != nil || !bytes.Contains(reply, envelope) {
				t.Errorf("fetch: %d bytes, %v", len(reply), err)
			}
		})
		wg.Go(func() {
			if _, err := result(t.Context(), c, job, envelope); err != nil {
				t.Error("result: ", err)
			}
		})
	}
	wg.Wait()
	r.budgetEmpties(t)
	if peak := r.Server.cfg.Budget.Peak(); peak > 2*maxIncoming+MaxGuess {
		t.Fatalf("budget: %d at most", peak)
	}
}

// MaxGuess is what a load may reserve before its length is known.
const MaxGuess = 2 * wire.MaxFrameBytes

// slowLink runs 6 MiB both ways over a link of that rate and answers how long the slowest heartbeat and all of it took.
func slowLink(t *testing.T, perSecond int) (beat, all time.Duration) {
	r := newRelay(t)
	r.op.handle = sendsEnvelopes(wire.MaxEnvelopeBytes)
	p, err := throttle.New(strings.TrimPrefix(r.url, "ws://"), perSecond)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	r.Server.cfg.PublicURLs = append(r.Server.cfg.PublicURLs, "ws://"+p.Addr())
	h := newHandler()
	_, c := r.client(t, h, "runner_1", wire.RoleDaemon, func(cfg *ClientConfig) { cfg.URL = "ws://" + p.Addr() })
	begin := time.Now()
	var wg sync.WaitGroup
	var left atomic.Int32
	left.Store(2)
	done := make(chan struct{})
	finish := func() {
		if left.Add(-1) == 0 {
			close(done)
		}
	}
	wg.Go(func() {
		defer finish()
		if _, err := fetch(t.Context(), c, "a"); err != nil {
			t.Error("fetch: ", err)
		}
	})
	wg.Go(func() {
		defer finish()
		if _, err := result(t.Context(), c, "b", sealed(wire.MaxEnvelopeBytes)); err != nil {
			t.Error("result: ", err)
		}
	})
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			at := time.Now()
			if _, err := heartbeat(t.Context(), c); err != nil {
				t.Error("heartbeat: ", err)
				return
			}
			beat = max(beat, time.Since(at))
		}
	})
	wg.Wait()
	return beat, time.Since(begin)
}

func TestHeartbeatsPassBulkOnASlowLink(t *testing.T) {
	t.Parallel()
	beat, all := slowLink(t, 1<<20) // five times as fast as the 200 KiB/s of the design, so a fifth of its 5 s
	t.Logf("heartbeat %v, all %v", beat, all)
	if beat > 2*time.Second {
		t.Fatalf("a heartbeat took %v", beat)
	}
}

func TestVerySlowLink(t *testing.T) {
	t.Parallel()
	beat, all := slowLink(t, 200<<10)
	t.Logf("heartbeat %v, all %v", beat, all)
	if beat > 5*time.Second {
		t.Fatalf("a heartbeat took %v", beat)
	}
}

// collect reassembles one stream that the relay sends, giving credit as told.
func (c *raw) collect(give func(got int) int) ([]byte, error) {
	var frame []byte
	for {
		typ, b, err := c.ws.Read(within(20 * time.Second))
		if err != nil {
			return nil, err
		}
		if typ != websocket.MessageBinary {
			return b, errors.New("text")
		}
		h, _, data, err := wire.ParsePart(b)
		if err != nil {
			return nil, err
		}
		if h.Abort() {
			return nil, errors.New("aborted")
		}
		frame = append(frame, data...)
		if h.Last() {
			return frame, nil
		}
		if n := give(len(frame)); n > 0 {
			c.write(string(wire.AppendCredit(nil, h.Stream, n)))
		}
	}
}

func TestCreditIsObeyed(t *testing.T) {
	r := newRelay(t)
	r.op.handle = sendsEnvelopes(200 << 10)
	c := r.join(t, wire.DaemonPath)
	c.write(`{"type":"fetch","id":"1","grant":{"jobId":"j","leaseId":"l"}}`)
	most := wire.InitialCredit
	frame, err := c.collect(func(got int) int {
		if got > most {
			t.Fatalf("%d bytes with credit for %d", got, most)
		}
		if got == most {
			most += 1000
			return 1000
		}
		return 0
	})
	if err != nil || !json.Valid(frame) {
		t.Fatal(err)
	}
}

func TestPeerRefusesAStream(t *testing.T) {
	r := newRelay(t)
	r.op.handle = sendsEnvelopes(200 << 10)
	c := r.join(t, wire.DaemonPath)
	c.write(`{"type":"fetch","id":"1","grant":{"jobId":"j","leaseId":"l"}}`)
	_, b, err := c.ws.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h, _, _, _ := wire.ParsePart(b)
	c.write(fmt.Sprintf(`{"type":"error","error":"server-error","message":"no room","retryAfter":5,"stream":%d}`, h.Stream))
	for {
		typ, b, err := c.ws.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if typ == websocket.MessageText {
			re, e, err := wire.ParseErrorFrame(b)
			if err != nil || re != "1" || e.Code != wire.CodeServerError || e.RetryAfter != 5 {
				t.Fatal(string(b), err)
			}
			break
		}
	}
	r.budgetEmpties(t)
}

func TestLoadersAnswers(t *testing.T) {
	r := newRelay(t)
	r.op.handle = func(_ context.Context, s *Session, q *Request) {
		q.ReplyBulk(func(context.Context) ([][]byte, error) {
			switch q.head.Job {
			case "gone":
				return nil, nil
			case "refused":
				return nil, wire.TooLate("over", "done", 0)
			case "failed":
				return nil, errors.New("secret detail")
			case "long":
				return [][]byte{make([]byte, wire.MaxFrameBytes+1)}, nil
			}
			return [][]byte{wire.AppendReplyOK(nil, q.ID())}, nil
		})
	}
	c := r.join(t, wire.DaemonPath)
	for job, word := range map[string]string{
		"gone": "not-found", "refused": "too-late", "failed": "server-error", "long": "server-error", "ok": "",
	} {
		c.write(fmt.Sprintf(`{"type":"fetch","id":%q,"grant":{"jobId":%q,"leaseId":"l"}}`, job, job))
		m := c.read()
		if m["re"] != job || word != "" && m["error"] != word || word == "" && m["type"] != "reply" || strings.Contains(fmt.Sprint(m), "secret") {
			t.Fatal(job, m)
		}
	}
	r.budgetEmpties(t)
	if n := r.session(0).Stats().Unanswered; n != 0 {
		t.Fatal(n)
	}
}

// TestLargeRequestsAtOnce: what is unanswered bounds a client, not its control lane.
func TestLargeRequestsAtOnce(t *testing.T) {
	r := newRelay(t)
	_, c := r.client(t, newHandler(), "site_1", wire.RoleSite)
	stub := []byte(`{"id":"` + strings.Repeat("x", 400) + `"}`)
	var wg sync.WaitGroup
	for range 40 {
		wg.Go(func() {
			_, err := c.Request(t.Context(), func(dst []byte, id string) []byte {
				return wire.AppendEnqueue(dst, id, slices.Repeat([][]byte{stub}, wire.MaxList))
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := len(r.Sessions()); n != 1 {
		t.Fatal(n)
	}
}

// TestWithdrawnRequest: a request that is given up before it was sent whole leaves nothing behind.
func TestWithdrawnRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, func(c *ServerConfig) { c.Budget = NewBudget(8 << 20) })
		defer b.close()
		c := b.client(t, "r")
		conn := <-c.h.welcome
		b.Server.cfg.Budget.TryReserve(8 << 20) // so it gets no credit
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if _, err := result(ctx, conn, "j", sealed(1<<20)); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		synctest.Wait()
		if used := b.Server.cfg.Budget.Used(); used != 8<<20 {
			t.Fatal(used)
		}
		var refusal *wire.Error // and one that waits longer than the relay lets it
		if _, err := result(context.Background(), conn, "j", sealed(1<<20)); !errors.As(err, &refusal) || refusal.Code != wire.CodeServerError || refusal.RetryAfter == 0 {
			t.Fatal(err)
		}
		b.Server.cfg.Budget.Release(8 << 20)
		if _, err := result(context.Background(), conn, "j", sealed(1<<20)); err != nil {
			t.Fatal(err)
		}
		if !conn.slots.TryAcquire(wire.MaxRequests) || !conn.bulkSlots.TryAcquire(mostBulkRequests) || !conn.bytes.TryAcquire(wire.MaxRequestBytes) {
			t.Fatal("places are lost")
		}
		c.stop()
		<-c.done
	})
}

// TestSlowReceiverOfAStream: a peer that takes less than 32 KiB of a stream in 10 s gets an error, and its budget goes.
func TestSlowReceiverOfAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		defer b.close()
		b.op.handle = sendsEnvelopes(1 << 20)
		conn, br := b.joinByHand(t)
		defer conn.Close()
		go func() {
			_, _ = conn.Write(appendMessage(nil, opText, true, []byte(`{"type":"fetch","id":"1","grant":{"jobId":"j","leaseId":"l"}}`)))
		}()
		synctest.Wait()
		begin := time.Now()
		aborted := false
		for !aborted {
			head := make([]byte, 4)
			if _, err := io.ReadFull(br, head); err != nil {
				t.Fatal(err)
			}
			n := int(binary.BigEndian.Uint16(head[2:]))
			if head[1] < 126 {
				n = int(head[1]) - 2 // two of them are read
			}
			payload := make([]byte, n)
			for at := 0; at < n; { // 1.6 KiB a second
				m, err := io.ReadFull(br, payload[at:min(n, at+160)])
				if err != nil {
					t.Fatal(err)
				}
				at += m
				<-time.After(100 * time.Millisecond)
			}
			full := append(head[2:], payload...)
			aborted = head[0]&0xF == opBinary && head[1] < 126 && full[4] == wire.PartAbort
			if time.Since(begin) > 2*time.Minute {
				t.Fatal("it goes on")
			}
		}
		if used := b.Server.cfg.Budget.Used(); used != 0 {
			t.Fatal(used)
		}
	})
}
