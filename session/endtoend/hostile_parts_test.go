package endtoend

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pushrelay/wire"
)

// part is a binary message; total is written when first is among the flags.
func part(stream uint32, flags byte, total uint32, data []byte) []byte {
	b := append(binary.BigEndian.AppendUint32(nil, stream), flags)
	if flags&wire.PartFirst != 0 {
		b = binary.BigEndian.AppendUint32(b, total)
	}
	return append(b, data...)
}

func (r *raw) parts(messages ...[]byte) {
	r.t.Helper()
	for _, m := range messages {
		if r.send(websocket.MessageBinary, m) != nil {
			return // it ended meanwhile, which the test looks at
		}
	}
}

// TestBadParts breaks the rules of streams, each in its own way.
func TestBadParts(t *testing.T) {
	t.Parallel()
	s := besiege(t)
	full := make([]byte, wire.MaxPartBytes)
	var nine [][]byte
	for id := range uint32(9) {
		nine = append(nine, part(id+1, wire.PartFirst, 1<<20, full))
	}
	for _, x := range []struct {
		name  string
		parts [][]byte
		code  websocket.StatusCode
	}{
		{"empty", [][]byte{{}}, 4400},
		{"half a header", [][]byte{{0, 0, 0}}, 4400},
		{"no stream", [][]byte{part(1, 0, 0, full)}, 4400},
		{"first without length", [][]byte{{0, 0, 0, 1, wire.PartFirst}}, 4400},
		{"no bytes at all", [][]byte{part(1, wire.PartFirst|wire.PartLast, 0, nil)}, 4400},
		{"opened twice", [][]byte{part(1, wire.PartFirst, 1<<20, full), part(1, wire.PartFirst, 1<<20, full)}, 4400},
		{"ninth stream", nine, 4400},
		{"part too long", [][]byte{part(1, wire.PartFirst, 1<<20, make([]byte, wire.MaxPartBytes+1))}, 1009},
		{"frame too long", [][]byte{part(1, wire.PartFirst, wire.MaxFrameBytes+1, full)}, 1009},
		{"longest length", [][]byte{part(1, wire.PartFirst, 1<<32-1, full)}, 1009},
		{"last too early", [][]byte{part(1, wire.PartFirst|wire.PartLast, 1<<20, full)}, 4400},
		{"more than its length", [][]byte{part(1, wire.PartFirst, 10, full)}, 4400},
		{"a frame that isn't one", [][]byte{part(1, wire.PartFirst|wire.PartLast, wire.MaxPartBytes, full)}, 4400},
		{"a head without end", [][]byte{part(1, wire.PartFirst|wire.PartLast, wire.MaxPartBytes, []byte(strings.Repeat("[", wire.MaxPartBytes)))}, 4400},
	} {
		r := s.raw(wire.RoleDaemon, "d3", nil)
		r.parts(x.parts...)
		e := r.end()
		assert.Equal(t, x.code, e.Code, "%s: %s", x.name, e.Reason)
	}
	s.stands()
}

// TestMoreThanCredit sends on although there was no credit: the session ends, having cost no more than the protocol allows.
func TestMoreThanCredit(t *testing.T) {
	t.Parallel()
	s := besiege(t)
	var held [][]byte // eight streams of the greatest length, of which two can have their memory
	for id := range uint32(wire.MaxStreams) {
		held = append(held, part(id+1, wire.PartFirst, wire.MaxFrameBytes, make([]byte, wire.MaxPartBytes)))
		held = append(held, part(id+1, 0, 0, make([]byte, wire.MaxPartBytes)))
	}
	r := s.raw(wire.RoleSite, "blog", nil)
	r.parts(held...)
	r.until("credit", func(x said, _ []byte) bool { return x.Type == wire.TypeCredit })
	assert.LessOrEqual(t, s.budget.Peak(), int64(16<<20+wire.MaxStreams*wire.InitialCredit))
	more := make([]byte, wire.MaxPartBytes)
	for range 64 { // the last stream has none
		r.parts(part(wire.MaxStreams, 0, 0, more))
	}
	e := r.end()
	assert.EqualValues(t, 4400, e.Code, e.Reason)
	s.stands()
}

// TestTinyParts sends a request byte by byte, and opens and aborts streams without end: dear for who does it, and no more.
func TestTinyParts(t *testing.T) {
	t.Parallel()
	s := besiege(t)
	r := s.bare(wire.RoleSite, "blog")
	frame := `{"type":"cancel","id":"tiny","jobIds":["` + strings.Repeat("j", 200) + `"],"more":"` + strings.Repeat("x", 40<<10) + `"}`
	var all [][]byte
	for i := range len(frame) {
		flags := byte(0)
		switch i {
		case 0:
			flags = wire.PartFirst
		case len(frame) - 1:
			flags = wire.PartLast
		}
		all = append(all, clientFrame(0x80|opBinary, part(1, flags, uint32(len(frame)), []byte{frame[i]})))
	}
	r.bytes(all...)
	answer := r.until("the answer", func(x said, _ []byte) bool { return x.Re == "tiny" })
	assert.Contains(t, string(answer), `"cancelled":[false]`)
	for id := range uint32(2000) {
		for _, m := range [][]byte{part(id+2, wire.PartFirst, wire.MaxFrameBytes, []byte("{")), part(id+2, wire.PartAbort, 0, nil), part(id+2, wire.PartAbort, 0, nil)} {
			r.bytes(clientFrame(0x80|opBinary, m))
		}
	}
	require.Contains(t, string(r.ask(wire.TypeCancel, `"jobIds":["none"]`)), `"cancelled":[false]`)
	r.hangUp()
	s.stands()
}

// TestStalledParts stops in the middle of streams. They are refused by name after a while; the session goes on, and what
// it held is free.
func TestStalledParts(t *testing.T) {
	t.Parallel()
	s := besiege(t)
	r := s.raw(wire.RoleDaemon, "d3", nil)
	r.parts(part(7, wire.PartFirst, wire.MaxFrameBytes, make([]byte, wire.MaxPartBytes)))
	began := time.Now()
	refused := r.until("the refusal", func(x said, _ []byte) bool { return x.Type == wire.TypeError })
	assert.Contains(t, string(refused), `"stream":7`)
	assert.Less(t, time.Since(began), 15*time.Second)
	s.log.until(t, "its memory is free", func() bool { return s.budget.Used() == 0 })
	r.parts(part(7, 0, 0, make([]byte, wire.MaxPartBytes)), part(7, wire.PartAbort, 0, nil)) // what was under way
	hb := r.ask(wire.TypeHeartbeat, `"activeLeases":[]`)
	assert.Empty(t, code(hb))
	r.hangUp()
	s.stands()
}
