package storetest

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pushrelay/store"
	"pushrelay/wire"
)

// Names that the cases use. The ids are plain words so that failures read well.
const (
	siteA, siteB = "site-a", "site-b"
	ann, bob     = "ann", "bob"
	r1, r2, r3   = "runner-1", "runner-2", "runner-3"
	chat, gen    = "llm.chat", "llm.generate"
	lease        = 60 * time.Second
	offer        = 5 * time.Second
	payWindow    = 10 * time.Second
	step         = 4 * time.Second // below SweeperAway, so that nothing gets a grace
)

// rig is a store under test with its clock, and the calls of the contract that fail the test on an error.
type rig struct {
	*require.Assertions
	t     testing.TB
	ctx   context.Context
	f     Factory
	set   store.Settings
	clock *Clock
	st    store.RoutingStore
	marks int // of taps, so that each has a name of its own
}

func newRig(t testing.TB, f Factory, set store.Settings) *rig {
	t.Helper()
	r := &rig{Assertions: require.New(t), t: t, ctx: context.Background(), f: f, set: set, clock: NewClock()}
	r.st = f.Open(t, set, r.clock)
	t.Cleanup(func() { _ = r.st.Close() })
	return r
}

// stub answers a stub of ann's that any device may run and whose deadline is an hour away.
func (r *rig) stub(id string, change ...func(*wire.Stub)) wire.Stub {
	s := wire.Stub{
		ID: id, Kind: chat, Owner: ann, Site: "BYOLLM-" + siteA, Audience: "public", SizeClass: "small",
		DeadlineAt: r.now().Add(time.Hour).UnixMilli(),
	}
	for _, c := range change {
		c(&s)
	}
	s.Raw = []byte(`{"id":"` + id + `","x":1}`)
	return s
}

func ownedBy(owner string) func(*wire.Stub) { return func(s *wire.Stub) { s.Owner = owner } }
func ofKind(kind string) func(*wire.Stub)   { return func(s *wire.Stub) { s.Kind = kind } }
func audience(a string) func(*wire.Stub)    { return func(s *wire.Stub) { s.Audience = a } }
func (r *rig) dueIn(d time.Duration) func(*wire.Stub) {
	at := r.now().Add(d)
	return func(s *wire.Stub) { s.DeadlineAt = at.UnixMilli() }
}

func (r *rig) now() time.Time {
	r.t.Helper()
	now, err := r.st.Now(r.ctx)
	r.NoError(err)
	return now
}

// enqueueAll publishes stubs, in calls of at most MaxList, and answers what the store said.
func (r *rig) enqueueAll(site string, stubs ...wire.Stub) []store.Enqueued {
	r.t.Helper()
	var out []store.Enqueued
	for len(stubs) > 0 {
		n := min(len(stubs), wire.MaxList)
		got, err := r.st.Enqueue(r.ctx, site, wire.Dialect0, stubs[:n])
		r.NoError(err)
		r.Len(got, n)
		out, stubs = append(out, got...), stubs[n:]
	}
	return out
}

// enqueue publishes one job and expects that it's taken.
func (r *rig) enqueue(site, id string, change ...func(*wire.Stub)) {
	r.t.Helper()
	got := r.enqueueAll(site, r.stub(id, change...))[0]
	r.NoError(got.Err)
	r.Equal(store.Enqueued{JobID: id, State: store.Queued}, got)
}

// enqueueN publishes n jobs named prefix-0 and so on.
func (r *rig) enqueueN(site, prefix string, n int, change ...func(*wire.Stub)) {
	r.t.Helper()
	stubs := make([]wire.Stub, n)
	for i := range stubs {
		stubs[i] = r.stub(prefix+"-"+strconv.Itoa(i), change...)
	}
	for _, e := range r.enqueueAll(site, stubs...) {
		r.NoError(e.Err)
	}
}

// routes pairs sites with one owner.
func routes(owner string, sites ...string) []store.Route {
	var out []store.Route
	for _, s := range sites {
		out = append(out, store.Route{Site: s, Owner: owner})
	}
	return out
}

// ask answers a polled claim of one job of ann's at either site, accepted at once.
func ask(runner string, change ...func(*store.Claim)) store.Claim {
	c := store.Claim{
		Runner: runner, Owner: ann, Device: device(runner), Identity: identity(runner), Dialect: wire.Dialect0, Routes: routes(ann, siteA, siteB),
		Kinds: []string{chat, gen}, Max: 1, Slots: 64, LeaseFor: lease,
	}
	for _, f := range change {
		f(&c)
	}
	return c
}

func device(runner string) string { return "BYOLLM-" + runner }

func identity(runner string) wire.PublicIdentity {
	return wire.PublicIdentity{Identity: "identity of " + runner, Encryption: "encryption of " + runner, EncryptionSig: "sig of " + runner}
}

func upTo(n int) func(*store.Claim)              { return func(c *store.Claim) { c.Max = n } }
func slots(n int) func(*store.Claim)             { return func(c *store.Claim) { c.Slots = n } }
func along(rs ...store.Route) func(*store.Claim) { return func(c *store.Claim) { c.Routes = rs } }
func kinds(ks ...string) func(*store.Claim)      { return func(c *store.Claim) { c.Kinds = ks } }
func numbered(n uint64) func(*store.Claim)       { return func(c *store.Claim) { c.Number = n } }
func owner(o string) func(*store.Claim)          { return func(c *store.Claim) { c.Owner = o } }
func offered(c *store.Claim)                     { c.OfferFor = offer }
func leased(d time.Duration) func(*store.Claim)  { return func(c *store.Claim) { c.LeaseFor = d } }
func speaking(d wire.Dialect) func(*store.Claim) { return func(c *store.Claim) { c.Dialect = d } }
func grantOf(c store.Claimed) wire.Grant         { return wire.Grant{JobID: c.Stub.ID, LeaseID: c.Lease} }
func one(g wire.Grant) []wire.Grant              { return []wire.Grant{g} }
func bogus(job string) wire.Grant {
	return wire.Grant{JobID: job, LeaseID: "00000000-0000-4000-8000-000000000000"}
}
func (r *rig) errIs(err error, want *store.Refusal) { r.t.Helper(); r.ErrorIs(err, want) }

func (r *rig) claim(runner string, change ...func(*store.Claim)) []store.Claimed {
	r.t.Helper()
	got, err := r.st.Claim(r.ctx, ask(runner, change...))
	r.NoError(err)
	return got
}

// claimIDs claims and answers the job ids in the order of the grants.
func (r *rig) claimIDs(runner string, change ...func(*store.Claim)) []string {
	r.t.Helper()
	ids := []string{}
	for _, c := range r.claim(runner, change...) {
		ids = append(ids, c.Stub.ID)
	}
	return ids
}

// grant claims exactly one job and answers its grant.
func (r *rig) grant(runner string, change ...func(*store.Claim)) wire.Grant {
	r.t.Helper()
	got := r.claim(runner, change...)
	r.Len(got, 1)
	return grantOf(got[0])
}

// attach opens a session of a runner and answers its number.
func (r *rig) attach(runner, session string) uint64 {
	r.t.Helper()
	n, err := r.st.Attach(r.ctx, store.Party{Role: store.RunnerRole, ID: runner}, session, 24*time.Hour)
	r.NoError(err)
	return n
}

// attachSite opens a session of a site, so that it can be offered things.
func (r *rig) attachSite(site, session string) {
	r.t.Helper()
	_, err := r.st.Attach(r.ctx, store.Party{Role: store.SiteRole, ID: site}, session, 24*time.Hour)
	r.NoError(err)
}

func payloadFor(runner, text string) wire.Envelope {
	return wire.Envelope{
		RecipientKeyID: device(runner), SenderKeyID: "BYOLLM-" + siteA, Direction: wire.DirectionPayload,
		DeadlineAt: 1, Raw: []byte(text),
	}
}

func resultFrom(runner, text string) wire.Envelope {
	return wire.Envelope{
		RecipientKeyID: "BYOLLM-" + siteA, SenderKeyID: device(runner), Direction: wire.DirectionResult,
		DeadlineAt: 2, Raw: []byte(text),
	}
}

func (r *rig) seal(site string, g wire.Grant, runner string) {
	r.t.Helper()
	st, err := r.st.Seal(r.ctx, site, g, payloadFor(runner, "payload of "+g.JobID))
	r.NoError(err)
	r.Equal(store.Ready, st)
}

func (r *rig) take(runner string, g wire.Grant) wire.Envelope {
	r.t.Helper()
	env, err := r.st.TakePayload(r.ctx, runner, g)
	r.NoError(err)
	return env
}

func (r *rig) complete(runner string, g wire.Grant) {
	r.t.Helper()
	c, err := r.st.Complete(r.ctx, runner, g, resultFrom(runner, "result of "+g.JobID), wire.DispositionOK)
	r.NoError(err)
	r.Equal(store.Completion{Accepted: true, State: store.Done}, c)
}

func (r *rig) release(runner string, reason string, notFor time.Duration, gs ...wire.Grant) []wire.Grant {
	r.t.Helper()
	out, err := r.st.Release(r.ctx, runner, gs, reason, notFor)
	r.NoError(err)
	return out
}

func (r *rig) accept(runner string, gs ...wire.Grant) []wire.Grant {
	r.t.Helper()
	lost, err := r.st.Accept(r.ctx, runner, gs)
	r.NoError(err)
	return lost
}

func (r *rig) renew(runner string, gs ...wire.Grant) []wire.Grant {
	r.t.Helper()
	lost, err := r.st.Renew(r.ctx, runner, gs, lease)
	r.NoError(err)
	return lost
}

func (r *rig) collect(site string, gs ...wire.Grant) {
	r.t.Helper()
	r.NoError(r.st.Collect(r.ctx, site, gs))
}

func (r *rig) cancel(site string, ids ...string) []bool {
	r.t.Helper()
	out, err := r.st.Cancel(r.ctx, site, ids)
	r.NoError(err)
	return out
}

func (r *rig) job(site, id string) store.Job {
	r.t.Helper()
	j, err := r.st.Job(r.ctx, site, id)
	r.NoError(err)
	return j
}

func (r *rig) stats() store.Stats {
	r.t.Helper()
	s, err := r.st.Stats(r.ctx)
	r.NoError(err)
	return s
}
