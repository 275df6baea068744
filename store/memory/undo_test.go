package memory

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pushrelay/store"
	"pushrelay/wire"
)

// dump tells the whole state of a machine as text: all that can make a difference to any later operation or read.
func (m *Machine) dump() string {
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for k, j := range m.jobs {
		r := j.Record
		r.Payload, r.Result = nil, nil
		form := *r.Stub.Form
		r.Stub.Form = nil
		offer := "none"
		if o := &j.offer; o.kind != 0 {
			was := o.was()
			was.at *= int64(min(1, o.due.pos)) // means something while the entry is on offer
			offer = fmt.Sprintf("%d %+v", o.kind, was)
		}
		add("job %v: %+v %+v payload %s result %s, due %d, offer %s", k, r, form, j.Payload.tell(), j.Result.tell(), j.due.at, offer)
	}
	for id, j := range m.leases {
		add("lease %s of %v", id, j.Key)
	}
	for h, n := range m.holders {
		add("holder %v %d", h, n)
	}
	for id, s := range m.sites {
		add("site %s: %d records %d jobs %v %d notices %d bytes, served %d, all %s awaiting %s finished %s", id, s.records, s.jobs,
			s.byState, s.notices, s.bytes, s.served, s.all.tell(), s.awaiting.tell(), s.finished.tell())
		for k := range s.shelves {
			add("shelf %s %d: free %s, %d open", id, k, s.shelves[k].free.tell(), len(s.shelves[k].open))
		}
		for a, sess := range s.sessions {
			for k, c := range sess.open {
				add("audience %s %s %d: %d counted %d bytes %d", id, a, k, c.jobs.n, c.n, c.bytes)
			}
		}
		for o, r := range s.routes {
			add("route %s %s: %d records %d waiting %d unsealed served %d", id, o, r.records, r.waiting, r.unsealed, r.served)
			for l, q := range r.queues {
				_, waits := s.waiting[q]
				add("queue %s %s %v: %d records %t %s", id, o, l, q.records, waits, q.jobs.tell())
			}
		}
	}
	for id, r := range m.runners {
		held := []string{}
		for j := r.held.head; j != nil; j = j.links[heldChain].next {
			held = append(held, j.Key.Site+"/"+j.Key.Job)
		}
		add("runner %s: %d held %v, %d streaks", id, r.held.n, held, len(r.streaks))
	}
	for p, party := range m.parties {
		add("party %v newest %d", p, party.newest)
		for id, s := range party.sessions {
			add("session %v %s %d until %d in heap %t", p, id, s.number, s.due.at, s.due.pos > 0)
		}
	}
	slices.Sort(lines)
	for at := m.streaks.Front(); at != nil; at = at.Next() {
		add("streak %+v", *streakAt(at))
	}
	add("counters %d %d %d swept %d, states %v, %d bytes %d notices %d online %d dues", m.seq, m.stamp, m.number, m.swept, m.byState,
		m.bytes, m.notices, m.online, len(m.dues))
	return strings.Join(lines, "\n")
}

func (e *Sealed) tell() string {
	if e == nil {
		return "none"
	}
	return fmt.Sprintf("%p %d %q", e, e.Bytes, e.Raw)
}

func (o *ordered) tell() string {
	out := []string{}
	for j, k := o.after(0); j != nil; j, k = o.after(k) {
		out = append(out, fmt.Sprintf("%d:%s", k, j.Key.Job))
	}
	return fmt.Sprint(o.n, out)
}

// differ answers the lines that only one of two dumps has.
func differ(a, b string) string {
	as, bs := strings.Split(a, "\n"), strings.Split(b, "\n")
	var out []string
	for _, l := range as {
		if !slices.Contains(bs, l) {
			out = append(out, "- "+l)
		}
	}
	for _, l := range bs {
		if !slices.Contains(as, l) {
			out = append(out, "+ "+l)
		}
	}
	return strings.Join(out, "\n")
}

// kept reports whether the operation of a step may stand in a group: see journal.
func kept(op int) bool { return op < 84 || op >= 94 }

// A group that is undone leaves no trace, whatever was in it: the whole state is what it was before.
func TestUndoneGroupsLeaveNoTrace(t *testing.T) {
	undone, changed := 0, 0
	for seed := range uint64(undoSeeds) {
		start := time.Unix(1_900_000_000, 0)
		set := store.Settings{JobsPerSite: 60, BytesPerSite: 400, UnsealedPerRoute: 3}
		w := &world{Rand: rand.New(rand.NewPCG(seed, 3)), m: NewMachine(set, start), now: start}
		for i := range 700 {
			if w.IntN(3) == 0 {
				w.step()
				continue
			}
			before, now, grants := w.m.dump(), w.now, len(w.grants)
			w.m.BeginGroup()
			for range 1 + w.IntN(8) {
				w.keep()
			}
			if w.m.Changed() {
				changed++
			}
			if w.IntN(2) == 0 {
				w.changes(t)
				w.m.EndGroup()
			} else {
				undone++
				w.m.UndoGroup()
				if after := w.m.dump(); after != before {
					t.Fatalf("seed %d, step %d: an undone group left a trace:\n%s", seed, i, differ(before, after))
				}
				w.now, w.grants = now, w.grants[:grants]
			}
			if err := w.m.check(); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, i, err)
			}
		}
		w.drain(t)
	}
	if undone < 150*undoSeeds || changed < 150*undoSeeds {
		t.Fatalf("%d groups undone, %d changed anything", undone, changed)
	}
}

// keep does one step that may stand in a group.
func (w *world) keep() {
	for {
		op := w.IntN(100)
		if !kept(op) {
			continue
		}
		if w.IntN(12) == 0 {
			w.m.Begin(w.now)
			w.refuseMany()
			return
		}
		w.do(op)
		return
	}
}

// refuseMany refuses what a runner holds, so that streaks come about.
func (w *world) refuseMany() {
	who := w.runner()
	var gs []wire.Grant
	w.m.eachHeld(who, func(j *job) { gs = append(gs, j.grant()) })
	w.m.Release(who, gs, wire.ReleaseRefused, 0)
}

// changes verifies that what a group tells its medium makes the same records as the machine has.
func (w *world) changes(t *testing.T) {
	t.Helper()
	seen := map[uint64]bool{}
	err := w.m.EachChange(func(c Change) error {
		if seen[c.Seq] {
			return fmt.Errorf("record %d is told twice", c.Seq)
		}
		seen[c.Seq] = true
		if c.Is != nil && w.m.jobs[c.Is.Key].Seq != c.Seq {
			return fmt.Errorf("record %d is another's", c.Seq)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// What random groups rarely do.
func TestUndoneRareThings(t *testing.T) {
	start := time.Unix(1_900_000_000, 0)
	begun := func(jobs int) (*Machine, []store.Claimed) {
		m := NewMachine(store.Settings{UnsealedPerRoute: 1 << 20}, start)
		for i := range jobs {
			m.Enqueue("busy", wire.Dialect0, []wire.Stub{{
				ID: fmt.Sprint(i), Kind: "k", Owner: "o", DeadlineAt: start.Add(100 * time.Hour).UnixMilli(),
			}})
		}
		c := ask(jobs)
		got, err := m.Claim(&c)
		if err != nil || len(got) != jobs {
			t.Fatal(len(got), err)
		}
		return m, got
	}
	named := func(got []store.Claimed) (gs []wire.Grant) {
		for _, c := range got {
			gs = append(gs, wire.Grant{JobID: c.Stub.ID, LeaseID: c.Lease})
		}
		return gs
	}
	for name, make := range map[string]func() (*Machine, func()){
		"the lapse of a running job": func() (*Machine, func()) {
			m, got := begun(1)
			g := named(got)[0]
			m.Accept("r", []wire.Grant{g})
			_, _ = m.Seal("busy", g, &wire.Envelope{RecipientKeyID: "d", Raw: []byte("x")})
			_, _ = m.TakePayload("r", g)
			m.Begin(start.Add(time.Minute))
			m.swept = m.now // or the lease would get a grace
			return m, func() { m.fire(9) }
		},
		"a claim that skips too much": func() (*Machine, func()) {
			m, got := begun(store.MaxSkipped + 5)
			m.Release("r", named(got), wire.ReleasePause, time.Hour)
			return m, func() {
				c := ask(1)
				if again, err := m.Claim(&c); err != nil || len(again) != 0 {
					t.Fatal(again, err)
				}
			}
		},
		"a streak that is forgotten": func() (*Machine, func()) {
			m, got := begun(2)
			m.Release("r", named(got)[:1], wire.ReleaseRefused, 0)
			m.Begin(start.Add(streakIdle))
			return m, func() { m.refuse("other", store.Queue{Kind: "another"}) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			m, rare := make()
			before := m.dump()
			m.BeginGroup()
			rare()
			if m.dump() == before {
				t.Fatal("nothing happened")
			}
			m.UndoGroup()
			if after := m.dump(); after != before {
				t.Fatal(differ(before, after))
			}
			if err := m.check(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
