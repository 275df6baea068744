package session

import (
	"bytes"
	"encoding/binary"
	"testing"

	"pushrelay/wire"
)

// FuzzInflow feeds messages, each behind its length, to an assembler beside a model of what it may hold.
func FuzzInflow(f *testing.F) {
	seq := func(parts ...[]byte) (all []byte) {
		for _, p := range parts {
			all = append(binary.BigEndian.AppendUint16(all, uint16(len(p))), p...)
		}
		return all
	}
	f.Add(seq(part(1, wire.PartFirst, 4, "ab"), part(2, wire.PartFirst|wire.PartLast, 2, "{}"), part(1, wire.PartLast, 0, "cd")))
	f.Add(seq(part(1, wire.PartFirst, 1<<20, "ab"), part(1, wire.PartAbort, 0, "")))
	f.Add(seq(part(1, wire.PartFirst, wire.MaxFrameBytes, "x"), part(2, wire.PartFirst, wire.MaxFrameBytes, "x"), part(3, wire.PartFirst, wire.MaxFrameBytes, "x")))
	f.Fuzz(func(t *testing.T, data []byte) {
		b := NewBudget(wire.MaxFrameBytes + 1<<20)
		in := &inflow{}
		model := map[uint32][]byte{}
		now := int64(0)
		for len(data) >= 2 {
			n := min(int(binary.BigEndian.Uint16(data)), len(data)-2)
			msg := data[2 : 2+n]
			data = data[2+n:]
			now += 1e6
			ev, err := in.part(b, now, msg)
			if err != nil {
				break
			}
			h, _, payload, _ := wire.ParsePart(msg)
			if h.First() {
				model[h.Stream] = nil
			}
			model[h.Stream] = append(model[h.Stream], payload...)
			if ev.frame != nil && !bytes.Equal(ev.frame, model[h.Stream]) {
				t.Fatal("a frame differs from its parts")
			}
			if ev.frame != nil && ev.held != int64(len(ev.frame)) {
				t.Fatalf("%d bytes held for %d", ev.held, len(ev.frame))
			}
			b.Release(ev.freed)
			b.Release(ev.held)
			for s := in.wanting(now); s != nil; s = in.wanting(now) {
				s.cancel = b.Reserve(s.rest(), func() {
					if !in.reservedNow(s, now) {
						b.Release(s.rest())
					}
				})
			}
			if given := in.grants(now); given != in.credits() {
				t.Fatal("a grant of nothing, or to nobody")
			} else if n := outstanding(in); given && n > wire.MaxCredit { // what a new stream brings along may stand over it
				t.Fatalf("%d bytes of credit are under way", n)
			}
			for _, s := range in.streams {
				s.due = 0 // told
			}
			checkInflow(t, in)
		}
		for _, s := range append([]*inStream(nil), in.streams...) {
			ev := in.remove(s)
			if ev.cancel != nil {
				ev.cancel()
			}
			b.Release(ev.freed)
		}
		if b.Used() != 0 || in.reserved != 0 {
			t.Fatalf("%d bytes are lost, %d reserved", b.Used(), in.reserved)
		}
	})
}

func checkInflow(t *testing.T, in *inflow) {
	if len(in.streams) > wire.MaxStreams || len(in.refused) > maxRefused {
		t.Fatal("too many streams")
	}
	for _, s := range in.streams {
		if len(s.buf) > s.granted || s.granted > s.total || s.state != reserved && s.granted > wire.InitialCredit {
			t.Fatalf("%+v", s)
		}
	}
}

func outstanding(in *inflow) (n int) {
	for _, s := range in.streams {
		n += s.granted - len(s.buf)
	}
	return n
}

// FuzzScan compares the scanner with a full decode: what it says of a frame that is valid must be true.
func FuzzScan(f *testing.F) {
	for _, s := range []string{
		`{"type":"result","id":"1","grant":{"jobId":"j","leaseId":"l"},"envelope":{}}`,
		`{"type":"accept","id":"1","grants":[{"jobId":"j"},{"jobId":"k"}]}`,
		`{"type":"cancel","id":"1","jobIds":["a"]}`, `{"type":"error","stream":3,"re":"x"}`, `{"type":"reply","re":"1"}`,
		`{"grants":[[1]],"type":"sealing"}`, `{"type":"seal","jobId":"\u0041","id":"2"}`, `[`, `{"type":1}`, `{"type":"credit","stream":1e9,"bytes":1}`,
	} {
		f.Add([]byte(s))
	}
	e := newEngine(NewBudget(0), nil)
	f.Fuzz(func(t *testing.T, frame []byte) {
		h, err := e.scan(frame)
		full, fullErr := wire.DecodeHead(frame)
		if err != nil {
			if fullErr == nil {
				t.Fatalf("refused %q, which is a frame", frame)
			}
			return
		}
		if fullErr == nil && h.Type != full.Type {
			t.Fatalf("%q has type %q, not %q", frame, full.Type, h.Type)
		}
		if fullErr == nil && full.ID != "" && h.ID != full.ID && h.Type != "" && known(h.Type) {
			t.Fatalf("%q has id %q, not %q", frame, full.ID, h.ID)
		}
	})
}

func known(t wire.FrameType) bool {
	_, daemon := orderOf(wire.RoleDaemon, head{Type: t})
	_, site := orderOf(wire.RoleSite, head{Type: t})
	return daemon || site
}

func FuzzCutText(f *testing.F) {
	f.Add("too long " + string(bytes.Repeat([]byte("ä"), 100)))
	f.Add("\xff\xfe")
	f.Fuzz(func(t *testing.T, s string) {
		got := cutText(s)
		if len(got) > 123 || got != string([]rune(got)) {
			t.Fatalf("%q", got)
		}
	})
}

func FuzzMask(f *testing.F) {
	f.Add([]byte("some bytes, more than eight"), uint32(0x01020304))
	f.Fuzz(func(t *testing.T, b []byte, key uint32) {
		got := bytes.Clone(b)
		maskBytes(got, key)
		var k [4]byte
		binary.LittleEndian.PutUint32(k[:], key)
		for i := range b {
			if got[i] != b[i]^k[i%4] {
				t.Fatal(i)
			}
		}
	})
}
