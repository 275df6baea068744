package hub

import (
	"context"
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/sha256"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"pushrelay/hub/projection"
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

func (c *counts) ends(w store.Why) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.by[w]
}

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
	inWorldOf(t, set, zerolog.Nop(), func(s store.RoutingStore) store.RoutingStore { return s }, f)
}

// inWorldOf is inWorld with a log and with a store around the world's own.
func inWorldOf(t *testing.T, set Settings, log zerolog.Logger, around func(store.RoutingStore) store.RoutingStore, f func(w *world)) {
	t.Helper()
	inWorldFor(t, func(cfg *Config) { cfg.Store, cfg.Settings, cfg.Log = around(cfg.Store), set, log }, f)
}

// inWorldFor is inWorld with a change to what the hub works with; it is made within the bubble.
func inWorldFor(t *testing.T, change func(cfg *Config), f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{
			t: t, store: &switchStore{RoutingStore: memory.New(memory.Options{})}, parties: map[string]party{},
			obs: &counts{n: map[Counter]int{}, by: map[store.Why]int{}}, ended: make(chan error, 1),
		}
		w.holder = projection.NewHolder(w.parse(w.basic()))
		cfg := Config{Store: w.store, Projection: w.holder, Log: zerolog.Nop(), Observer: w.obs, RelayVersion: "test"}
		change(&cfg)
		hub, err := New(cfg)
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
