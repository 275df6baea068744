package hub

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"pushrelay/hub/grants"
	"pushrelay/hub/projection"
	"pushrelay/session"
	"pushrelay/store"
	"pushrelay/wire"
)

// Config says what a hub works with. Store and Projection are required.
type Config struct {
	Store      store.RoutingStore
	Projection *projection.Holder
	Settings   Settings
	Log        zerolog.Logger
	Observer   Observer // nil counts nothing
	// Grants asks the control plane about each claim of dialect 2; nil: there are no signed grants, and such daemons get
	// their own owner's jobs only.
	Grants *GrantConfig
	// RelayVersion is told in every welcome.
	RelayVersion string
	// Budget bounds the envelopes that answers to polls hold at once; nil: nothing does.
	Budget *session.Budget
}

// Hub knows who is connected to this replica and turns the store's events into pushes. Make one with New.
type Hub struct {
	// Immutable.
	store   store.RoutingStore
	proj    *projection.Holder
	set     Settings
	log     zerolog.Logger
	obs     Observer
	version string
	grants  *grants.Asker // nil: none are asked for
	budget  *session.Budget
	// pollSession is the session by which polls make sites present for other replicas; those of offers begin with it.
	pollSession string

	// Each guards itself.
	reg    registry
	routes routes
	pool   *pool
	own    ownJobs
	polls  polls
	// pollOffers numbers the sessions of offers to polls: what one isn't told goes back without the others'.
	pollOffers atomic.Uint64
	upset      trouble
	// expelled is filled by the loop that ends sessions, and emptied by the one that applies projections.
	expelled expelled

	skew     atomic.Int64 // store's time minus ours, ns
	stopped  atomic.Bool  // no new claims
	draining atomic.Bool  // no new sessions
	running  atomic.Bool

	// The dispatcher's.
	accepted map[store.Key]bool // ended accepted grants whose job's fate follows

	// The projection loop's.
	applied *projection.Current
}

var errRunning = errors.New("hub: it runs already, or has run")

// New checks the settings and makes a hub that admits sessions at once and pushes while Run runs.
func New(cfg Config) (*Hub, error) {
	if cfg.Store == nil || cfg.Projection == nil {
		return nil, errors.New("hub: a store and a projection are required")
	}
	if err := cfg.Settings.Check(); err != nil {
		return nil, err
	}
	obs := cfg.Observer
	if obs == nil {
		obs = deafObserver{}
	}
	h := &Hub{
		store: cfg.Store, proj: cfg.Projection, set: cfg.Settings.withDefaults(), log: cfg.Log, obs: obs, version: cfg.RelayVersion,
		budget: cfg.Budget, pollSession: "poll-" + rand.Text(),
		accepted: map[store.Key]bool{},
	}
	h.reg.init()
	h.routes.init()
	h.own.init()
	h.polls.init(h.proj.Current().Generation)
	h.pool = newPool(h.set.Workers)
	h.applied = h.proj.Current()
	if err := h.newAsker(cfg.Grants); err != nil {
		return nil, err
	}
	return h, nil
}

// Run pushes until ctx ends; it answers nil then, after all its goroutines have ended. A hub runs once. End the sessions
// before its ctx: what their ends give back is then claimed by others at once.
func (h *Hub) Run(ctx context.Context) error {
	if !h.running.CompareAndSwap(false, true) {
		return errRunning
	}
	w := h.store.Watch(store.Interest{}) // before the first read, so that nothing falls between
	defer w.Close()
	changed, cancel := h.proj.Subscribe()
	defer cancel()
	expelled, cancelExpelled := h.proj.Subscribe()
	defer cancelExpelled()
	h.pool.start(ctx)
	if h.grants != nil {
		defer h.grants.Close()
	}
	defer h.pool.close()
	var loops sync.WaitGroup
	defer loops.Wait()
	for _, loop := range []func(context.Context){
		func(ctx context.Context) { h.watch(ctx, w) },
		func(ctx context.Context) { h.follow(ctx, changed) },
		func(ctx context.Context) { h.expel(ctx, expelled) },
		h.sweep, h.resyncs, h.renewPresence, h.watchOffers,
	} {
		loops.Go(func() { loop(ctx) })
	}
	<-ctx.Done()
	return nil
}

// Caller answers who may authenticate; it is session.Directory's.
func (h *Hub) Caller(role, id string) (session.Caller, bool) {
	cur := h.proj.Current()
	switch role {
	case wire.RoleDaemon:
		if d, ok := cur.DeviceByRunner(id); ok {
			return session.Caller{Keys: append([]edKey{}, d.Key), Revoked: cur.Revoked(id)}, true
		}
	case wire.RoleSite:
		if s, ok := cur.SiteByID(id); ok {
			return session.Caller{Keys: s.Keys(h.now())}, true
		}
	}
	return session.Caller{}, false
}

// Admit decides on an authenticated session. It blocks on the store; an error is a *session.EndError or means busy.
func (h *Hub) Admit(ctx context.Context, a Arrival) (Peer, wire.Welcome, error) {
	if h.draining.Load() {
		return nil, wire.Welcome{}, &session.EndError{Reason: session.ReasonGoingAway, Text: "this relay is going away; dial again"}
	}
	switch a.Role {
	case wire.RoleDaemon:
		return h.admitDaemon(ctx, a)
	case wire.RoleSite:
		return h.admitSite(ctx, a)
	}
	return nil, wire.Welcome{}, &session.EndError{Reason: session.ReasonBadFrame, Text: "the role must be daemon or site"}
}

// now is the store's time as it was last compared with ours; for what peers are told and for key windows.
func (h *Hub) now() time.Time { return time.Now().Add(time.Duration(h.skew.Load())) }

func (h *Hub) readClock(ctx context.Context) error {
	before := time.Now()
	now, err := h.store.Now(ctx)
	if err != nil {
		return err
	}
	h.skew.Store(int64(now.Sub(before)))
	return nil
}

// welcome fills what both roles are told.
func (h *Hub) welcome(ctx context.Context, a Arrival) (wire.Welcome, error) {
	epoch, err := h.store.Epoch(ctx)
	if err != nil {
		return wire.Welcome{}, err
	}
	if err := h.readClock(ctx); err != nil {
		return wire.Welcome{}, err
	}
	return wire.Welcome{
		Type: wire.TypeWelcome, SessionID: a.Link.ID(), Epoch: epoch, ServerTime: h.now().UnixMilli(),
		LeaseMs: h.set.LeaseFor.Milliseconds(), HeartbeatMs: h.set.HeartbeatEvery.Milliseconds(),
		PingMs: h.set.PingEvery.Milliseconds(), MaxFrameBytes: wire.MaxFrameBytes, RelayVersion: h.version,
	}, nil
}

// afterwards is a context for what has to be given back when its session's own has ended.
func afterwards(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
}
