package memory

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"pushrelay/store"
	"pushrelay/wire"
)

// expected is what the indexes of one site must hold, counted from the records alone.
type expected struct {
	records, jobs, waiting, awaiting, finished int
	bytes                                      int64
	shelved                                    [3]int
}

// check verifies that every index agrees with the records, both ways.
func (m *Machine) check() error {
	var c checker
	sites := map[string]*expected{}
	var byState [store.Done + 1]int
	held, leases, notices := 0, 0, 0
	holders := map[holding]int{}
	for k, j := range m.jobs {
		e := sites[k.Site]
		if e == nil {
			e = &expected{}
			sites[k.Site] = e
		}
		e.records++
		c.is(j.Key == k && m.sites[k.Site] == j.q.route.site, "key of %v", k)
		c.is(j.due.pos > 0 && m.dues[j.due.pos-1].d == &j.due && j.due.at == j.next(), "due of %v: %v", k, j.Record)
		if j.Lease != "" {
			leases++
			c.is(m.leases[j.Lease] == j, "lease of %v", k)
		}
		if j.Runner != "" {
			holders[holding{j.Runner, k.Job}]++
		}
		c.job(j, e)
		if j.Dropped != "" && !j.Collected {
			notices++
		}
		if j.Dropped == "" && !j.Collected {
			byState[j.State]++
		}
		if j.Runner != "" && j.State != store.Done {
			held++
			c.is(contains(&m.runners[j.Runner].held, j, heldChain), "held of %v", k)
		}
	}
	c.is(byState == m.byState, "states %v, counted %v", m.byState, byState)
	c.is(leases == len(m.leases), "%d leases, counted %d", len(m.leases), leases)
	c.is(fmt.Sprint(holders) == fmt.Sprint(m.holders), "holders %v, counted %v", m.holders, holders)
	c.is(notices == m.notices, "notices %d, counted %d", m.notices, notices)
	c.totals(m, sites, held)
	return c.err
}

type checker struct{ err error }

func (c *checker) is(ok bool, format string, args ...any) {
	if !ok && c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
}

// job verifies the places of one record and counts them.
func (c *checker) job(j *job, e *expected) {
	s := j.q.route.site
	live := j.Dropped == "" && !j.Collected
	in := func(o *ordered, key uint64) bool {
		at, k := o.after(key - 1)
		return at == j && k == key
	}
	c.is(in(&s.all, j.Seq) == live, "site's list of %v", j.Key)
	c.is(in(&j.q.jobs, j.Seq) == (j.State == store.Queued), "queue of %v", j.Key)
	c.is(in(&s.awaiting, j.Seq) == (live && j.sealable()), "awaiting of %v", j.Key)
	c.is(in(&s.finished, j.Seq) == (live && j.State == store.Done), "finished of %v", j.Key)
	var kind store.OfferKind
	switch {
	case j.Collected:
	case j.Dropped != "":
		kind = store.OfferNotices
	case j.State == store.Done:
		kind = store.OfferResults
	case j.sealable():
		kind = store.OfferSeals
	}
	c.is(j.offer.kind == kind, "shelf of %v is %d, not %d", j.Key, j.offer.kind, kind)
	if kind != 0 {
		e.shelved[kind-1]++
		sh := &s.shelves[kind-1]
		if j.offer.onOffer() {
			c.is(sh.open[j.offer.due.pos-1].d == &j.offer.due, "offer of %v", j.Key)
			if a := j.offer.who; a != nil {
				c.is(s.sessions[a.id] == a && contains(&a.open[kind-1].jobs, j, openChain), "audience of %v", j.Key)
			}
		} else {
			c.is(in(&sh.free, j.offer.key) && j.offer.who == nil, "free place of %v", j.Key)
		}
	}
	if live {
		e.jobs++
	}
	if j.State == store.Queued {
		e.waiting++
	}
	if live && j.sealable() {
		e.awaiting++
	}
	if live && j.State == store.Done {
		e.finished++
	}
	c.is(live || j.Payload.size()+j.Result.size() == 0, "bytes of %v", j.Key)
	e.bytes += j.Payload.size() + j.Result.size()
}

// totals verifies that the indexes hold nothing beyond what was counted.
func (c *checker) totals(m *Machine, sites map[string]*expected, held int) {
	var bytes int64
	for id, s := range m.sites {
		e := sites[id]
		if e == nil {
			e = &expected{}
		}
		bytes += s.bytes
		waiting, queued, records := 0, 0, 0
		for _, r := range s.routes {
			waiting += r.waiting
			records += r.records
			unsealed := 0
			for _, q := range r.queues {
				queued += q.jobs.n
				_, listed := s.waiting[q]
				c.is(listed == (q.jobs.n > 0), "backlog of %v", q.Queue)
				c.is(ascending(&q.jobs), "order of %v", q.Queue)
			}
			for _, j := range m.jobs {
				if j.q.route == r && j.State == store.AwaitingPayload && !j.Cancelled {
					unsealed++
				}
			}
			c.is(unsealed == r.unsealed, "unsealed of %v", r.Route)
		}
		got := expected{
			records: s.records, jobs: s.jobs, waiting: waiting, awaiting: s.awaiting.n, finished: s.finished.n, bytes: s.bytes,
		}
		for k := range s.shelves {
			got.shelved[k] = s.shelves[k].free.n + len(s.shelves[k].open)
			c.is(ascending(&s.shelves[k].free), "order of shelf %d of %s", k, id)
		}
		c.is(got == *e, "site %s: %+v, counted %+v", id, got, *e)
		c.is(queued == waiting && records == s.records && s.all.n == s.jobs, "counts of %s", id)
		c.is(ascending(&s.all) && ascending(&s.awaiting) && ascending(&s.finished), "orders of %s", id)
		for _, a := range s.sessions {
			c.audience(a)
		}
	}
	c.is(bytes == m.bytes, "bytes %d, counted %d", m.bytes, bytes)
	online := 0
	for _, p := range m.parties {
		online += len(p.sessions)
	}
	c.is(online == m.online && len(m.dues) == len(m.jobs)+online, "%d sessions, %d dues", m.online, len(m.dues))
	streaks := 0
	for id, r := range m.runners {
		held -= r.held.n
		streaks += len(r.streaks)
		c.is(r.held.n+len(r.streaks) > 0, "runner %s is kept for nothing", id)
	}
	c.is(held == 0 && streaks == m.streaks.Len(), "held by runners: %d too few; %d streaks", held, streaks)
}

func (c *checker) audience(a *audience) {
	all := 0
	for k := range a.open {
		n, bytes := 0, int64(0)
		for j := a.open[k].jobs.head; j != nil; j = j.links[openChain].next {
			all++
			if j.offer.counted {
				n++
				bytes += j.offer.bytes
			}
		}
		c.is(n == a.open[k].n && bytes == a.open[k].bytes, "open offers of %s", a.id)
	}
	c.is(all > 0, "session %s is kept for nothing", a.id)
}

func contains(c *chain, want *job, which int) bool {
	n, found := 0, false
	for j := c.head; j != nil; j = j.links[which].next {
		n++
		found = found || j == want
	}
	return found && n == c.n
}

func ascending(o *ordered) bool {
	n, last := 0, uint64(0)
	for _, c := range o.chunks {
		for _, e := range c {
			if n > 0 && e.key <= last {
				return false
			}
			n, last = n+1, e.key
		}
	}
	return n == o.n
}

// world drives a machine with random calls of all kinds, good and bad ones.
type world struct {
	*rand.Rand
	m      *Machine
	now    time.Time
	next   int
	grants []wire.Grant
}

func (w *world) site() string   { return fmt.Sprint("site", w.IntN(3)) }
func (w *world) owner() string  { return fmt.Sprint("owner", w.IntN(3)) }
func (w *world) runner() string { return fmt.Sprint("runner", w.IntN(4)) }
func (w *world) kind() string   { return fmt.Sprint("kind", w.IntN(2)) }
func (w *world) job() string    { return fmt.Sprint("job", w.IntN(w.next+1)) }

func (w *world) some() []wire.Grant {
	if len(w.grants) == 0 {
		return nil
	}
	out := make([]wire.Grant, 0, 3)
	for range 1 + w.IntN(3) {
		out = append(out, w.grants[max(0, len(w.grants)-1-w.IntN(30))])
	}
	return out
}

func (w *world) step() { w.do(w.IntN(100)) }

// do does one operation: which, is a percentage.
func (w *world) do(op int) {
	w.m.Begin(w.now)
	switch {
	case op < 18:
		w.enqueue()
	case op < 36:
		w.claim()
	case op < 80:
		w.grantOp()
	case op < 84:
		w.m.Cancel(w.site(), []string{w.job()})
	case op < 92: // from here on to 94 what isn't kept
		kind := store.OfferKind(1 + w.IntN(3))
		for _, o := range w.m.Offer(w.site(), w.runner(), kind, w.IntN(6), int64(w.IntN(60)), 2*time.Second) {
			w.grants = append(w.grants, o.Grant)
		}
	case op < 93:
		w.m.Attach(store.Party{Role: store.Role(1 + w.IntN(2)), ID: w.site()}, w.runner(), 10*time.Second)
		w.m.Attach(store.Party{Role: store.RunnerRole, ID: w.runner()}, w.job(), 10*time.Second)
	case op < 94:
		w.m.Detach(store.Party{Role: store.SiteRole, ID: w.site()}, w.runner())
	case op < 96:
		who := w.runner()
		if p := w.m.parties[store.Party{Role: store.RunnerRole, ID: who}]; p != nil {
			_, _ = w.m.Resume(who, p.newest, w.some(), time.Minute)
		}
	default:
		w.now = w.now.Add(time.Duration(w.Int64N(int64([]time.Duration{time.Second, 4 * time.Second, time.Hour}[w.IntN(20)/9]))))
		w.m.Begin(w.now)
		w.m.Sweep()
	}
}

func (w *world) enqueue() {
	stubs := make([]wire.Stub, 1+w.IntN(4))
	for i := range stubs {
		w.next++
		stubs[i] = wire.Stub{
			ID: w.job(), Owner: w.owner(), Kind: w.kind(), Audience: []string{"self", "public"}[w.IntN(2)],
			DeadlineAt: w.now.Add(time.Duration(w.IntN(600)) * time.Second).UnixMilli(), Raw: []byte("{}"),
		}
	}
	w.m.Enqueue(w.site(), wire.Dialect0, stubs)
}

func (w *world) claim() {
	c := store.Claim{
		Runner: w.runner(), Owner: w.owner(), Device: "device", Dialect: wire.Dialect0,
		Kinds: []string{w.kind(), w.kind()}, Max: 1 + w.IntN(5), Slots: 8,
		LeaseFor: time.Minute, OfferFor: time.Duration(w.IntN(2)) * 5 * time.Second,
	}
	for range 1 + w.IntN(6) {
		c.Routes = append(c.Routes, store.Route{Site: w.site(), Owner: w.owner()})
	}
	got, _ := w.m.Claim(&c)
	for _, g := range got {
		w.grants = append(w.grants, wire.Grant{JobID: g.Stub.ID, LeaseID: g.Lease})
	}
}

func (w *world) grantOp() {
	gs := w.some()
	if gs == nil {
		return
	}
	g, who, site := gs[0], w.runner(), w.site()
	if j := w.m.leases[g.LeaseID]; j != nil && w.IntN(8) > 0 { // mostly by who may
		site = j.Key.Site
		if j.Runner != "" {
			who = j.Runner
		}
	}
	env := &wire.Envelope{RecipientKeyID: "device", Raw: []byte(strings.Repeat("x", w.IntN(30)))}
	switch w.IntN(10) {
	case 0:
		w.m.Accept(who, gs)
	case 1, 2, 3:
		_, _ = w.m.Seal(site, g, env)
	case 4:
		_, _ = w.m.TakePayload(who, g)
	case 5:
		_, _ = w.m.Complete(who, g, env, wire.DispositionOK)
	case 6:
		w.m.Release(who, gs, []string{wire.ReleaseRefused, wire.ReleasePause}[w.IntN(2)], time.Duration(w.IntN(9))*time.Second)
	case 7:
		w.m.Renew(who, gs, time.Minute)
	case 8:
		w.m.Collect(site, gs)
	default:
		if w.IntN(2) == 0 {
			w.m.Sealing(site, gs)
		} else {
			w.m.Decline(site, gs)
		}
	}
}

func TestIndexesAgreeAfterRandomCalls(t *testing.T) {
	for seed := range uint64(6) {
		start := time.Unix(1_900_000_000, 0)
		w := &world{Rand: rand.New(rand.NewPCG(seed, 1)), m: NewMachine(store.Settings{JobsPerSite: 60, BytesPerSite: 400}, start), now: start}
		for i := range 2000 {
			w.step()
			if i%7 == 0 {
				if err := w.m.check(); err != nil {
					t.Fatalf("seed %d, step %d: %v", seed, i, err)
				}
			}
		}
		w.drain(t)
	}
}

// drain lets so much time pass that nothing may be left.
func (w *world) drain(t *testing.T) {
	t.Helper()
	for range 40 {
		w.now = w.now.Add(24 * time.Hour)
		for more := true; more; {
			w.m.Begin(w.now)
			more = w.m.Sweep().Next == 0
		}
	}
	if err := w.m.check(); err != nil {
		t.Fatal(err)
	}
	m := w.m
	w.m.forgetStreaks()
	if n := len(m.jobs) + len(m.leases) + len(m.holders) + len(m.sites) + len(m.runners) + len(m.parties) + len(m.dues); n != 0 {
		t.Fatalf("left: %d jobs, %d leases, %d holders, %d sites, %d runners, %d parties, %d dues",
			len(m.jobs), len(m.leases), len(m.holders), len(m.sites), len(m.runners), len(m.parties), len(m.dues))
	}
}

func TestOrderedAgainstSortedSlice(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	var o ordered
	in := map[uint64]*job{}
	for i := range 50_000 {
		key := 1 + r.Uint64N(5_000)
		if r.IntN(8) == 0 {
			key = uint64(10_000 + i) // beyond all others
		}
		if in[key] == nil {
			in[key] = &job{}
			o.insert(key, in[key])
		} else {
			o.remove(key)
			o.remove(key)
			delete(in, key)
		}
		if i%500 == 0 {
			n := 0
			for j, k := o.after(0); j != nil; j, k = o.after(k) {
				if in[k] != j {
					t.Fatalf("key %d is another's", k)
				}
				n++
			}
			if n != len(in) || n != o.n || !ascending(&o) {
				t.Fatalf("%d listed, %d counted, %d put in", n, o.n, len(in))
			}
		}
	}
}
