package session

import (
	"bytes"
	"testing"

	"pushrelay/wire"
)

// TestStreamsCostWhatArrives: a stream that promises 8 MiB and brings a byte must not have 8 MiB cleared for it, also when
// they are reserved; one that brings them all is whole.
func TestStreamsCostWhatArrives(t *testing.T) {
	const total = wire.MaxFrameBytes
	var f inflow
	b := NewBudget(DefaultBudget)
	frame := bytes.Repeat([]byte("0123456789abcdef"), total/16)
	message := func(flags byte, at, n int) []byte {
		h := wire.AppendPartHeader(nil, wire.PartHeader{Stream: 1, Flags: flags}, total)
		return append(h, frame[at:at+n]...)
	}
	if _, err := f.part(b, 0, message(wire.PartFirst, 0, 1)); err != nil {
		t.Fatal(err)
	}
	s := f.wanting(0)
	if s == nil || !b.TryReserve(s.rest()) || !f.reservedNow(s, 0) {
		t.Fatal("not reserved")
	}
	if cap(s.buf) > wire.InitialCredit {
		t.Fatalf("a byte costs %d", cap(s.buf))
	}
	for at := 1; at < total; {
		f.grants(0)
		n := min(wire.MaxPartBytes, total-at)
		flags := byte(0)
		if at+n == total {
			flags = wire.PartLast
		}
		if c := cap(s.buf); c > wire.InitialCredit && c > growth*(at+wire.MaxPartBytes) {
			t.Fatalf("%d bytes cost %d", at, c)
		}
		ev, err := f.part(b, 0, message(flags, at, n))
		if err != nil {
			t.Fatal(err)
		}
		if at += n; at == total && !bytes.Equal(ev.frame, frame) {
			t.Fatal("another frame came out")
		}
	}
}
