package memory

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"pushrelay/store"
)

// copyOf answers a machine that was loaded with another's records.
func copyOf(t *testing.T, m *Machine, set store.Settings) *Machine {
	t.Helper()
	c := NewMachine(set, time.Unix(0, m.now))
	for _, j := range m.jobs {
		if c.Load(j.Record) == nil {
			t.Fatalf("%v isn't taken", j.Key)
		}
	}
	c.Loaded(m.seq, m.number)
	return c
}

// A machine that takes over who is there leaves the other one whole: it may have to go on.
func TestAdoptedFromGoesOn(t *testing.T) {
	for seed := range uint64(20) {
		start := time.Unix(1_900_000_000, 0)
		set := store.Settings{JobsPerSite: 60}
		w := &world{Rand: rand.New(rand.NewPCG(seed, 7)), m: NewMachine(set, start), now: start}
		for i := range 600 {
			w.step()
			w.m.Seen(store.Sighting{Runner: fmt.Sprint("runner ", i%7)})
			if i%50 != 49 {
				continue
			}
			old, before := w.m, w.m.dump()
			next := copyOf(t, old, set)
			next.Adopt(old)
			for _, m := range []*Machine{next, old} {
				if err := m.check(); err != nil {
					t.Fatalf("seed %d, step %d: %v", seed, i, err)
				}
			}
			if after := old.dump(); after != before {
				t.Fatalf("seed %d, step %d: adopting changed the other machine:\n%s", seed, i, differ(before, after))
			}
			if got, want := next.online, old.online; got != want {
				t.Fatalf("seed %d, step %d: %d sessions of %d", seed, i, got, want)
			}
			if w.IntN(2) == 0 {
				w.m = next
			}
		}
		w.drain(t)
	}
}

// Sightings go on after they were taken over, old ones and new ones.
func TestAdoptedSightings(t *testing.T) {
	start := time.Unix(1_900_000_000, 0)
	old := NewMachine(store.Settings{}, start)
	old.Seen(store.Sighting{Runner: "a"})
	old.Seen(store.Sighting{Runner: "b"})
	m := NewMachine(store.Settings{}, start)
	m.Adopt(old)
	for _, id := range []string{"c", "a", "d", "b"} {
		m.Seen(store.Sighting{Runner: id, Slots: 7})
	}
	var got []string
	for _, s := range m.Everyone() {
		got = append(got, fmt.Sprint(s.Runner, s.Slots))
	}
	if want := "[a7 b7 c7 d7]"; fmt.Sprint(got) != want {
		t.Fatalf("%v, not %s", got, want)
	}
	if n := len(old.Everyone()); n != 2 {
		t.Fatalf("the other machine has %d", n)
	}
}
