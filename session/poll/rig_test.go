package poll_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"pushrelay/hub"
	"pushrelay/hub/projection"
	"pushrelay/session"
	"pushrelay/session/poll"
	"pushrelay/store"
	"pushrelay/store/memory"
	"pushrelay/wire"
	"pushrelay/wire/seal"
)

// patience is what a test gives to what must happen; nothing waits for it when all is well.
const patience = 20 * time.Second

// rig is a relay's polling planes on real sockets, with two sites (shop, blog) and devices (d1, d2 of ada, d3 of bob),
// who consent to both.
type rig struct {
	t      *testing.T
	keys   map[string]*seal.Keys
	holder *projection.Holder
	store  store.RoutingStore
	hub    *hub.Hub
	planes *poll.Planes
	server *httptest.Server
	client *http.Client
	seen   *tally
	log    *logged
}

// tally is an Observer of the planes.
type tally struct {
	mu   sync.Mutex
	n    map[[2]string]int
	more chan struct{} // closed and replaced with each count
}

func (o *tally) Waits(endpoint string, change int) { o.count(endpoint, "waits", change) }

func (o *tally) Polled(endpoint, outcome string, _ time.Duration) { o.count(endpoint, outcome, 1) }

func (o *tally) count(endpoint, outcome string, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.n[[2]string{endpoint, outcome}] += n
	close(o.more)
	o.more = make(chan struct{})
}

func (o *tally) of(endpoint, outcome string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.n[[2]string{endpoint, outcome}]
}

// await waits until an outcome was counted n times.
func (o *tally) await(t *testing.T, endpoint, outcome string, n int) {
	t.Helper()
	timeout := time.After(patience)
	for {
		o.mu.Lock()
		got, more := o.n[[2]string{endpoint, outcome}], o.more
		o.mu.Unlock()
		if got >= n {
			return
		}
		select {
		case <-more:
		case <-timeout:
			t.Fatalf("%s %s was counted %d times, want %d", endpoint, outcome, got, n)
		}
	}
}

// logged keeps what is logged.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

type hubSettings = hub.Settings

type option func(r *rig, set *hubSettings, opts *poll.Options)

func newRig(t *testing.T, with ...option) *rig {
	t.Helper()
	r := &rig{
		t: t, keys: map[string]*seal.Keys{}, seen: &tally{n: map[[2]string]int{}, more: make(chan struct{})}, log: &logged{},
		store: memory.New(memory.Options{}),
	}
	r.holder = projection.NewHolder(r.parse(r.parties().Consent("ada", "shop").Consent("ada", "blog").Consent("bob", "shop").Consent("bob", "blog")))
	set := hub.Settings{}
	opts := poll.Options{Budget: session.NewBudget(session.DefaultBudget), Log: zerolog.New(r.log), Observer: r.seen}
	for _, o := range with {
		o(r, &set, &opts)
	}
	h, err := hub.New(hub.Config{Store: r.store, Projection: r.holder, Settings: set, Log: zerolog.Nop(), RelayVersion: "test"})
	require.NoError(t, err)
	r.hub, opts.Hub = h, h
	r.planes, err = poll.New(opts)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	r.server = httptest.NewServer(r.planes)
	r.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	t.Cleanup(func() {
		r.client.CloseIdleConnections()
		r.server.CloseClientConnections()
		r.server.Close()
		stop()
		require.NoError(t, <-ended)
		require.NoError(t, r.store.Close())
	})
	return r
}

func (r *rig) key(name string) *seal.Keys {
	if r.keys[name] == nil {
		k, err := seal.Generate(nil)
		require.NoError(r.t, err)
		r.keys[name] = k
	}
	return r.keys[name]
}

// parties are all sites and devices but the given ones, without any consent.
func (r *rig) parties(without ...string) *projection.Example {
	e := new(projection.Example)
	for _, name := range []string{"shop", "blog"} {
		if !slices.Contains(without, name) {
			e.Site(name, r.key(name).Public())
		}
	}
	for _, d := range [][2]string{{"ada", "d1"}, {"ada", "d2"}, {"bob", "d3"}} {
		if !slices.Contains(without, d[1]) {
			e.Device(d[0], d[1], r.key(d[1]).Public())
		}
	}
	return e
}

func (r *rig) parse(e *projection.Example) *projection.Projection {
	r.t.Helper()
	raw, err := e.Marshal()
	require.NoError(r.t, err)
	p, err := projection.Parse(raw)
	require.NoError(r.t, err)
	return p
}

func (r *rig) replace(e *projection.Example) {
	r.t.Helper()
	require.NoError(r.t, r.hub.Replace(r.parse(e)))
}

// call is one request before it is sent; its fields may be changed.
type call struct {
	method, path string
	body         []byte
	caller       string
	role         string
	endpoint     string // as signed
	keys         *seal.Keys
	issuedAt     int64
	unsigned     bool
	issuedText   string // instead of issuedAt, unsigned
	signs        []byte // instead of body
	header       http.Header
}

// daemonCall makes a daemon's request of a body that is signed as it stands.
func (r *rig) daemonCall(name, endpoint, body string) *call {
	return &call{
		method: http.MethodPost, path: "/byollm/" + endpoint, body: []byte(body), caller: name, role: wire.RoleDaemon,
		endpoint: endpoint, keys: r.key(name), issuedAt: time.Now().UnixMilli(), header: http.Header{},
	}
}

func (r *rig) siteCall(name, endpoint, body string) *call {
	return &call{
		method: http.MethodPost, path: "/relay/site/" + endpoint, body: []byte(body), caller: name, role: wire.RoleSite,
		endpoint: "site/" + endpoint, keys: r.key(name), issuedAt: time.Now().UnixMilli(), header: http.Header{},
	}
}

func (r *rig) siteGet(name, endpoint, version string) *call {
	c := r.siteCall(name, endpoint, "")
	c.method, c.path = http.MethodGet, c.path+"?siteId="+name+"&protocolVersion="+version
	return c
}

// answered is a whole answer.
type answered struct {
	status int
	header http.Header
	body   string
}

func (c *call) signedBody() []byte {
	if c.signs != nil {
		return c.signs
	}
	return c.body
}

// request builds the HTTP request of a call.
func (r *rig) request(ctx context.Context, c *call) *http.Request {
	r.t.Helper()
	q, err := http.NewRequestWithContext(ctx, c.method, r.server.URL+c.path, bytes.NewReader(c.body))
	require.NoError(r.t, err)
	q.Header = c.header.Clone()
	q.Header.Set("Content-Type", "application/json")
	if c.unsigned {
		return q
	}
	name := "x-byollm-runner"
	if c.role == wire.RoleSite {
		name = "x-byollm-site"
	}
	q.Header.Set(name, c.caller)
	q.Header.Set("x-byollm-issued-at", strconv.FormatInt(c.issuedAt, 10))
	q.Header.Set("x-byollm-signature", c.keys.SignRequest(c.endpoint, c.caller, c.issuedAt, c.signedBody()))
	if at := c.issuedText; at != "" {
		q.Header.Set("x-byollm-issued-at", at)
	}
	return q
}

// send sends a call and reads its answer whole.
func (r *rig) send(c *call) answered {
	r.t.Helper()
	a, err := r.try(r.t.Context(), c)
	require.NoError(r.t, err)
	return a
}

func (r *rig) try(ctx context.Context, c *call) (answered, error) {
	resp, err := r.client.Do(r.request(ctx, c))
	if err != nil {
		return answered{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return answered{resp.StatusCode, resp.Header, string(text)}, err
}

// ok sends a call that must be answered with 200, and reads the answer strictly: no member that T hasn't, none missing,
// none twice, no null.
func ok[T any](r *rig, c *call) T {
	r.t.Helper()
	a := r.send(c)
	require.Equal(r.t, http.StatusOK, a.status, a.body)
	return strict[T](r.t, a.body)
}

func strict[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	require.NotContains(t, text, "null")
	require.NoError(t, json.Unmarshal([]byte(text), &v, json.RejectUnknownMembers(true)), text)
	return v
}
