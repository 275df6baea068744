package grants

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pushrelay/wire"
)

// plane is a control plane in memory.
type plane struct {
	private ed25519.PrivateKey
	now     func() time.Time

	mu      sync.Mutex
	asked   [][]string // lease ids of each request
	running int
	most    int
	// answer changes what a job gets; nil signs everything.
	answer func(a *wire.GrantAnswer, j *wire.GrantJob)
	hold   chan struct{} // not nil: requests wait for it or for their end
	err    error
	ids    int
	delay  time.Duration
}

func newPlane(t testing.TB) *plane {
	t.Helper()
	_, private, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	return &plane{private: private, now: time.Now}
}

func (p *plane) key() ed25519.PublicKey { return p.private.Public().(ed25519.PublicKey) }

func (p *plane) sign(g *wire.SignedGrant) {
	g.Signature = wire.EncodeBase64(ed25519.Sign(p.private, g.Statement()))
}

// grant signs what fits the job.
func (p *plane) grant(r *wire.GrantRunner, j *wire.GrantJob) *wire.SignedGrant {
	p.ids++
	g := &wire.SignedGrant{
		GrantID: fmt.Sprintf("grant_%d", p.ids), JobID: j.Stub.ID, Site: j.Stub.Site, User: j.Stub.Owner, Owner: r.Owner,
		Purpose: wire.DefaultPurpose, Kind: j.Stub.Kind, Service: r.Capabilities[0].Service, IssuedAt: p.now().UnixMilli(),
	}
	p.sign(g)
	return g
}

func (p *plane) Ask(ctx context.Context, runners []*wire.GrantRunner) ([]wire.GrantAnswer, error) {
	p.mu.Lock()
	var leases []string
	var out []wire.GrantAnswer
	for _, r := range runners {
		for i := range r.Jobs {
			j := &r.Jobs[i]
			leases = append(leases, j.LeaseID)
			a := wire.GrantAnswer{LeaseID: j.LeaseID, Grant: p.grant(r, j)}
			if p.answer != nil {
				p.answer(&a, j)
			}
			if a.LeaseID != "" {
				out = append(out, a)
			}
		}
	}
	p.asked = append(p.asked, leases)
	p.running++
	p.most = max(p.most, p.running)
	hold, err, delay := p.hold, p.err, p.delay
	p.mu.Unlock()
	<-time.After(delay)
	defer func() {
		p.mu.Lock()
		p.running--
		p.mu.Unlock()
	}()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return out, err
}

func (p *plane) requests() [][]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([][]string{}, p.asked...)
}

func runnerOf(name string, leases ...string) *wire.GrantRunner {
	r := &wire.GrantRunner{
		RunnerID: name, Owner: "bob", KeyID: "BYOLLM-D",
		Capabilities: []wire.Capability{{Kind: "llm.generate", Service: "svc", BackendID: "b", BackendClass: "http", Model: "m", OfferScope: "team"}},
	}
	for _, l := range leases {
		s := &wire.Stub{ID: "job-" + l, Kind: "llm.generate", Owner: "alice", Site: "BYOLLM-S", Audience: "team", SizeClass: "small", DeadlineAt: 1}
		s.Raw = wire.AppendStub(nil, *s)
		r.Jobs = append(r.Jobs, wire.GrantJob{LeaseID: l, SiteID: "site", Stub: s})
	}
	return r
}

// tally counts outcomes.
type tally struct {
	mu sync.Mutex
	n  map[Outcome]int
}

func (c *tally) told(o Outcome, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[Outcome]int{}
	}
	c.n[o] += n
}

func (c *tally) of(o Outcome) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[o]
}

// inBubble runs f with an Asker in front of p, in a bubble of synctest.
func inBubble(t *testing.T, change func(*Config), f func(t *testing.T, p *plane, a *Asker, c *tally)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p, c := newPlane(t), &tally{}
		cfg := Config{Endpoint: p, Key: p.key(), Now: time.Now, Told: c.told}
		if change != nil {
			change(&cfg)
		}
		a, err := New(cfg)
		require.NoError(t, err)
		defer a.Close()
		f(t, p, a, c)
	})
}

// answer asks and waits.
func answer(a *Asker, r *wire.GrantRunner) []Verdict {
	answer := make(chan []Verdict, 1)
	a.Submit(r, func(v []Verdict) { answer <- v })
	return <-answer
}

func TestGoodGrantsPass(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *plane, a *Asker, c *tally) {
		got := answer(a, runnerOf("r", "l1", "l2"))
		require.Len(t, got, 2)
		for i, v := range got {
			require.NotNil(t, v.Grant)
			assert.Equal(t, fmt.Sprintf("job-l%d", i+1), v.Grant.JobID, "verdicts are in the order of the jobs")
			assert.False(t, v.Never)
		}
		assert.Equal(t, 2, c.of(Signed))
		assert.True(t, a.Open())
	})
}

// Whatever is wrong with one answer declines that job for now, and no other.
func TestWorthlessAnswersFailClosed(t *testing.T) {
	old := func(by time.Duration) func(p *plane, a *wire.GrantAnswer) {
		return func(p *plane, a *wire.GrantAnswer) {
			a.Grant.IssuedAt = p.now().Add(-by).UnixMilli()
			p.sign(a.Grant)
		}
	}
	resigned := func(change func(g *wire.SignedGrant)) func(p *plane, a *wire.GrantAnswer) {
		return func(p *plane, a *wire.GrantAnswer) {
			change(a.Grant)
			p.sign(a.Grant)
		}
	}
	for name, c := range map[string]struct {
		spoil func(p *plane, a *wire.GrantAnswer)
		want  Outcome
		never bool
	}{
		"not signed":         {func(_ *plane, a *wire.GrantAnswer) { a.Grant.Signature = "x" }, Invalid, false},
		"signed by others":   {func(_ *plane, a *wire.GrantAnswer) { newPlane(t).sign(a.Grant) }, Invalid, false},
		"changed afterwards": {func(_ *plane, a *wire.GrantAnswer) { a.Grant.GrantID += "x" }, Invalid, false},
		"another job's":      {resigned(func(g *wire.SignedGrant) { g.JobID = "job-l2" }), Invalid, false},
		"another site's":     {resigned(func(g *wire.SignedGrant) { g.Site = "BYOLLM-T" }), Invalid, false},
		"another person's":   {resigned(func(g *wire.SignedGrant) { g.User = "carol" }), Invalid, false},
		"another owner's":    {resigned(func(g *wire.SignedGrant) { g.Owner = "alice" }), Invalid, false},
		"another kind":       {resigned(func(g *wire.SignedGrant) { g.Kind = "llm.chat" }), Invalid, false},
		"another purpose":    {resigned(func(g *wire.SignedGrant) { g.Purpose = "drafting" }), Invalid, false},
		"no such service":    {resigned(func(g *wire.SignedGrant) { g.Service = "other" }), Invalid, false},
		"over 90 s old":      {old(90_001 * time.Millisecond), Invalid, false},
		"90 s old":           {old(90 * time.Second), Signed, false},
		"30 s ahead":         {old(-30 * time.Second), Signed, false},
		"further ahead":      {old(-30_001 * time.Millisecond), Invalid, false},
		"unreadable":         {func(_ *plane, a *wire.GrantAnswer) { a.Grant, a.Err = nil, wire.BadRequest("no") }, Invalid, false},
		"none":               {func(_ *plane, a *wire.GrantAnswer) { a.LeaseID = "" }, Failed, false},
		"for a strange lease": {func(_ *plane, a *wire.GrantAnswer) {
			a.LeaseID = "l9"
		}, Failed, false},
		"declined": {func(_ *plane, a *wire.GrantAnswer) { a.Grant, a.Decline = nil, wire.DeclineTemporary }, Declined, false},
		"never":    {func(_ *plane, a *wire.GrantAnswer) { a.Grant, a.Decline = nil, wire.DeclinePermanent }, Forbidden, true},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			inBubble(t, func(cfg *Config) { cfg.Log = zerolog.New(&log) }, func(t *testing.T, p *plane, a *Asker, n *tally) {
				p.answer = func(answer *wire.GrantAnswer, j *wire.GrantJob) {
					if j.LeaseID == "l1" {
						c.spoil(p, answer)
					}
				}
				got := answer(a, runnerOf("r", "l1", "l2"))
				require.Len(t, got, 2)
				assert.Equal(t, c.want == Signed, got[0].Grant != nil)
				assert.Equal(t, c.never, got[0].Never)
				assert.NotNil(t, got[1].Grant, "the other job")
				if c.want == Signed {
					assert.Equal(t, 2, n.of(Signed))
				} else {
					assert.Equal(t, 1, n.of(c.want))
				}
				assert.Equal(t, c.want == Invalid, strings.Contains(log.String(), "grant-invalid"))
				assert.True(t, a.Open(), "the endpoint works")
			})
		})
	}
}

// A wrong key makes every grant worthless: one line tells it, not one for each job.
func TestWorthlessGrantsDontFloodTheLog(t *testing.T) {
	var log bytes.Buffer
	inBubble(t, func(cfg *Config) { cfg.Log, cfg.Key = zerolog.New(&log), newPlane(t).key() }, func(t *testing.T, _ *plane, a *Asker, c *tally) {
		for i := range 100 {
			answer(a, runnerOf("r", fmt.Sprint(i)))
		}
		assert.Equal(t, 100, c.of(Invalid))
		assert.Equal(t, 1, strings.Count(log.String(), "grant-invalid"))
		<-time.After(warnEvery)
		answer(a, runnerOf("r", "last"))
		assert.Equal(t, 2, strings.Count(log.String(), "grant-invalid"))
	})
}

// While all places are taken, what comes shares the next requests.
func TestQuestionsShareRequests(t *testing.T) {
	inBubble(t, func(cfg *Config) { cfg.Parallel = 2 }, func(t *testing.T, p *plane, a *Asker, c *tally) {
		p.hold = make(chan struct{})
		var done sync.WaitGroup
		for i := range 100 {
			done.Add(1)
			a.Submit(runnerOf(fmt.Sprint("r", i), fmt.Sprint("l", i)), func(v []Verdict) {
				assert.NotNil(t, v[0].Grant)
				done.Done()
			})
		}
		synctest.Wait()
		close(p.hold)
		done.Wait()
		sizes := []int{}
		for _, r := range p.requests() {
			sizes = append(sizes, len(r))
			assert.LessOrEqual(t, len(r), wire.MaxGrantJobs)
		}
		assert.LessOrEqual(t, len(sizes), 5, "%v", sizes)
		assert.LessOrEqual(t, p.most, 2)
		assert.Equal(t, 100, c.of(Signed))
	})
}

// A claim is never cut in two, and no request holds more than fits.
func TestClaimsStayWhole(t *testing.T) {
	inBubble(t, func(cfg *Config) { cfg.Parallel = 1 }, func(t *testing.T, p *plane, a *Asker, c *tally) {
		p.hold = make(chan struct{})
		var done sync.WaitGroup
		for i := range 5 {
			var leases []string
			for k := range 40 {
				leases = append(leases, fmt.Sprint(i, "-", k))
			}
			done.Add(1)
			a.Submit(runnerOf(fmt.Sprint("r", i), leases...), func([]Verdict) { done.Done() })
		}
		close(p.hold)
		done.Wait()
		for _, r := range p.requests() {
			assert.Len(t, r, 40)
		}
		assert.Equal(t, 200, c.of(Signed))
	})
}

// An endpoint that doesn't answer declines everybody in time, however many wait.
func TestASilentEndpointDeclinesInTime(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *plane, a *Asker, c *tally) {
		p.hold = make(chan struct{}) // never closed
		began := time.Now()
		var done sync.WaitGroup
		var longest time.Duration
		var mu sync.Mutex
		for i := range 5_000 {
			done.Add(1)
			a.Submit(runnerOf(fmt.Sprint("r", i), fmt.Sprint("l", i)), func(v []Verdict) {
				defer done.Done()
				assert.Equal(t, []Verdict{{}}, v)
				mu.Lock()
				defer mu.Unlock()
				longest = max(longest, time.Since(began))
			})
		}
		done.Wait()
		assert.LessOrEqual(t, longest, a.Within())
		assert.LessOrEqual(t, p.most, 8)
		assert.Equal(t, 5_000, c.of(Failed))
		assert.False(t, a.Open())
	})
}

// Nor does one that answers, but slowly, keep anybody waiting longer: what can't be asked in time isn't asked.
func TestASlowEndpointDeclinesTheRest(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *plane, a *Asker, c *tally) {
		p.delay = 1900 * time.Millisecond
		began := time.Now()
		var done sync.WaitGroup
		var longest time.Duration
		var mu sync.Mutex
		for i := range 5_000 {
			done.Add(1)
			a.Submit(runnerOf(fmt.Sprint("r", i), fmt.Sprint("l", i)), func([]Verdict) {
				defer done.Done()
				mu.Lock()
				defer mu.Unlock()
				longest = max(longest, time.Since(began))
			})
		}
		done.Wait()
		assert.LessOrEqual(t, longest, a.Within())
		assert.Positive(t, c.of(Signed))
		assert.Positive(t, c.of(Failed))
		assert.Equal(t, 5_000, c.of(Signed)+c.of(Failed))
		assert.True(t, a.Open(), "it works")
	})
}

// Failures shut the endpoint for longer and longer; the first success opens it.
func TestAFailingEndpointIsAskedSeldom(t *testing.T) {
	var log bytes.Buffer
	var again chan struct{}
	change := func(cfg *Config) {
		again = make(chan struct{}, 100) // within the bubble
		cfg.Log, cfg.Again = zerolog.New(&log), func() { again <- struct{}{} }
	}
	inBubble(t, change, func(t *testing.T, p *plane, a *Asker, c *tally) {
		p.err = errors.New("down")
		began := time.Now()
		for time.Since(began) < 5*time.Minute {
			answer(a, runnerOf("r", "l"))
			assert.False(t, a.Open())
			before := len(p.requests())
			answer(a, runnerOf("r", "l"))
			assert.Len(t, p.requests(), before, "not asked while it is shut")
			<-again
			assert.True(t, a.Open())
		}
		assert.Less(t, len(p.requests()), 60)
		assert.Equal(t, 1, strings.Count(log.String(), "grants-failing"))
		p.mu.Lock()
		p.err = nil
		p.mu.Unlock()
		assert.NotNil(t, answer(a, runnerOf("r", "l"))[0].Grant)
		assert.Contains(t, log.String(), "grants-working")
		p.mu.Lock()
		p.err = errors.New("down again")
		p.mu.Unlock()
		answer(a, runnerOf("r", "l"))
		at := time.Now()
		<-again
		assert.LessOrEqual(t, time.Since(at), shutFirst, "patience begins anew")
	})
}

// Whoever waits at the end is told: a polled claim waits for it.
func TestCloseDeclinesWhatWaits(t *testing.T) {
	inBubble(t, func(cfg *Config) { cfg.Parallel = 1 }, func(t *testing.T, p *plane, a *Asker, _ *tally) {
		p.hold = make(chan struct{})
		var told sync.WaitGroup
		for i := range 3 {
			told.Add(1)
			a.Submit(runnerOf("r", fmt.Sprint(i)), func(v []Verdict) {
				assert.Equal(t, []Verdict{{}}, v)
				told.Done()
			})
		}
		synctest.Wait()
		a.Close()
		told.Wait()
		assert.Equal(t, []Verdict{{}}, answer(a, runnerOf("r", "late")))
		a.Close()
		assert.Len(t, p.requests(), 1)
	})
}

func TestNewAsksForWhatItNeeds(t *testing.T) {
	p := newPlane(t)
	for name, cfg := range map[string]Config{
		"no endpoint": {Key: p.key(), Now: time.Now},
		"no key":      {Endpoint: p, Now: time.Now},
		"short key":   {Endpoint: p, Key: p.key()[:31], Now: time.Now},
		"no clock":    {Endpoint: p, Key: p.key()},
	} {
		_, err := New(cfg)
		assert.Error(t, err, name)
	}
}

func TestOutcomesHaveNames(t *testing.T) {
	seen := map[string]bool{"unknown": true}
	for _, o := range Outcomes() {
		assert.False(t, seen[o.String()])
		seen[o.String()] = true
	}
	assert.Equal(t, "unknown", Outcome(99).String())
	assert.Len(t, Outcomes(), int(outcomes))
}
