package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"pushrelay/wire"
)

func TestNoHelloEndsTheHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		defer b.close()
		c := b.dial(t, wire.DaemonPath)
		begin := time.Now()
		c.read()
		e, code, text := c.closed()
		took := time.Since(begin)
		if code != 4408 || !strings.HasPrefix(text, "handshake-timeout") || e == nil || took < 10*time.Second || took > 11*time.Second {
			t.Fatal(e, code, text, took)
		}
	})
}

func TestSlowOpenerIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		defer b.close()
		b.op.open = func(ctx context.Context, _ *Session) (Peer, wire.Welcome, error) {
			<-ctx.Done()
			return nil, wire.Welcome{}, ctx.Err()
		}
		c := b.dial(t, wire.DaemonPath)
		ch := c.read()
		c.write(b.helloFrame(ch["nonce"].(string), wire.DaemonPath))
		if e, code, _ := c.closed(); code != 1013 || e["error"] != "server-error" {
			t.Fatal(e, code)
		}
	})
}

func TestOpenThatEndsTooLateIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		defer b.close()
		b.op.open = func(ctx context.Context, _ *Session) (Peer, wire.Welcome, error) {
			<-ctx.Done() // and admits nevertheless
			return nil, wire.Welcome{}, nil
		}
		c := b.dial(t, wire.DaemonPath)
		ch := c.read()
		c.write(b.helloFrame(ch["nonce"].(string), wire.DaemonPath))
		_ = c.ws.CloseNow()
		synctest.Wait()
		if len(b.op.closed) != 1 || b.op.closed[0].Reason != ReasonCut {
			t.Fatal(b.op.closed)
		}
	})
}

// TestFrameThatCrossesARefusal comes just when the opener has said no: there is nobody to handle it.
func TestFrameThatCrossesARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := make(chan *Session, 1)
		b := newBubble(t)
		b.op.open = func(_ context.Context, s *Session) (Peer, wire.Welcome, error) {
			refused <- s
			return nil, wire.Welcome{}, &EndError{Reason: ReasonUnknown, Text: "unknown"}
		}
		c := b.dial(t, wire.DaemonPath)
		ch := c.read()
		c.write(b.helloFrame(ch["nonce"].(string), wire.DaemonPath))
		s := <-refused
		synctest.Wait()
		frame := []byte(`{"type":"heartbeat","id":"1","activeLeases":[]}`)
		s.received(head{Type: wire.TypeHeartbeat, ID: "1"}, frame, 0)
		if _, code, _ := c.closed(); code != 4401 {
			t.Fatal(code)
		}
		b.close()
		if strings.Contains(b.log.String(), "a handler failed") {
			t.Fatal(b.log.String())
		}
	})
}

func TestPingsComeAndSilenceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		defer b.close()
		conn, br := b.joinByHand(t)
		defer conn.Close()
		pings := 0
		for {
			op, _, err := tryReadFrame(br) // and no pong
			if err != nil || op == opClose {
				break
			}
			if op == opPing {
				pings++
			}
		}
		if pings < 2 || pings > 3 {
			t.Fatal(pings)
		}
		b.seen.until(t, "ended", func() bool { return len(b.seen.ended) == 1 })
		if b.seen.ended[0] != ReasonIdle {
			t.Fatal(b.seen.ended)
		}
		if d := b.seen.sums[0].Duration; d < 60*time.Second || d > 72*time.Second {
			t.Fatal(d)
		}
	})
}

func TestAnyByteIsLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		defer b.close()
		c := b.join(t, wire.DaemonPath)
		go func() { _, _, _ = c.ws.Read(context.Background()) }() // answers pings
		<-time.After(10 * time.Minute)
		if n := len(b.Sessions()); n != 1 {
			t.Fatal(b.seen.ended)
		}
		_ = c.ws.CloseNow()
		synctest.Wait()
	})
}

func TestPingsAreAnsweredWhileTheStoreIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		defer b.close()
		var handled atomic.Int32
		b.op.handle = func(_ context.Context, _ *Session, q *Request) {
			if q.Type() != wire.TypeHeartbeat {
				<-time.After(10 * time.Second)
			}
			handled.Add(1)
			q.Reply(wire.AppendReplyOK(nil, q.ID()))
		}
		c := b.join(t, wire.DaemonPath)
		replies := make(chan map[string]any, 64)
		go func() {
			for {
				m, err := c.tryRead()
				if err != nil {
					close(replies)
					return
				}
				replies <- m
			}
		}()
		for i := range 40 {
			c.write(fmt.Sprintf(`{"type":"result","id":"%d","grant":{"jobId":"j%d","leaseId":"l"},"disposition":"ok","envelope":{}}`, i, i))
		}
		begin := time.Now()
		if err := c.ws.Ping(context.Background()); err != nil {
			t.Fatal(err)
		}
		c.write(`{"type":"heartbeat","id":"h","activeLeases":[]}`)
		if m := <-replies; m["re"] != "h" {
			t.Fatal(m)
		}
		if d := time.Since(begin); d > time.Second {
			t.Fatalf("the ping and the heartbeat took %v", d)
		}
		for range 40 {
			<-replies
		}
		if d := time.Since(begin); d > 31*time.Second {
			t.Fatalf("16 at a time, so 30 s; it took %v", d)
		}
		_ = c.ws.CloseNow()
		for range replies {
		}
	})
}

// TestSilentPeersAreClosed: peers that neither read nor answer are gone in time, and who closes them doesn't wait.
func TestSilentPeersAreClosed(t *testing.T) {
	const n = 500
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, func(c *ServerConfig) {
			c.Limits.MaxUnauthenticatedPerAddr, c.Limits.AcceptPerSecond = n, n
		})
		defer b.close()
		for i := range n {
			b.join(t, wire.DaemonPath, func(h *hello) { h.caller = fmt.Sprint("runner_", i) })
		}
		for i, s := range b.Sessions() {
			if i%2 == 0 {
				for range 10 {
					s.Push([]byte(`{"type":"cancel","grants":[]}`)) // a write that blocks: nobody reads a pipe
				}
			}
		}
		synctest.Wait()
		begin := time.Now()
		for _, s := range b.Sessions() {
			s.End(ReasonRevoked, strings.Repeat("ä", 100))
		}
		if d := time.Since(begin); d > 0 {
			t.Fatalf("End waited for %v", d)
		}
		b.seen.until(t, "all gone", func() bool { return len(b.seen.ended) == n })
		if d := time.Since(begin); d > 15*time.Second {
			t.Fatalf("it took %v", d)
		}
	})
}

func TestEveryReasonReachesThePeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		defer b.close()
		for r, want := range map[Reason]websocket.StatusCode{
			ReasonGoingAway: 1001, ReasonHandshakeTimeout: 4408, ReasonIdle: 4408, ReasonInternal: 1011, ReasonBusy: 1013,
			ReasonTooSlow: 4429, ReasonUnknown: 4401, ReasonFlooding: 1008, ReasonTooLarge: 1009, ReasonBadFrame: 4400,
			ReasonSuperseded: 4409, ReasonSignature: 4401, ReasonRevoked: 4403, ReasonVersion: 4426,
		} {
			c := b.join(t, wire.SitePath, func(h *hello) { h.caller = string(r) })
			s := b.Sessions()[0]
			s.Push([]byte(`{"type":"notices","jobs":[]}`)) // what was queued still comes
			s.End(r, "why "+strings.Repeat("日本", 50))
			s.End(ReasonInternal, "second") // the first wins
			if r != ReasonTooSlow {
				if m := c.read(); m["type"] != "notices" {
					t.Fatal(m)
				}
			}
			_, code, text := c.closed()
			if code != want || !strings.HasPrefix(text, string(r)+": why 日") || len(text) > 123 || len(text) < 120 || strings.ContainsRune(text, '�') {
				t.Fatal(r, code, text)
			}
			b.seen.until(t, "ended", func() bool { return slices.Contains(b.seen.ended, r) })
			synctest.Wait()
			if e := b.op.closed[len(b.op.closed)-1]; e.Reason != r || e.Code != want {
				t.Fatal(e)
			}
		}
	})
}

func TestStalledWriteIsTooSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		defer b.close()
		b.join(t, wire.DaemonPath)
		s := b.Sessions()[0]
		s.Push([]byte(`{"type":"cancel","grants":[]}`))
		s.Push([]byte(`{"type":"cancel","grants":[]}`))
		b.seen.until(t, "ended", func() bool { return len(b.seen.ended) == 1 })
		sum := b.seen.sums[0]
		if b.seen.ended[0] != ReasonTooSlow || sum.Duration < 10*time.Second || sum.Duration > 17*time.Second {
			t.Fatal(b.seen.ended, sum)
		}
	})
}

func TestControlLaneOverflows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		defer b.close()
		c := b.join(t, wire.DaemonPath)
		s := b.Sessions()[0]
		frame := []byte(`{"type":"cancel","pad":"` + strings.Repeat("x", 8<<10-26) + `"}`)
		for range 64 {
			s.Push(frame)
		}
		_, code, text := c.closed()
		if code != 4429 || !strings.HasPrefix(text, "too-slow") {
			t.Fatal(code, text)
		}
		b.seen.until(t, "ended", func() bool { return len(b.seen.ended) == 1 })
		if q := b.seen.sums[0].Queued; q < 200<<10 || q > maxControlLane {
			t.Fatal(q)
		}
		if !strings.Contains(b.log.String(), `"reason":"too-slow"`) {
			t.Fatal(b.log.String())
		}
	})
}

// TestCreditThatIsNotRead: opening a stream costs a peer less than its credit would cost the relay, if it piled up.
func TestCreditThatIsNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		defer b.close()
		conn, _ := b.joinByHand(t)
		defer conn.Close()
		s := b.Sessions()[0]
		open := appendMessage(nil, opBinary, true, part(1, wire.PartFirst, wire.InitialCredit+1, "x"))
		openAndAbort := appendMessage(open, opBinary, true, part(1, wire.PartAbort, 0, ""))
		for range 4000 {
			if _, err := conn.Write(openAndAbort); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		s.link.mu.Lock()
		urgent, control, streams := len(s.link.urgent), len(s.link.control), len(s.link.in.streams)
		s.link.mu.Unlock()
		if urgent+control+streams > 0 || !s.link.open() {
			t.Fatal(urgent, control, streams)
		}
		if used := b.Server.cfg.Budget.Used(); used != 0 {
			t.Fatal(used)
		}
	})
}

func TestSlowButMovingPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		defer b.close()
		conn, br := b.joinByHand(t)
		defer conn.Close()
		s := b.Sessions()[0]
		s.Push([]byte(`{"type":"cancel","pad":"` + strings.Repeat("x", 30<<10) + `"}`))
		got := 0
		for got < 30<<10 { // 2 KiB a second: 16 KiB take 8 s
			n, err := io.ReadFull(br, make([]byte, 512))
			if err != nil {
				t.Fatal(got, err)
			}
			got += n
			<-time.After(250 * time.Millisecond)
		}
		synctest.Wait()
		if len(b.Sessions()) != 1 {
			t.Fatal(b.seen.ended)
		}
	})
}

func TestAbandonedStreamsAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		defer b.close()
		c := b.join(t, wire.DaemonPath)
		data := strings.Repeat("x", 100)
		c.writeBinary(part(5, wire.PartFirst, 1<<20, data))
		begin := time.Now()
		m := c.read()
		for m["type"] == "credit" {
			m = c.read()
		}
		if m["type"] != "error" || m["stream"] != 5.0 || m["error"] != "server-error" {
			t.Fatal(m)
		}
		if d := time.Since(begin); d < 10*time.Second || d > 11*time.Second {
			t.Fatal(d)
		}
		c.writeBinary(part(5, 0, 0, data)) // it crossed the refusal
		c.writeBinary(part(5, wire.PartAbort, 0, ""))
		c.writeBinary(part(5, wire.PartFirst, 200, data)) // the id is free again
		c.writeBinary(part(5, wire.PartAbort, 0, ""))
		c.write(`{"type":"heartbeat","id":"1","activeLeases":[]}`)
		if m := c.read(); m["re"] != "1" {
			t.Fatal(m)
		}
		if used := b.Server.cfg.Budget.Used(); used != 0 {
			t.Fatal(used)
		}
		_ = c.ws.CloseNow()
	})
}

func TestFullBudgetRefusesAfterItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, func(c *ServerConfig) { c.Budget = NewBudget(8 << 20) })
		defer b.close()
		b.Server.cfg.Budget.TryReserve(8 << 20)
		c := b.join(t, wire.DaemonPath)
		c.writeBinary(part(1, wire.PartFirst, 1<<20, strings.Repeat("x", wire.MaxPartBytes)))
		c.writeBinary(part(1, 0, 0, strings.Repeat("x", wire.MaxPartBytes)))
		begin := time.Now()
		m := c.read()
		if m["type"] != "error" || m["stream"] != 1.0 || m["retryAfter"] == nil {
			t.Fatal(m)
		}
		if d := time.Since(begin); d < 10*time.Second || d > 11*time.Second {
			t.Fatal(d)
		}
		b.Server.cfg.Budget.Release(8 << 20)
		// A second one, that gets its memory in time.
		c.writeBinary(part(1, wire.PartAbort, 0, ""))
		c.writeBinary(part(2, wire.PartFirst, 1<<20, strings.Repeat("x", wire.MaxPartBytes)))
		if m := c.read(); m["type"] != "credit" || m["stream"] != 2.0 {
			t.Fatal(m)
		}
		_ = c.ws.CloseNow()
	})
}

func TestStreamWithoutCreditEndsTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		defer b.close()
		c := b.join(t, wire.DaemonPath)
		b.Sessions()[0].PushBulk(func(context.Context) ([][]byte, error) { return [][]byte{sealed(1 << 20)}, nil })
		begin := time.Now()
		for {
			_, _, err := c.ws.Read(context.Background())
			var ce websocket.CloseError
			if errors.As(err, &ce) {
				if ce.Code != 4429 {
					t.Fatal(ce)
				}
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if d := time.Since(begin); d < 30*time.Second || d > 31*time.Second {
			t.Fatal(d)
		}
		if used := b.Server.cfg.Budget.Used(); used != 0 {
			t.Fatal(used)
		}
	})
}

func TestDrain(t *testing.T) {
	const n = 20
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		defer b.close()
		hold := make(chan struct{})
		b.op.handle = func(_ context.Context, _ *Session, q *Request) {
			if q.Type() == wire.TypeFetch {
				<-hold
			}
			q.Reply(wire.AppendReplyOK(nil, q.ID()))
		}
		type seen struct {
			goaway  float64
			at      time.Duration
			code    websocket.StatusCode
			replied bool
		}
		all := make(chan seen, n)
		var begin time.Time
		for i := range n {
			c := b.join(t, wire.DaemonPath, func(h *hello) { h.caller = fmt.Sprint("runner_", i) })
			go func() {
				var s seen
				for {
					m, err := c.tryRead()
					var ce websocket.CloseError
					switch {
					case errors.As(err, &ce):
						s.code, s.at = ce.Code, time.Since(begin)
						all <- s
						return
					case err != nil:
						all <- s
						return
					case m["type"] == "goaway":
						s.goaway = m["reconnectAfterMs"].(float64)
						c.write(`{"type":"fetch","id":"late","grant":{"jobId":"j","leaseId":"l"}}`)
					case m["type"] == "reply":
						s.replied = true
					}
				}
			}()
		}
		begin = time.Now()
		b.Refuse()
		go func() { <-time.After(10*time.Second + 300*time.Millisecond); close(hold) }()
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := b.Drain(ctx, 10*time.Second, "restart"); err != nil {
			t.Fatal(err)
		}
		perSecond := map[int]int{}
		replied := 0
		for range n {
			s := <-all
			if s.code != 1001 || s.goaway <= 0 || s.goaway > 10_000 {
				t.Fatal(s)
			}
			perSecond[int(s.at.Seconds())]++
			if s.replied {
				replied++
			}
		}
		if len(perSecond) < 8 || replied < 2 {
			t.Fatal(perSecond, replied)
		}
	})
}

// TestDrainOfThoseWhoLeft: nobody is waited for who has gone already.
func TestDrainOfThoseWhoLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		defer b.close()
		c := b.join(t, wire.DaemonPath)
		b.Refuse()
		begin := time.Now()
		go func() {
			for {
				m, err := c.tryRead()
				if err != nil {
					return
				}
				if m["type"] == "goaway" {
					_ = c.ws.Close(websocket.StatusNormalClosure, "")
				}
			}
		}()
		if err := b.Drain(t.Context(), 10*time.Second, "restart"); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took > time.Second {
			t.Fatal(took)
		}
	})
}
