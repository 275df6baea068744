package session

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pushrelay/wire"
)

// joinTCP shakes hands on a bare TCP connection, whose reads the test decides on.
func (r *relay) joinTCP(t testing.TB, caller string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, br := r.dialTCP(t, wire.DaemonPath)
	_, challenge := readFrame(t, br)
	ch, err := wire.Decode[wire.Challenge](challenge)
	if err != nil {
		t.Fatal(err)
	}
	hello := r.helloFrame(ch.Nonce, wire.DaemonPath, func(h *hello) { h.caller = caller })
	if _, err := conn.Write(appendMessage(nil, opText, true, []byte(hello))); err != nil {
		t.Fatal(err)
	}
	if _, w := readFrame(t, br); !strings.Contains(string(w), "welcome") {
		t.Fatal(string(w))
	}
	return conn, br
}

func (r *relay) byCaller(caller string) *Session {
	r.op.mu.Lock()
	defer r.op.mu.Unlock()
	for _, s := range r.op.sessions {
		if s.Caller() == caller {
			return s
		}
	}
	return nil
}

// TestSlowConsumerHurtsNobody: a peer that stops reading is closed with its code, finds the close frame when it reads
// again, and the others' round trips stay as they were.
func TestSlowConsumerHurtsNobody(t *testing.T) {
	r := newRelay(t)
	_, br := r.joinTCP(t, "slow")
	slow := r.byCaller("slow")
	h := newHandler()
	_, c := r.client(t, h, "quick", wire.RoleDaemon)
	trips := func(n int) []time.Duration {
		var all []time.Duration
		for range n {
			at := time.Now()
			if _, err := heartbeat(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			all = append(all, time.Since(at))
		}
		slices.Sort(all)
		return all
	}
	before := trips(300)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		frame := []byte(`{"type":"cancel","pad":"` + strings.Repeat("x", 16<<10) + `"}`)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			if slow.link.open() {
				slow.Push(slices.Clone(frame))
			}
		}
	})
	during := trips(300)
	r.seen.until(t, "the slow one is being closed", func() bool { return !slow.link.open() })
	close(stop)
	wg.Wait()
	var last []byte
	for op := byte(0); op != opClose; {
		op, last = readFrame(t, br)
	}
	if code := binary.BigEndian.Uint16(last); code != 4429 || !strings.HasPrefix(string(last[2:]), "too-slow") {
		t.Fatalf("%d %q", code, last[2:])
	}
	t.Logf("p99 %v before, %v during", before[296], during[296])
	if during[296] > 20*before[296]+100*time.Millisecond { // a loaded machine has pauses of its own
		t.Fatalf("p99 was %v and became %v", before[296], during[296])
	}
	r.seen.until(t, "ended", func() bool { return len(r.seen.ended) == 1 })
	if r.seen.ended[0] != ReasonTooSlow || r.seen.sums[0].Queued == 0 {
		t.Fatal(r.seen.ended, r.seen.sums)
	}
}

// TestStalledSessionsStayWithinTheBudget: many sessions that don't read, each with 6 MiB to get, and one that does.
func TestStalledSessionsStayWithinTheBudget(t *testing.T) {
	const n = 60
	r := newRelay(t, func(c *ServerConfig) { c.Budget = NewBudget(32 << 20) })
	envelope := sealed(wire.MaxEnvelopeBytes)
	small := sealed(20 << 10)
	load := func(e []byte) Loader {
		return func(context.Context) ([][]byte, error) {
			return [][]byte{wire.AppendPayloadHead(nil, "j", "l"), e, wire.AppendTail(nil)}, nil
		}
	}
	for i := range n {
		caller := fmt.Sprint("stalled_", i)
		r.joinTCP(t, caller)
		r.byCaller(caller).PushBulk(load(envelope))
	}
	c := r.join(t, wire.DaemonPath, func(h *hello) { h.caller = "reads" })
	reads := r.byCaller("reads")
	for range 50 {
		begin := time.Now()
		reads.PushBulk(load(small))
		if m := c.read(); m["type"] != "payload" {
			t.Fatal(m)
		}
		if d := time.Since(begin); d > 2*time.Second {
			t.Fatalf("a small payload took %v", d)
		}
	}
	if peak := r.Server.cfg.Budget.Peak(); peak > 40<<20 {
		t.Fatalf("%d MiB", peak>>20)
	}
}

// counting counts the writes of a connection.
type counting struct {
	net.Conn
	writes *atomic.Int64
}

func (c counting) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

func TestFramesThatAreReadyLeaveInOneWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		defer b.close()
		var writes atomic.Int64
		b.pipes.Wrap = func(c net.Conn) net.Conn { return counting{c, &writes} }
		conn, br := b.joinByHand(t)
		defer conn.Close()
		s := b.Sessions()[0]
		synctest.Wait()
		before := writes.Load()
		s.Push([]byte(`{"type":"cancel","n":0}`)) // the writer blocks in it: nobody reads
		synctest.Wait()
		for i := range 100 {
			s.Push(fmt.Appendf(nil, `{"type":"cancel","n":%d}`, i+1))
		}
		for i := range 101 {
			if _, f := readFrame(t, br); string(f) != fmt.Sprintf(`{"type":"cancel","n":%d}`, i) {
				t.Fatal(string(f))
			}
		}
		synctest.Wait()
		if n := writes.Load() - before; n != 2 {
			t.Fatalf("%d writes", n)
		}
	})
}

// TestControlOvertakesBulk: what is pushed while a large frame is being sent comes before the rest of it.
func TestControlOvertakesBulk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		defer b.close()
		conn, br := b.joinByHand(t)
		defer conn.Close()
		s := b.Sessions()[0]
		for range 2 {
			s.PushBulk(func(context.Context) ([][]byte, error) { return [][]byte{sealed(60 << 10)}, nil })
		}
		readFrame(t, br)
		synctest.Wait()
		s.Push([]byte(`{"type":"cancel"}`))
		streams := map[uint32]bool{}
		at := -1
		for i := range 4 { // one is under way already, four are left with the cancel
			op, f := readFrame(t, br)
			if op == opText {
				at = i
				continue
			}
			h, _, _, err := wire.ParsePart(f)
			if err != nil {
				t.Fatal(err)
			}
			streams[h.Stream] = true
		}
		if at > 1 || at < 0 || len(streams) != 2 {
			t.Fatal(at, streams)
		}
	})
}

func TestReaderIsNeverBlockedByAFullLane(t *testing.T) {
	t.Parallel()
	r := newRelay(t)
	r.op.handle = sendsEnvelopes(wire.MaxEnvelopeBytes)
	conn, br := r.joinTCP(t, "greedy")
	for i := range wire.MaxRequests { // reads nothing of what it asks for
		f := fmt.Appendf(nil, `{"type":"fetch","id":"%d","grant":{"jobId":"j%d","leaseId":"l"}}`, i, i)
		if _, err := conn.Write(appendMessage(nil, opText, true, f)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := conn.Write(appendMessage(nil, opText, true, []byte(`{"type":"fetch","id":"x","grant":{"jobId":"j","leaseId":"l"}}`))); err != nil {
		t.Fatal(err)
	}
	var code uint16
	for {
		op, f, err := tryReadFrame(br)
		if errors.Is(err, io.EOF) || err != nil {
			break
		}
		if op == opClose {
			code = binary.BigEndian.Uint16(f)
		}
	}
	if code != 1008 {
		t.Fatal(code)
	}
	r.seen.until(t, "ended", func() bool { return len(r.seen.ended) == 1 })
	if used := r.Server.cfg.Budget.Used(); used != 0 {
		t.Fatal(used)
	}
}
