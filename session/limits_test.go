package session

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"pushrelay/wire"
)

// padded is a heartbeat of exactly n bytes.
func padded(n int) string {
	const open, end = `{"type":"heartbeat","id":"p","activeLeases":[],"pad":"`, `"}`
	return open + strings.Repeat("x", n-len(open)-len(end)) + end
}

// part makes one binary message.
func part(stream uint32, flags byte, total int, data string) []byte {
	b := append(binary.BigEndian.AppendUint32(nil, stream), flags)
	if flags&wire.PartFirst != 0 {
		b = binary.BigEndian.AppendUint32(b, uint32(total))
	}
	return append(b, data...)
}

func TestLimitsToTheByte(t *testing.T) {
	r := newRelay(t)
	bystander := r.join(t, wire.SitePath)
	t.Run("hello", func(t *testing.T) {
		c := r.dial(t, wire.DaemonPath)
		c.read()
		c.write(`{"type":"` + strings.Repeat("x", wire.MaxHelloBytes-9-2) + `"}`) // fits, and isn't a hello
		if _, code, _ := c.closed(); code != 4400 {
			t.Fatal(code)
		}
		c = r.dial(t, wire.DaemonPath)
		c.read()
		c.write(strings.Repeat(" ", wire.MaxHelloBytes+1))
		if e, code, text := c.closed(); code != 1009 || e["error"] != "bad-request" || !strings.HasPrefix(text, "too-large") {
			t.Fatal(e, code, text)
		}
	})
	t.Run("text", func(t *testing.T) {
		c := r.join(t, wire.DaemonPath)
		c.write(padded(wire.MaxTextBytes))
		if m := c.read(); m["re"] != "p" {
			t.Fatal(m)
		}
		c.write(padded(wire.MaxTextBytes + 1))
		if e, code, _ := c.closed(); code != 1009 || e["error"] != "bad-request" {
			t.Fatal(e, code)
		}
	})
	t.Run("huge", func(t *testing.T) {
		c := r.join(t, wire.DaemonPath)
		c.write(padded(5 << 20))
		if _, code, _ := c.closed(); code != 1009 {
			t.Fatal(code)
		}
	})
	t.Run("part", func(t *testing.T) {
		c := r.join(t, wire.DaemonPath)
		frame := padded(wire.MaxPartBytes + 1)
		c.writeBinary(part(1, wire.PartFirst, len(frame), frame[:wire.MaxPartBytes]))
		c.writeBinary(part(1, wire.PartLast, 0, frame[wire.MaxPartBytes:]))
		if m := c.read(); m["re"] != "p" {
			t.Fatal(m)
		}
		c.writeBinary(part(2, wire.PartFirst|wire.PartLast, len(frame), frame))
		if e, code, _ := c.closed(); code != 1009 || e["error"] != "bad-request" {
			t.Fatal(e, code)
		}
	})
	bystander.write(`{"type":"cancel","id":"9","jobIds":["a"]}`)
	if m := bystander.read(); m["re"] != "9" {
		t.Fatal(m)
	}
}

func TestBadParts(t *testing.T) {
	r := newRelay(t)
	full := strings.Repeat("x", wire.MaxPartBytes)
	for name, c := range map[string]struct {
		parts [][]byte
		code  websocket.StatusCode
	}{
		"not opened":     {[][]byte{part(1, 0, 0, "x")}, 4400},
		"opened twice":   {[][]byte{part(1, wire.PartFirst, 90, "x"), part(1, wire.PartFirst, 90, "x")}, 4400},
		"too long":       {[][]byte{part(1, wire.PartFirst, wire.MaxFrameBytes+1, "x")}, 1009},
		"short":          {[][]byte{{0, 0, 0}}, 4400},
		"unknown flag":   {[][]byte{part(1, 8, 0, "x")}, 4400},
		"ends early":     {[][]byte{part(1, wire.PartFirst, 9, "x"), part(1, wire.PartLast, 0, "x")}, 4400},
		"ends late":      {[][]byte{part(1, wire.PartFirst, 2, "x"), part(1, 0, 0, "x")}, 4400},
		"overflows":      {[][]byte{part(1, wire.PartFirst, 2, "x"), part(1, wire.PartLast, 0, "xx")}, 4400},
		"empty":          {[][]byte{part(1, wire.PartFirst, 2, "x"), part(1, 0, 0, "")}, 4400},
		"abort and more": {[][]byte{part(1, wire.PartFirst, 2, "x"), part(1, wire.PartAbort, 0, "x")}, 4400},
		"no credit": {[][]byte{
			part(1, wire.PartFirst, 7<<20, full), part(2, wire.PartFirst, 7<<20, full), part(3, wire.PartFirst, 7<<20, full),
			part(3, 0, 0, full), part(3, 0, 0, "x"), // the session's reservation is with 1 and 2
		}, 4400},
		"nine": {func() (all [][]byte) {
			for i := range uint32(9) {
				all = append(all, part(i, wire.PartFirst, 90, "x"))
			}
			return all
		}(), 4400},
	} {
		t.Run(name, func(t *testing.T) {
			ws := r.join(t, wire.DaemonPath)
			for _, p := range c.parts {
				ws.writeBinary(p)
			}
			if e, code, text := ws.closed(); code != c.code || e["error"] != "bad-request" {
				t.Fatal(e, code, text)
			}
		})
	}
	r.seen.until(t, "all ended", func() bool { return len(r.seen.ended) == 12 })
	r.budgetEmpties(t)
}

// TestCrowdedFrames: what would take many times a frame's bytes to decode isn't decoded.
func TestCrowdedFrames(t *testing.T) {
	many := func(n int, entry string) string { return strings.TrimSuffix(strings.Repeat(entry+",", n), ",") }
	members := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"m%d":1`, i)
		}
		return b.String()
	}
	pad := strings.Repeat(" ", wire.MaxTextBytes)
	for name, frame := range map[string]string{
		"grants":  `{"type":"heartbeat","id":"1","activeLeases":[` + many(2<<20, "{}") + `]}`,
		"strings": `{"type":"heartbeat","id":"1","activeLeases":[],"x":{"y":[` + many(mostEntries+1, `""`) + pad + `]}}`,
		"members": `{"type":"heartbeat","id":"1","activeLeases":[]` + members(mostEntries) + pad + `}`,
	} {
		if !crowded([]byte(frame)) {
			t.Fatal(name)
		}
		l := &link{engine: newEngine(NewBudget(DefaultBudget), nil)}
		if got := testing.AllocsPerRun(1, func() { _, _ = l.head([]byte(frame)) }); got > 3*mostEntries {
			t.Fatal(name, got)
		}
		if _, err := l.head([]byte(frame)); err == nil {
			t.Fatal(name)
		}
		l.client = true // a relay's own frames may name many sites
		if _, err := l.head([]byte(frame)); err != nil {
			t.Fatal(name, err)
		}
	}
	for name, frame := range map[string]string{
		"commas":  `{"type":"heartbeat","id":"1","activeLeases":[],"x":"` + strings.Repeat(",", 1<<20) + `"}`,
		"list":    `{"type":"heartbeat","id":"1","activeLeases":[],"x":[` + many(mostEntries, `""`) + pad + `]}`,
		"members": `{"type":"heartbeat","id":"1","activeLeases":[]` + members(mostEntries-3) + pad + `}`,
	} {
		if crowded([]byte(frame)) {
			t.Fatal(name)
		}
	}
	r := newRelay(t)
	c := r.join(t, wire.DaemonPath)
	frame := `{"type":"heartbeat","id":"1","activeLeases":[` + many(mostEntries+1, "{}") + pad + `]}`
	for at := 0; at < len(frame); at += wire.MaxPartBytes {
		end, flags := min(at+wire.MaxPartBytes, len(frame)), byte(0)
		if at == 0 {
			flags |= wire.PartFirst
		}
		if end == len(frame) {
			flags |= wire.PartLast
		}
		c.writeBinary(part(1, flags, len(frame), frame[at:end]))
	}
	if e, code, text := c.closed(); code != 4400 || !strings.Contains(text, "entries") {
		t.Fatal(e, code, text)
	}
}

func TestPartsInterleaveAndAbort(t *testing.T) {
	r := newRelay(t)
	c := r.join(t, wire.DaemonPath)
	b := `{"type":"heartbeat","id":"b","activeLeases":[]}`
	a := strings.Replace(padded(90), `"p"`, `"a"`, 1)
	c.writeBinary(part(7, wire.PartFirst, len(a), a[:10]))
	c.writeBinary(part(8, wire.PartFirst, len(b), b[:10]))
	c.writeBinary(part(9, wire.PartFirst, 90, "gone"))
	c.write(`{"type":"heartbeat","id":"t","activeLeases":[]}`)
	c.writeBinary(part(9, wire.PartAbort, 0, ""))
	c.writeBinary(part(9, wire.PartAbort, 0, "")) // crossing aborts are harmless
	c.writeBinary(part(8, wire.PartLast, 0, b[10:]))
	c.writeBinary(part(7, wire.PartLast, 0, a[10:]))
	got := map[any]bool{}
	for range 3 {
		got[c.read()["re"]] = true
	}
	if !got["a"] || !got["b"] || !got["t"] {
		t.Fatal(got)
	}
	r.budgetEmpties(t)
}

func TestUnknownFrames(t *testing.T) {
	r := newRelay(t)
	c := r.join(t, wire.DaemonPath)
	c.write(`{"type":"enqueue","id":"1","stubs":[]}`) // a site's
	if m := c.read(); m["type"] != "error" || m["re"] != "1" || m["error"] != "bad-request" {
		t.Fatal(m)
	}
	c.write(`{"type":"from-the-future","unknown":{"a":[1]}}`)
	if m := c.read(); m["type"] != "error" || m["re"] != nil {
		t.Fatal(m)
	}
	c.write(`{"type":"heartbeat","activeLeases":[]}`) // no id
	if m := c.read(); m["type"] != "error" || m["re"] != nil {
		t.Fatal(m)
	}
	c.write(`{"type":"heartbeat","id":"` + strings.Repeat("x", 65) + `","activeLeases":[]}`)
	if m := c.read(); m["type"] != "error" || m["re"] != nil {
		t.Fatal(m)
	}
	c.write(`{"type":"heartbeat","id":"2","activeLeases":[],"unknown":null}`)
	if m := c.read(); m["type"] != "reply" || m["re"] != "2" {
		t.Fatal(m)
	}
	if len(r.seen.refused) != 2 || r.seen.refused[0] != RefusedType {
		t.Fatal(r.seen.refused)
	}
	for _, junk := range []string{`{`, `[]`, `"x"`, `null`, ``, `{"type":7}`, `{"id":"1"}`, "{\"type\":\"heartbeat\",\"\xff\":1}", `{"type":"credit","stream":1,"bytes":-1}`} {
		c := r.join(t, wire.DaemonPath)
		c.write(junk)
		if e, code, _ := c.closed(); code != 4400 || e["error"] != "bad-request" {
			t.Fatal(junk, e, code)
		}
	}
}

func TestFloodIs1008(t *testing.T) {
	r := newRelay(t)
	block := make(chan struct{})
	r.op.handle = func(_ context.Context, _ *Session, q *Request) { <-block; q.Reply(wire.AppendReplyOK(nil, q.ID())) }
	c := r.join(t, wire.DaemonPath)
	for i := range wire.MaxRequests {
		c.write(fmt.Sprintf(`{"type":"fetch","id":"%d","grant":{"jobId":"j","leaseId":"l"}}`, i))
	}
	c.write(`{"type":"from-the-future"}`) // the session lives, and its reader reads
	if m := c.read(); m["type"] != "error" {
		t.Fatal(m)
	}
	if n := r.session(0).Stats().Unanswered; n != wire.MaxRequests {
		t.Fatal(n)
	}
	c.write(`{"type":"fetch","id":"x","grant":{"jobId":"j","leaseId":"l"}}`)
	e, code, text := c.closed()
	if code != 1008 || e["error"] != "rate-limited" || !strings.HasPrefix(text, "flooding") {
		t.Fatal(e, code, text)
	}
	close(block)
	r.seen.until(t, "ended", func() bool { return len(r.seen.ended) == 1 })
}

func TestNotWebSocket(t *testing.T) {
	r := newRelay(t)
	for name, b := range map[string][]byte{
		"unmasked":      {0x81, 0x02, '{', '}'},
		"reserved bits": {0xF1, 0x80, 0, 0, 0, 0},
		"opcode":        {0x83, 0x80, 0, 0, 0, 0},
		"long ping":     {0x89, 0xFE, 0x01, 0x00, 0, 0, 0, 0},
		"continuation":  {0x80, 0x80, 0, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			conn, br := r.dialTCP(t, wire.DaemonPath)
			conn.Write(b)
			conn.Write(make([]byte, 100)) // what is unread must not take the close frame back
			op, _ := readFrame(t, br)     // challenge
			for op != opClose {
				var payload []byte
				op, payload = readFrame(t, br)
				if op == opClose && binary.BigEndian.Uint16(payload) != 4400 {
					t.Fatal(payload)
				}
			}
		})
	}
}
