package poll_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pushrelay/hub"
	"pushrelay/hub/projection"
	"pushrelay/session"
	pushdaemon "pushrelay/session/daemon"
	"pushrelay/session/internal/pipe"
	"pushrelay/session/poll"
	pushsite "pushrelay/session/site"
	"pushrelay/store"
	"pushrelay/store/memory"
	"pushrelay/wire"
	"pushrelay/wire/seal"
)

// soak is a relay in fake time, with clients that poll and clients with sessions, whose connections are cut.
type soak struct {
	t      *testing.T
	keys   map[string]*seal.Keys
	store  *memory.Store
	pipes  *pipe.Listener
	client *http.Client

	mu    sync.Mutex
	conns []net.Conn
	runs  map[string]int // of each job, whoever ran it
	ends  map[string]string
	all   chan struct{}
	want  int

	broken int // connections that broke with a write, of maxBroken at most
}

const maxBroken = 60

// dial makes a connection that cut may close.
func (k *soak) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	c, s := net.Pipe()
	client, server := &frail{Conn: c, soak: k}, &frail{Conn: s, soak: k}
	if err := k.pipes.Hand(ctx, server, 1); err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.conns = append(k.conns, client, server)
	return client, nil
}

// frail is one end of a connection that now and then breaks with a write: nothing of it arrives, or a part, or nothing
// though it seems to.
type frail struct {
	net.Conn
	*soak
}

func (f *frail) Write(p []byte) (int, error) {
	if rand.IntN(100) != 0 || !f.breaks() {
		return f.Conn.Write(p)
	}
	defer f.Close()
	switch rand.IntN(3) {
	case 0:
		return len(p), nil
	case 1:
		n, _ := f.Conn.Write(p[:len(p)/2])
		return n, net.ErrClosed
	}
	return 0, net.ErrClosed
}

func (k *soak) breaks() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.broken++
	return k.broken <= maxBroken
}

// cut closes one end of some connection.
func (k *soak) cut() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if n := len(k.conns); n > 0 {
		i := rand.IntN(n)
		_ = k.conns[i].Close()
		k.conns = append(k.conns[:i], k.conns[i+1:]...)
	}
}

func (k *soak) ran(job string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.runs[job]++
}

// ended notes what became of a job; it may be told again, but not otherwise.
func (k *soak) ended(job, how string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if was, known := k.ends[job]; known {
		assert.Equal(k.t, was, how, job)
		return
	}
	if k.ends[job] = how; len(k.ends) == k.want {
		close(k.all)
	}
}

// ask sends a signed request; an error is a cut one.
func (k *soak) ask(ctx context.Context, who, role, method, endpoint, body string) (int, []byte, error) {
	path, header := "http://relay/byollm/"+endpoint, "X-Byollm-Runner"
	if role == wire.RoleSite {
		path, header, endpoint = "http://relay/relay/site/"+endpoint, "X-Byollm-Site", "site/"+endpoint
	}
	if method == http.MethodGet {
		path += "?siteId=" + who + "&protocolVersion=2"
	}
	q, err := http.NewRequestWithContext(ctx, method, path, bytes.NewReader([]byte(body)))
	if err != nil {
		return 0, nil, err
	}
	at := time.Now().UnixMilli()
	q.Header.Set(header, who)
	q.Header.Set("X-Byollm-Issued-At", strconv.FormatInt(at, 10))
	q.Header.Set("X-Byollm-Signature", k.keys[who].SignRequest(endpoint, who, at, []byte(body)))
	resp, err := k.client.Do(q)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, text, err
}

// insist sends a request until it is answered by somebody who isn't going away.
func (k *soak) insist(ctx context.Context, who, role, method, endpoint, body string) (int, []byte, error) {
	for {
		code, text, err := k.ask(ctx, who, role, method, endpoint, body)
		if err == nil && code < 500 || ctx.Err() != nil {
			return code, text, err
		}
		<-time.After(50 * time.Millisecond)
	}
}

const soakCapability = `[{"kind":"llm.generate","service":"s","backendId":"b","backendClass":"process","model":"m","offerScope":"private"}]`

// pollingDaemon does what the public one does, but for reporting until it is answered.
func (k *soak) pollingDaemon(ctx context.Context, name string) error {
	of := `{"protocolVersion":"2","runnerId":"` + name + `",`
	for ctx.Err() == nil {
		_, _, _ = k.ask(ctx, name, wire.RoleDaemon, "POST", "heartbeat", of+`"daemonVersion":"1","capabilities":`+soakCapability+`,"withheld":[],"activeLeases":[]}`)
		code, text, err := k.ask(ctx, name, wire.RoleDaemon, "POST", "claim", of+`"capabilities":`+soakCapability+`,"max":2}`)
		if err != nil || code != http.StatusOK {
			<-time.After(100 * time.Millisecond)
			continue
		}
		claimed, err := wire.ParseClaimResponse(wire.Dialect2, text)
		if err != nil {
			return err
		}
		if len(claimed.Jobs) == 0 { // it wasn't held, perhaps, for a grant whose answer was lost
			<-time.After(rand.N(time.Second))
		}
		for _, raw := range claimed.Jobs {
			j, err := wire.ParseClaimed(wire.Dialect2, raw)
			if err != nil {
				return err
			}
			if err := k.work(ctx, name, of, j); err != nil && ctx.Err() == nil {
				return fmt.Errorf("%s: %w", j.Stub.ID, err)
			}
		}
	}
	return nil
}

func (k *soak) work(ctx context.Context, name, of string, j wire.ClaimedJob) error {
	grant := fmt.Sprintf(`"jobId":%q,"leaseId":%q`, j.Stub.ID, j.Lease.ID)
	var env wire.Envelope
	for {
		code, text, err := k.insist(ctx, name, wire.RoleDaemon, "POST", "fetch", of+grant+"}")
		switch {
		case err != nil:
			return err
		case code == http.StatusOK:
			if env, err = wire.ParseFetchResponse(text); err != nil {
				return err
			}
		case code == http.StatusConflict && bytes.Contains(text, []byte("not-ready")):
			continue
		default:
			return nil // it is another's by now
		}
		break
	}
	from := "shop"
	if j.Stub.Site == k.keys["blog"].KeyID() {
		from = "blog"
	}
	plain, err := seal.Open(k.keys[name], k.keys[from].Public(), seal.Expected{JobID: j.Stub.ID, Direction: wire.DirectionPayload}, env)
	if err != nil {
		return err
	}
	prompt, err := seal.ParseGenerate(plain)
	if err != nil {
		return err
	}
	k.ran(j.Stub.ID)
	<-time.After(rand.N(100 * time.Millisecond))
	if plain, err = (seal.Result{Outcome: seal.OK(prompt.Prompt + "!"), Ran: seal.Ran{Model: "m", BackendClass: "process"}}).Encode(); err != nil {
		return err
	}
	env, err = seal.Seal(k.keys[name], k.keys[from].Public(), seal.Context{JobID: j.Stub.ID, Direction: wire.DirectionResult, DeadlineAt: j.Stub.DeadlineAt}, plain)
	if err != nil {
		return err
	}
	code, text, err := k.insist(ctx, name, wire.RoleDaemon, "POST", "result", fmt.Sprintf(`%s%s,"envelope":%s,"disposition":"ok"}`, of, grant, env.Raw))
	if err == nil && code != http.StatusOK {
		return fmt.Errorf("result: %d %s", code, text)
	}
	return err
}

// pollingSite pumps as the public one does.
func (k *soak) pollingSite(ctx context.Context, name string) error {
	for ctx.Err() == nil {
		code, text, err := k.ask(ctx, name, wire.RoleSite, "GET", "pending", "")
		if err != nil || code != http.StatusOK {
			<-time.After(50 * time.Millisecond)
			continue
		}
		pending, err := wire.ParsePendingResponse(text)
		if err != nil {
			return err
		}
		for _, j := range pending.Jobs {
			plain, err := seal.GeneratePayload{Prompt: j.JobID}.Encode()
			if err != nil {
				return err
			}
			to := seal.Context{JobID: j.JobID, Direction: wire.DirectionPayload, DeadlineAt: time.Now().Add(24 * time.Hour).UnixMilli()}
			env, err := seal.Seal(k.keys[name], j.Device, to, plain)
			if err != nil {
				return err
			}
			_, _, _ = k.insist(ctx, name, wire.RoleSite, "POST", "payload", string(wire.AppendPayloadRequest(nil, wire.Dialect2, name, j.JobID, env.Raw)))
		}
		code, text, err = k.ask(ctx, name, wire.RoleSite, "GET", "results", "")
		if err != nil || code != http.StatusOK {
			continue
		}
		results, err := wire.ParseResultsResponse(text)
		if err != nil {
			return err
		}
		for _, j := range results.Jobs {
			env, err := wire.ParseEnvelope(j.Envelope)
			if err != nil {
				return err
			}
			plain, err := seal.Open(k.keys[name], j.Device, seal.Expected{JobID: j.JobID, Direction: wire.DirectionResult}, env)
			if err != nil {
				return err
			}
			got, err := seal.ParseResult(plain)
			if err != nil {
				return err
			}
			k.ended(j.JobID, got.Outcome.Text)
		}
	}
	return nil
}

func (k *soak) publish(ctx context.Context, name, owner, id string) error {
	stub := wire.AppendStub(nil, wire.Stub{
		ID: id, Kind: "llm.generate", Owner: owner, Site: k.keys[name].KeyID(), Audience: "private", SizeClass: "small",
		DeadlineAt: time.Now().Add(time.Hour).UnixMilli(),
	})
	code, text, err := k.insist(ctx, name, wire.RoleSite, "POST", "enqueue", string(wire.AppendEnqueueRequest(nil, wire.Dialect2, name, stub)))
	if err == nil && code != http.StatusOK {
		return fmt.Errorf("enqueue: %d %s", code, text)
	}
	return err
}

// counting runs jobs for a daemon with a session.
type counting struct{ *soak }

func (c counting) Run(ctx context.Context, j pushdaemon.Job) (pushdaemon.Answer, error) {
	c.ran(j.Prompt.Text)
	select {
	case <-time.After(rand.N(100 * time.Millisecond)):
	case <-ctx.Done():
		return pushdaemon.Answer{}, ctx.Err()
	}
	return pushdaemon.Answer{Text: j.Prompt.Text + "!"}, nil
}

// Polls and sessions on both sides, and cuts wherever they hurt: each job runs once, and ends with its one result.
func TestSoak(t *testing.T) {
	const jobs = 60 // of each site
	synctest.Test(t, func(t *testing.T) {
		k := &soak{
			t: t, keys: map[string]*seal.Keys{}, store: memory.New(memory.Options{}), pipes: pipe.New(),
			runs: map[string]int{}, ends: map[string]string{}, all: make(chan struct{}), want: 2 * jobs,
		}
		for _, name := range []string{"shop", "blog", "d1", "d2", "d3", "d4"} {
			var err error
			k.keys[name], err = seal.Generate(nil)
			require.NoError(t, err)
		}
		e := new(projection.Example).Site("shop", k.keys["shop"].Public()).Site("blog", k.keys["blog"].Public())
		for i, name := range []string{"d1", "d2", "d3", "d4"} { // ada's and bob's; of each one polls
			e.Device([]string{"ada", "bob"}[i/2], name, k.keys[name].Public())
		}
		for _, owner := range []string{"ada", "bob"} {
			e.Consent(owner, "shop").Consent(owner, "blog")
		}
		raw, err := e.Marshal()
		require.NoError(t, err)
		p, err := projection.Parse(raw)
		require.NoError(t, err)
		h, err := hub.New(hub.Config{Store: k.store, Projection: projection.NewHolder(p), Log: zerolog.Nop(), RelayVersion: "test"})
		require.NoError(t, err)
		planes, err := poll.New(poll.Options{
			Hub: h, Budget: session.NewBudget(session.DefaultBudget), HoldClaim: 15 * time.Second, HoldFetch: 20 * time.Second, HoldPending: 5 * time.Second,
		})
		require.NoError(t, err)
		sessions, err := session.NewServer(session.ServerConfig{Opener: h, Directory: h, PublicURLs: []string{"http://relay"}, Version: "test", Log: zerolog.Nop()})
		require.NoError(t, err)
		mux := http.NewServeMux()
		mux.Handle("GET "+wire.DaemonPath, sessions.Handler(wire.RoleDaemon))
		mux.Handle("GET "+wire.SitePath, sessions.Handler(wire.RoleSite))
		mux.Handle("/", planes)
		srv := &http.Server{Handler: mux}
		transport := &http.Transport{DialContext: k.dial, MaxIdleConnsPerHost: 64}
		k.client = &http.Client{Transport: transport}

		ctx, stop := context.WithCancel(t.Context())
		hubs, stopHub := context.WithCancel(t.Context())
		var parties, relay sync.WaitGroup
		goes := func(of *sync.WaitGroup, ctx context.Context, f func(ctx context.Context) error) {
			of.Go(func() {
				if err := f(ctx); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			})
		}
		goes(&relay, hubs, h.Run)
		relay.Go(func() {
			if err := srv.Serve(k.pipes); !errors.Is(err, http.ErrServerClosed) {
				t.Error(err)
			}
		})
		for range 2 {
			goes(&parties, ctx, func(ctx context.Context) error { return k.pollingSite(ctx, "shop") })
		}
		for _, name := range []string{"d1", "d3"} {
			goes(&parties, ctx, func(ctx context.Context) error { return k.pollingDaemon(ctx, name) })
		}
		caps, err := wire.ParseCapabilities(wire.Dialect2, []byte(soakCapability))
		require.NoError(t, err)
		for _, name := range []string{"d2", "d4"} {
			d, err := pushdaemon.New(pushdaemon.Config{
				URL: "http://relay", RunnerID: name, Keys: k.keys[name], StateDir: t.TempDir(), Run: counting{k}, Log: zerolog.Nop(), Slots: 2,
				Capabilities: caps, Transport: transport,
			})
			require.NoError(t, err)
			goes(&parties, ctx, d.Run)
		}
		blog, err := pushsite.New(pushsite.Config{
			URL: "http://relay", SiteID: "blog", Keys: k.keys["blog"], Log: zerolog.Nop(), Transport: transport,
			OnResult: func(_ context.Context, r pushsite.Result) error {
				if r.Err != nil {
					t.Error(r.Err)
				}
				k.ended(r.JobID, r.Outcome.Text)
				return nil
			},
			OnNotice: func(_ context.Context, n pushsite.Notice) error {
				k.ended(n.JobID, n.Why)
				return nil
			},
		})
		require.NoError(t, err)
		goes(&parties, ctx, blog.Run)

		publishing := func(ctx context.Context, site string, publish func(id, owner string) error) {
			goes(&parties, ctx, func(context.Context) error {
				for i := range jobs {
					if err := publish(fmt.Sprint(site, i), []string{"ada", "bob"}[i%2]); err != nil {
						return err
					}
					<-time.After(rand.N(200 * time.Millisecond))
				}
				return nil
			})
		}
		publishing(ctx, "shop", func(id, owner string) error { return k.publish(ctx, "shop", owner, id) })
		publishing(ctx, "blog", func(id, owner string) error {
			text, err := seal.GeneratePayload{Prompt: id}.Encode()
			if err != nil {
				return err
			}
			return blog.Submit(ctx, pushsite.Job{
				ID: id, Kind: pushsite.KindGenerate, Owner: owner, Audience: "private", Deadline: time.Now().Add(time.Hour), Payload: text,
			})[0].Err
		})
		goes(&parties, ctx, func(ctx context.Context) error {
			for range 150 {
				<-time.After(rand.N(100 * time.Millisecond))
				k.cut()
			}
			return nil
		})
		select {
		case <-k.all:
		case <-time.After(20 * time.Minute):
		}
		stop()
		transport.CloseIdleConnections()
		for range 200 { // so that whatever is held is over
			k.cut()
		}
		parties.Wait()
		transport.CloseIdleConnections()
		require.NoError(t, sessions.Close(context.Background()))
		require.NoError(t, srv.Close())
		stopHub()
		relay.Wait()
		k.check(2 * jobs)
		require.NoError(t, k.store.Close())
	})
}

func (k *soak) check(jobs int) {
	k.t.Helper()
	assert.Len(k.t, k.ends, jobs)
	for job, how := range k.ends {
		if how == string(store.WhyUnsealed) { // its site was cut each time when it had to seal
			assert.Zero(k.t, k.runs[job], job)
			continue
		}
		assert.Equal(k.t, job+"!", how)
		if k.runs[job] != 1 { // a lease that ends because its daemon was cut off for so long is the one good reason
			j, err := k.store.Job(k.t.Context(), job[:4], job)
			require.NoError(k.t, err)
			assert.Equal(k.t, 1+j.Lapses, k.runs[job], job)
		}
	}
	stats, err := k.store.Stats(k.t.Context())
	require.NoError(k.t, err)
	for state, n := range stats.ByState {
		assert.True(k.t, state == store.Done || n == 0, "%d jobs are still %s", n, state)
	}
}
