package memory

import (
	"fmt"
	"testing"
	"time"

	"pushrelay/store"
	"pushrelay/wire"
)

// What is due is fired in parts that don't free too much at once, and all of it in the end.
func TestFreedInParts(t *testing.T) {
	start := time.Unix(1_900_000_000, 0)
	m := NewMachine(store.Settings{UnsealedPerRoute: 100, BytesPerSite: 1 << 40}, start)
	const jobs, size = 20, 16 << 20
	text := make([]byte, size)
	for i := range jobs {
		m.Enqueue("busy", wire.Dialect0, []wire.Stub{{ID: fmt.Sprint(i), Kind: "k", Owner: "o", DeadlineAt: start.Add(time.Hour).UnixMilli()}})
	}
	c := ask(jobs)
	got, err := m.Claim(&c)
	if err != nil || len(got) != jobs {
		t.Fatal(len(got), err)
	}
	for _, g := range got {
		grant := wire.Grant{JobID: g.Stub.ID, LeaseID: g.Lease}
		m.Accept("r", []wire.Grant{grant})
		if _, err := m.Seal("busy", grant, &wire.Envelope{RecipientKeyID: "d", Raw: text}); err != nil {
			t.Fatal(err)
		}
	}
	m.Begin(start.Add(2 * time.Hour))
	for round := 0; m.bytes > 0; round++ {
		before := m.bytes
		if s := m.Sweep(); before-m.bytes > maxFreed+size || s.Fired == 0 || m.bytes > 0 && s.Next != 0 {
			t.Fatalf("round %d freed %d bytes: %+v", round, before-m.bytes, s)
		}
	}
	if m.notices != jobs {
		t.Fatal(m.notices)
	}
}
