package hub

import (
	"context"
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/sha256"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"pushrelay/hub/projection"
	"pushrelay/session"
	"pushrelay/store"
	"pushrelay/store/memory"
	"pushrelay/wire"
)

// party is the keys of a site or a device, made from its name.
type jsonValue = jsontext.Value

type party struct {
	identity wire.PublicIdentity
	key      ed25519.PublicKey
	private  ed25519.PrivateKey
	keyID    string
}

func newParty(t testing.TB, name string) party {
	t.Helper()
	seed := sha256.Sum256([]byte(name))
	private := ed25519.NewKeyFromSeed(seed[:])
	box, err := ecdh.X25519().NewPrivateKey(seed[:])
	require.NoError(t, err)
	public, ok := private.Public().(ed25519.PublicKey)
	require.True(t, ok)
	encryption := wire.EncodeBase64(box.PublicKey().Bytes())
	return party{
		identity: wire.PublicIdentity{
			Identity: wire.EncodeBase64(public), Encryption: encryption,
			EncryptionSig: wire.EncodeBase64(ed25519.Sign(private, wire.EncryptionStatement(encryption))),
		},
		key: public, private: private, keyID: wire.KeyID(public),
	}
}

// switchStore is a store whose events can be swallowed and whose calls can fail.
type switchStore struct {
	store.RoutingStore
	swallow atomic.Bool
	fail    atomic.Bool
	claims  atomic.Int64
	// onClaim runs between a claim and its answer, onHeld before a runner's grants are read.
	onClaim func()
	onHeld  func(runner string)
}

func (s *switchStore) Held(ctx context.Context, runner string) ([]store.Job, error) {
	if s.onHeld != nil {
		s.onHeld(runner)
	}
	return s.RoutingStore.Held(ctx, runner)
}

func (s *switchStore) Watch(in store.Interest) store.Watcher {
	return &switchWatcher{Watcher: s.RoutingStore.Watch(in), s: s}
}

type switchWatcher struct {
	store.Watcher
	s *switchStore
}

func (w *switchWatcher) Wait(ctx context.Context) ([]store.Event, error) {
	for {
		events, err := w.Watcher.Wait(ctx)
		if err != nil || !w.s.swallow.Load() {
			return events, err
		}
	}
}

func (s *switchStore) Claim(ctx context.Context, c store.Claim) ([]store.Claimed, error) {
	s.claims.Add(1)
	if s.fail.Load() {
		return nil, store.ErrUnavailable
	}
	out, err := s.RoutingStore.Claim(ctx, c)
	if s.onClaim != nil && len(out) > 0 {
		s.onClaim()
	}
	return out, err
}

func (s *switchStore) Renew(ctx context.Context, runner string, g []wire.Grant, d time.Duration) ([]wire.Grant, error) {
	if s.fail.Load() {
		return nil, store.ErrUnavailable
	}
	return s.RoutingStore.Renew(ctx, runner, g, d)
}

func (s *switchStore) Attach(ctx context.Context, p store.Party, id string, d time.Duration) (uint64, error) {
	if s.fail.Load() {
		return 0, store.ErrUnavailable
	}
	return s.RoutingStore.Attach(ctx, p, id, d)
}

func (s *switchStore) Backlog(ctx context.Context, site string) ([]store.Backlog, error) {
	if s.fail.Load() {
		return nil, store.ErrUnavailable
	}
	return s.RoutingStore.Backlog(ctx, site)
}

// counts is an Observer.
type counts struct {
	mu sync.Mutex
	n  map[Counter]int
	by map[store.Why]int
}

func (c *counts) Count(k Counter, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n[k] += n
}

func (c *counts) Ended(w store.Why) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.by[w]++
}
func (c *counts) Dropped(store.Why) {}
func (c *counts) Done(string)       {}

func (c *counts) of(k Counter) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[k]
}

// world is a hub on a memory store, in a bubble of synctest.
type world struct {
	t       *testing.T
	hub     *Hub
	store   *switchStore
	holder  *projection.Holder
	parties map[string]party
	obs     *counts
	ids     int
	stop    context.CancelFunc
	ended   chan error
}

// basic is one site, one owner, and the devices d1 and d2 of that owner.
func (w *world) basic() *projection.Example {
	return new(projection.Example).Site("shop", w.party("shop").identity).
		Device("ada", "d1", w.party("d1").identity).Device("ada", "d2", w.party("d2").identity).Consent("ada", "shop")
}

func (w *world) party(name string) party {
	p, ok := w.parties[name]
	if !ok {
		p = newParty(w.t, name)
		w.parties[name] = p
	}
	return p
}

func (w *world) parse(e *projection.Example) *projection.Projection {
	w.t.Helper()
	raw, err := e.Marshal()
	require.NoError(w.t, err)
	p, err := projection.Parse(raw)
	require.NoError(w.t, err)
	return p
}

// inWorld runs f with a running hub; afterwards the hub has ended cleanly.
func inWorld(t *testing.T, set Settings, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{
			t: t, store: &switchStore{RoutingStore: memory.New(memory.Options{})}, parties: map[string]party{},
			obs: &counts{n: map[Counter]int{}, by: map[store.Why]int{}}, ended: make(chan error, 1),
		}
		w.holder = projection.NewHolder(w.parse(w.basic()))
		hub, err := New(Config{Store: w.store, Projection: w.holder, Settings: set, Log: zerolog.Nop(), Observer: w.obs, RelayVersion: "test"})
		require.NoError(t, err)
		w.hub = hub
		ctx, cancel := context.WithCancel(t.Context())
		w.stop = cancel
		go func() { w.ended <- hub.Run(ctx) }()
		synctest.Wait()
		f(w)
		cancel()
		require.NoError(t, <-w.ended)
		require.NoError(t, w.store.Close())
	})
}

// advance lets time pass, and everybody act.
func (w *world) advance(d time.Duration) {
	<-time.After(d) // the bubble's clock
	synctest.Wait()
}

// client is a fake session with a daemon or a site behind it. It acts only when told.
type client struct {
	w       *world
	id      string
	name    string
	peer    Peer
	welcome wire.Welcome

	mu       sync.Mutex
	frames   [][]byte // unread
	ended    session.Reason
	held     bool // bulk waits
	bulk     []session.Loader
	received int64
}

func (c *client) ID() string { return c.id }

func (c *client) Push(frame []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frames = append(c.frames, frame)
}

func (c *client) PushBulk(load session.Loader) {
	c.mu.Lock()
	if c.held {
		c.bulk = append(c.bulk, load)
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	c.load(load)
}

func (c *client) PushBulkThen(load session.Loader, over func()) { c.PushBulk(thenOver(load, over)) }

// thenOver counts a frame as sent once it was loaded.
func thenOver(load session.Loader, over func()) session.Loader {
	return func(ctx context.Context) ([][]byte, error) {
		defer over()
		return load(ctx)
	}
}

func (c *client) load(load session.Loader) {
	pieces, err := load(context.Background())
	if err != nil || pieces == nil {
		return
	}
	var frame []byte
	for _, p := range pieces {
		frame = append(frame, p...)
	}
	c.Push(frame)
}

func (c *client) End(reason session.Reason, _ string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended == "" {
		c.ended = reason
	}
}

func (c *client) Received() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.received
}

func (c *client) reason() session.Reason {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}

// close is the connection's end.
func (c *client) close() {
	c.peer.Closed(session.End{Reason: session.ReasonCut})
	synctest.Wait()
}

const capabilities0 = `[{"kind":"llm.generate","backendId":"b","backendClass":"http","model":"m","offerScope":"self"}]`

const capabilities2 = `[{"kind":"llm.generate","backendId":"b","backendClass":"http","service":"s","model":"m","offerScope":"private"}]`

// arrival fills what a daemon's or a site's hello says; change alters it.
func (w *world) arrival(role, name string, change func(*Arrival)) (*client, Arrival) {
	w.ids++
	c := &client{w: w, id: fmt.Sprintf("s%d", w.ids), name: name}
	a := Arrival{
		Link: c, Role: role, Caller: name, Dialect: wire.Dialect0, Key: w.party(name).key,
		Hello: &wire.HelloBody{ProtocolVersion: "0", Role: role, Client: wire.ClientInfo{Name: "test", Version: "1"}},
	}
	if role == wire.RoleDaemon {
		a.Hello.Capabilities, a.Hello.Slots = []byte(capabilities0), 4
	}
	if change != nil {
		change(&a)
	}
	return c, a
}

func (w *world) admit(role, name string, change func(*Arrival)) (*client, error) {
	c, a := w.arrival(role, name, change)
	var err error
	c.peer, c.welcome, err = w.hub.Admit(w.t.Context(), a)
	synctest.Wait()
	return c, err
}

func (w *world) daemon(name string, change func(*Arrival)) *client {
	w.t.Helper()
	c, err := w.admit(wire.RoleDaemon, name, change)
	require.NoError(w.t, err)
	return c
}

func (w *world) site(name string) *client {
	w.t.Helper()
	c, err := w.admit(wire.RoleSite, name, nil)
	require.NoError(w.t, err)
	return c
}

// request is a fake request; its answer is a frame.
type request struct {
	t      wire.FrameType
	frame  []byte
	answer []byte
	err    *wire.Error
}

func (r *request) Type() wire.FrameType { return r.t }
func (r *request) ID() string           { return "1" }
func (r *request) Frame() []byte        { return r.frame }
func (r *request) Reply(f []byte)       { r.answer = f }
func (r *request) Refuse(e *wire.Error) { r.err = e }
func (r *request) ReplyBulk(load session.Loader) {
	pieces, err := load(context.Background())
	if err != nil {
		r.err = wire.AsError(err)
		return
	}
	for _, p := range pieces {
		r.answer = append(r.answer, p...)
	}
}

// raw makes a request of a frame's text.
func (c *client) raw(t wire.FrameType, text string) *request {
	r := &request{t: t, frame: []byte(text)}
	c.peer.Handle(c.w.t.Context(), r)
	synctest.Wait()
	return r
}

func (c *client) ask(t wire.FrameType, frame any) *request {
	c.w.t.Helper()
	var text []byte
	var err error
	switch f := frame.(type) {
	case wire.Grants:
		f.Type, f.ID = t, "1"
		text, err = wire.Encode(f)
	case wire.Ready:
		f.Type, f.ID = t, "1"
		text, err = wire.Encode(f)
	case wire.Heartbeat:
		f.Type, f.ID = t, "1"
		text, err = wire.Encode(f)
	case wire.Fetch:
		f.Type, f.ID = t, "1"
		text, err = wire.Encode(f)
	case wire.Result:
		f.Type, f.ID = t, "1"
		text, err = wire.Encode(f)
	case wire.Release:
		f.Type, f.ID = t, "1"
		text, err = wire.Encode(f)
	case wire.Seal:
		f.Type, f.ID = t, "1"
		text, err = wire.Encode(f)
	case wire.Enqueue:
		f.Type, f.ID = t, "1"
		text, err = wire.Encode(f)
	case wire.CancelJobs:
		f.Type, f.ID = t, "1"
		text, err = wire.Encode(f)
	}
	require.NoError(c.w.t, err)
	return c.raw(t, string(text))
}

// take answers the unread frames of a type, decoded, and leaves the others.
func take[T any](c *client, t wire.FrameType) []T {
	c.w.t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []T
	var rest [][]byte
	for _, f := range c.frames {
		head, err := wire.DecodeHead(f)
		require.NoError(c.w.t, err, string(f))
		if head.Type != t {
			rest = append(rest, f)
			continue
		}
		v, err := wire.Decode[T](f)
		require.NoError(c.w.t, err, string(f))
		out = append(out, v)
	}
	c.frames = rest
	return out
}

// claimed answers the grants of the unread claimed pushes.
func (c *client) claimed() []wire.Grant {
	c.w.t.Helper()
	var out []wire.Grant
	for _, f := range take[wire.Claimed](c, wire.TypeClaimed) {
		for _, raw := range f.Jobs {
			stub, lease, err := wire.ParseClaimed(wire.Dialect0, raw)
			if err != nil {
				stub, lease, err = wire.ParseClaimed(wire.Dialect2, raw)
			}
			require.NoError(c.w.t, err)
			out = append(out, wire.Grant{JobID: stub.ID, LeaseID: lease.ID})
		}
	}
	return out
}

func (c *client) lost(reason string) []wire.Grant {
	c.w.t.Helper()
	var out []wire.Grant
	for _, f := range take[wire.GrantsPush](c, wire.TypeLost) {
		require.Equal(c.w.t, reason, f.Reason)
		out = append(out, f.Grants...)
	}
	return out
}

func (c *client) cancels() []wire.Grant {
	c.w.t.Helper()
	var out []wire.Grant
	for _, f := range take[wire.GrantsPush](c, wire.TypeCancel) {
		out = append(out, f.Grants...)
	}
	return out
}

func (c *client) sealRequests() []wire.SealJob {
	c.w.t.Helper()
	var out []wire.SealJob
	for _, f := range take[wire.SealRequest](c, wire.TypeSealRequest) {
		out = append(out, f.Jobs...)
	}
	return out
}

func (c *client) results() []wire.ResultJob {
	c.w.t.Helper()
	var out []wire.ResultJob
	for _, f := range take[wire.Results](c, wire.TypeResults) {
		out = append(out, f.Jobs...)
	}
	return out
}

func (c *client) notices(t wire.FrameType) []wire.Notice {
	c.w.t.Helper()
	var out []wire.Notice
	for _, f := range take[wire.Notices](c, t) {
		out = append(out, f.Jobs...)
	}
	return out
}

// stub writes the stub of a job of ada's for the shop; change alters it.
func (w *world) stub(id string, change func(*wire.Stub)) []byte {
	s := wire.Stub{
		ID: id, Kind: "llm.generate", Owner: "ada", Site: w.party("shop").keyID, Audience: "self", SizeClass: "small",
		DeadlineAt: time.Now().Add(time.Hour).UnixMilli(),
	}
	if change != nil {
		change(&s)
	}
	return wire.AppendStub(nil, s)
}

func (c *client) enqueue(ids ...string) {
	c.w.t.Helper()
	var f wire.Enqueue
	for _, id := range ids {
		f.Stubs = append(f.Stubs, c.w.stub(id, nil))
	}
	r := c.ask(wire.TypeEnqueue, f)
	require.Nil(c.w.t, r.err)
}

func (c *client) accept(grants ...wire.Grant) []wire.Grant {
	c.w.t.Helper()
	r := c.ask(wire.TypeAccept, wire.Grants{Grants: grants})
	require.Nil(c.w.t, r.err)
	v, err := wire.Decode[wire.AcceptReply](r.answer)
	require.NoError(c.w.t, err)
	return v.Lost
}

func (w *world) payloadFor(device string) []byte {
	return wire.AppendEnvelope(nil, wire.Envelope{
		RecipientKeyID: w.party(device).keyID, SenderKeyID: w.party("shop").keyID, Direction: wire.DirectionPayload,
		DeadlineAt: time.Now().Add(time.Hour).UnixMilli(),
	}, "AAAA")
}

func (w *world) resultOf(device string) []byte {
	return wire.AppendEnvelope(nil, wire.Envelope{
		RecipientKeyID: w.party("shop").keyID, SenderKeyID: w.party(device).keyID, Direction: wire.DirectionResult,
		DeadlineAt: time.Now().Add(time.Hour).UnixMilli(),
	}, "BBBB")
}

func (c *client) seal(g wire.Grant, device string) *request {
	c.w.t.Helper()
	return c.ask(wire.TypeSeal, wire.Seal{JobID: g.JobID, LeaseID: g.LeaseID, Envelope: c.w.payloadFor(device)})
}

func (c *client) complete(g wire.Grant) *request {
	c.w.t.Helper()
	return c.ask(wire.TypeResult, wire.Result{Grant: g, Envelope: c.w.resultOf(c.name), Disposition: wire.DispositionOK})
}

func (c *client) collect(grants ...wire.Grant) {
	c.w.t.Helper()
	require.Nil(c.w.t, c.ask(wire.TypeCollected, wire.Grants{Grants: grants}).err)
}

// live plays both clients until nothing moves any more: accepts, seals, completes and collects whatever comes.
func (w *world) live(site *client, daemons ...*client) (collected []string) {
	w.t.Helper()
	for moved := true; moved; {
		moved = false
		for _, d := range daemons {
			if g := d.claimed(); len(g) > 0 {
				d.accept(g...)
				moved = true
			}
			for _, p := range take[wire.Payload](d, wire.TypePayload) {
				require.Nil(w.t, d.complete(wire.Grant{JobID: p.JobID, LeaseID: p.LeaseID}).err)
				moved = true
			}
		}
		for _, j := range site.sealRequests() {
			device := ""
			for _, d := range daemons {
				if d.name == j.RunnerID {
					device = d.name
				}
			}
			require.Nil(w.t, site.seal(wire.Grant{JobID: j.JobID, LeaseID: j.LeaseID}, device).err)
			moved = true
		}
		for _, j := range site.results() {
			site.collect(wire.Grant{JobID: j.JobID, LeaseID: j.LeaseID})
			collected = append(collected, j.JobID)
			moved = true
		}
	}
	return collected
}

// liveFor is live, second by second.
func (w *world) liveFor(d time.Duration, site *client, daemons ...*client) (collected []string) {
	w.t.Helper()
	for range d / time.Second {
		w.advance(time.Second)
		collected = append(collected, w.live(site, daemons...)...)
	}
	return collected
}

func grantOf(j wire.SealJob) wire.Grant { return wire.Grant{JobID: j.JobID, LeaseID: j.LeaseID} }
