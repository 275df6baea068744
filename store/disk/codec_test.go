package disk

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/google/uuid"

	"pushrelay/store"
	"pushrelay/store/memory"
	"pushrelay/wire"
)

// someRecord makes a record that a machine could have made.
func someRecord(r *rand.Rand) memory.Record {
	text := func(most int) string {
		return strings.Repeat(string(rune('a'+r.IntN(26))), r.IntN(most+1))
	}
	at := func() int64 { return []int64{0, 1, r.Int64(), 1_900_000_000_000_000_000 + r.Int64N(1e15)}[r.IntN(4)] }
	rec := memory.Record{
		Key: store.Key{Site: "site" + text(20), Job: "job" + text(300)}, Seq: r.Uint64(), State: store.State(1 + r.IntN(5)),
		Cancelled: r.IntN(2) == 0, EnqueuedAt: 1_900_000_000_000_000_000 + r.Int64N(1e15), Since: at(), Deadline: at(), KeepUntil: at(),
		Waits: r.IntN(3), Lapses: r.IntN(5), Served: r.Uint64(),
		Stub: memory.Stub{
			Form: &memory.Form{
				Kind: text(9), Owner: "owner" + text(9), Site: text(40), Audience: text(9), Purpose: text(9), SizeClass: text(9),
				Dialect: wire.Dialect(text(2)),
			},
			Streaming: r.IntN(2) == 0, DeadlineAt: at(),
		},
	}
	if r.IntN(4) > 0 {
		rec.Stub.Raw = []byte(`{"id":"` + rec.Key.Job + `","kind":"` + rec.Stub.Kind + `","owner":"` + rec.Stub.Owner + `"}`)
	}
	if r.IntN(3) == 0 {
		rec.Shun = map[string]int64{"r1": r.Int64(), "r2" + text(5): -r.Int64()}
	}
	sealed := func() *memory.Sealed {
		return &memory.Sealed{
			Seq: rec.Seq, Bytes: r.Int64N(6 << 20), Sum: r.Uint32(), Envelope: wire.Envelope{
				RecipientKeyID: []string{rec.Device, rec.Stub.Site, text(40)}[r.IntN(3)],
				SenderKeyID:    []string{rec.Device, rec.Stub.Site, text(40)}[r.IntN(3)],
				Direction:      wire.Direction(text(9)), DeadlineAt: r.Int64() - r.Int64(),
			},
		}
	}
	if rec.State == store.Done && r.IntN(3) == 0 {
		rec.Dropped, rec.Lease, rec.Collected = store.WhyDeadline, uuid.NewString(), r.IntN(2) == 0
		return rec
	}
	if rec.State == store.Queued {
		return rec
	}
	rec.Grant = memory.Grant{
		Lease: []string{uuid.NewString(), "lease" + text(90), strings.ToUpper(uuid.NewString())}[r.IntN(3)], Runner: "runner" + text(20),
		Owner: text(20), Device: text(40), Number: r.Uint64(), Offered: r.IntN(2) == 0, Sealed: r.IntN(2) == 0, Widened: r.IntN(2) == 0,
		Takes: r.IntN(9), LeaseFor: r.Int64(), Lapse: at(), Window: at(),
	}
	switch r.IntN(3) {
	case 0:
		rec.Identity = &wire.PublicIdentity{Identity: text(50), Encryption: text(50), EncryptionSig: text(99)}
	case 1:
		rec.Identity = &wire.PublicIdentity{
			Identity: strings.Repeat("A", 43), Encryption: strings.Repeat("Q", 42) + "E", EncryptionSig: strings.Repeat("_", 85) + "w",
		}
	}
	if rec.State == store.Ready || rec.State == store.Running {
		rec.Payload = sealed()
	}
	if rec.State == store.Done {
		rec.Disposition = wire.DispositionOK
		if rec.Collected = r.IntN(2) == 0; !rec.Collected {
			rec.Result = sealed()
		}
	}
	return rec
}

func TestRecordsComeBackAsTheyWere(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	known := newSharer()
	for range 20_000 {
		want := someRecord(r)
		b := appendRecord(nil, &want, 77)
		got, err := decodeRecord(want.Seq, b, known, 77)
		if err != nil || !reflect.DeepEqual(want, got) {
			t.Fatalf("%v\nwant %+v\ngot  %+v", err, want, got)
		}
	}
}

// What was granted before the store was closed has as much time left after it; what is done or only offered doesn't.
func TestTheTimeThatTheStoreWasClosed(t *testing.T) {
	for _, c := range []struct {
		state         store.State
		offered       bool
		lapse, window int64
	}{
		{store.AwaitingPayload, false, 1500, 2500},
		{store.AwaitingPayload, true, 1500, 2000},
		{store.Running, false, 1500, 2500},
		{store.Done, false, 1000, 2000},
	} {
		rec := memory.Record{
			Key: store.Key{Site: "s", Job: "j"}, State: c.state, Stub: memory.Stub{Form: &memory.Form{Owner: "o"}},
			Grant: memory.Grant{Lease: "l", Runner: "r", Offered: c.offered, Lapse: 1000, Window: 2000},
		}
		got, err := decodeRecord(0, appendRecord(nil, &rec, 100), newSharer(), 600)
		if err != nil || got.Lapse != c.lapse || got.Window != c.window {
			t.Fatalf("%+v: %d, %d, %v", c, got.Lapse, got.Window, err)
		}
	}
}

// Small records keep commits small: what a job that runs takes beside its stub.
func TestRecordsAreSmall(t *testing.T) {
	raw := []byte(`{"id":"0f8ff8c0-1abe-43ea-9799-640d85751230","kind":"llm.chat","owner":"owner-1","site":"BYOLLM-AAAA-BBBB-CCCC-DDDD-EEEE-FFFF",` +
		`"audience":"public","sizeClass":"small","streaming":false,"deadlineAt":1900000000000}`)
	now := int64(1_900_000_000_000_000_000)
	rec := memory.Record{
		Key: store.Key{Site: "shop", Job: "0f8ff8c0-1abe-43ea-9799-640d85751230"}, State: store.Running, EnqueuedAt: now, Since: now + 5e8,
		Deadline: now + 6e10,
		Stub: memory.Stub{DeadlineAt: now / 1e6, Raw: raw, Form: &memory.Form{
			Kind: "llm.chat", Owner: "owner-1", Site: "BYOLLM-AAAA-BBBB-CCCC-DDDD-EEEE-FFFF", Audience: "public", SizeClass: "small", Dialect: "0",
		}},
		Grant: memory.Grant{
			Lease: uuid.NewString(), Runner: "runner-1", Owner: "owner-1", Device: "BYOLLM-1111-2222-3333-4444-5555-6666", LeaseFor: 6e10,
			Lapse: now + 6e10, Takes: 1,
			Payload: &memory.Sealed{Bytes: 700, Envelope: wire.Envelope{
				RecipientKeyID: "BYOLLM-1111-2222-3333-4444-5555-6666", SenderKeyID: "BYOLLM-AAAA-BBBB-CCCC-DDDD-EEEE-FFFF",
				Direction: wire.DirectionPayload, DeadlineAt: now / 1e6,
			}},
			Identity: &wire.PublicIdentity{
				Identity: strings.Repeat("A", 43), Encryption: strings.Repeat("A", 43), EncryptionSig: strings.Repeat("A", 86),
			},
		},
	}
	if n := len(appendRecord(nil, &rec, 0)) - len(raw); n > 350 {
		t.Fatalf("%d bytes beside the stub", n)
	} else {
		t.Logf("%d bytes beside a stub of %d", n, len(raw))
	}
}

func TestStreaksComeBackAsTheyWere(t *testing.T) {
	want := memory.Streak{
		Runner: "runner", Row: 3, Waits: 9, Until: 1 << 60, Touched: -5, Stamp: 1 << 63,
		Queue: store.Queue{Route: store.Route{Site: "s", Owner: ""}, Kind: "k", Private: true, Dialect: "2"},
	}
	k := appendStreakKey(nil, want.Runner, want.Queue)
	got, err := decodeStreak(k, appendStreak(nil, k, &want))
	if err != nil || got != want {
		t.Fatal(got, err)
	}
	for n := range k {
		if _, err := decodeStreak(k[:n], appendStreak(nil, k, &want)); err == nil {
			t.Fatal("a key that was cut", n)
		}
	}
}

// Whatever the bytes are, decoding ends, takes no more than they have, and what it answers is written as it was read.
func FuzzDecodeRecord(f *testing.F) {
	r := rand.New(rand.NewPCG(6, 6))
	for range 60 {
		rec := someRecord(r)
		b := appendRecord(nil, &rec, 0)
		f.Add(b[:len(b)-4]) // the sum is made anew, or nothing but the sum would be tried
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		b = appendSum(b[:len(b):len(b)], 0, seqKey(9))
		rec, err := decodeRecord(9, b, newSharer(), 0)
		if err != nil {
			return
		}
		again, err := decodeRecord(9, appendRecord(nil, &rec, 0), newSharer(), 0)
		if err != nil || !reflect.DeepEqual(rec, again) {
			t.Fatalf("%v\nread  %+v\nagain %+v", err, rec, again)
		}
	})
}
