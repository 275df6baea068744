package daemon

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pushrelay/session/internal/fake"
	"pushrelay/wire"
)

// grantWorld is a daemon of "owner" that takes jobs with grants of plane only.
type grantWorld struct {
	*world
	plane ed25519.PrivateKey
	run   *echo
	next  int
}

// inGrantWorld runs f in a bubble.
func inGrantWorld(t *testing.T, tweak func(*Config), f func(w *grantWorld)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		public, private, err := ed25519.GenerateKey(nil)
		require.NoError(t, err)
		w := &grantWorld{plane: private, run: &echo{}}
		w.world = newWorld(t, w.run, func(c *Config) {
			c.ControlPlane, c.Owner = public, "owner"
			c.Capabilities = append(c.Capabilities, wire.Capability{
				Kind: KindGenerate, BackendID: "fake", BackendClass: "process", Service: "shared", Model: "m2", OfferScope: "team",
			})
			if tweak != nil {
				tweak(c)
			}
		})
		f(w)
	})
}

// signed is a new grant for a stub.
func (w *grantWorld) signed(s *wire.Stub, change func(g *wire.SignedGrant)) *wire.SignedGrant {
	w.next++
	g := &wire.SignedGrant{
		GrantID: fmt.Sprint("grant-", w.next), JobID: s.ID, Site: s.Site, User: s.Owner, Owner: "owner", Purpose: wire.DefaultPurpose, Kind: s.Kind,
		Service: "fake", IssuedAt: time.Now().UnixMilli(),
	}
	if change != nil {
		change(g)
	}
	g.Signature = wire.EncodeBase64(ed25519.Sign(w.plane, g.Statement()))
	return g
}

// push1 offers one job, whose lease is named.
func (w *grantWorld) push1(s wire.Stub, lease string, g *wire.SignedGrant) {
	w.t.Helper()
	s.Raw = wire.AppendStub(nil, s)
	w.push(wire.AppendClaimed(nil, []wire.ClaimedJob{{
		Stub: &s, Lease: wire.ClaimLease{ID: lease, RunnerID: "runner", ExpiresAt: testDeadline}, Grant: g,
	}}, 60_000))
	synctest.Wait()
}

func (w *grantWorld) accepted() []wire.Grant {
	var out []wire.Grant
	for _, f := range fake.Sent[wire.Grants](w.t, w.conn, wire.TypeAccept) {
		out = append(out, f.Grants...)
	}
	return out
}

// verdict answers the reason with which the job a was given back; "" when it was accepted.
func (w *grantWorld) verdict() string {
	w.t.Helper()
	if len(w.accepted()) > 0 {
		require.Equal(w.t, []wire.Grant{grant("a")}, w.accepted())
		require.Empty(w.t, w.released())
		return ""
	}
	require.Len(w.t, w.released(), 1)
	for reason, grants := range w.released() {
		require.Equal(w.t, []wire.Grant{grant("a")}, grants)
		return reason
	}
	return ""
}

func TestGrantsDecide(t *testing.T) {
	service := func(name string) func(g *wire.SignedGrant) { return func(g *wire.SignedGrant) { g.Service = name } }
	others := func(s *wire.Stub) { s.Owner, s.Audience = "friend", "team" }
	age := func(d time.Duration) func(g *wire.SignedGrant) {
		return func(g *wire.SignedGrant) { g.IssuedAt = time.Now().Add(-d).UnixMilli() }
	}
	for name, c := range map[string]struct {
		stub   func(s *wire.Stub)
		grant  func(g *wire.SignedGrant)
		after  func(g *wire.SignedGrant) // it was signed
		reason string
	}{
		"its owner's":                    {},
		"its owner's, private":           {stub: func(s *wire.Stub) { s.Audience = "private" }},
		"a friend's, on a shared one":    {stub: others, grant: service("shared")},
		"a friend's, on a private one":   {stub: others, grant: service("fake"), reason: wire.ReleaseRefused},
		"a friend's, private":            {stub: func(s *wire.Stub) { s.Owner = "friend" }, grant: service("shared"), reason: wire.ReleaseRefused},
		"a service that isn't there":     {grant: service("other"), reason: wire.ReleaseRefused},
		"a service for another kind":     {stub: func(s *wire.Stub) { s.Kind = KindChat }, grant: service("shared"), reason: wire.ReleaseRefused},
		"another job's":                  {grant: func(g *wire.SignedGrant) { g.JobID = "b" }, reason: wire.ReleaseRefused},
		"another site's":                 {grant: func(g *wire.SignedGrant) { g.Site = "BYOLLM-X" }, reason: wire.ReleaseRefused},
		"another owner's device":         {grant: func(g *wire.SignedGrant) { g.Owner = "friend" }, reason: wire.ReleaseRefused},
		"another person's job":           {stub: others, grant: func(g *wire.SignedGrant) { g.User = "owner" }, reason: wire.ReleaseRefused},
		"another purpose":                {grant: func(g *wire.SignedGrant) { g.Purpose = "drafting" }, reason: wire.ReleaseRefused},
		"the stub's purpose":             {stub: func(s *wire.Stub) { s.Purpose = "drafting" }, grant: func(g *wire.SignedGrant) { g.Purpose = "drafting" }},
		"changed after it was signed":    {after: func(g *wire.SignedGrant) { g.GrantID += "x" }, reason: wire.ReleaseRefused},
		"two minutes old":                {grant: age(2 * time.Minute)},
		"older":                          {grant: age(2*time.Minute + time.Second), reason: wire.ReleaseBackendDown},
		"half a minute ahead":            {grant: age(-30 * time.Second)},
		"further ahead":                  {grant: age(-31 * time.Second), reason: wire.ReleaseBackendDown},
		"of the old, and another's: no ": {grant: func(g *wire.SignedGrant) { age(time.Hour)(g); g.Owner = "friend" }, reason: wire.ReleaseRefused},
	} {
		t.Run(name, func(t *testing.T) {
			inGrantWorld(t, nil, func(w *grantWorld) {
				s := w.stub("a")
				if c.stub != nil {
					c.stub(&s)
				}
				g := w.signed(&s, c.grant)
				if c.after != nil {
					c.after(g)
				}
				w.push1(s, "lease-a", g)
				assert.Equal(t, c.reason, w.verdict())
			})
		})
	}
	t.Run("none", func(t *testing.T) {
		inGrantWorld(t, nil, func(w *grantWorld) {
			w.push1(w.stub("a"), "lease-a", nil)
			assert.Equal(t, wire.ReleaseRefused, w.verdict())
		})
	})
	t.Run("signed by somebody else", func(t *testing.T) {
		inGrantWorld(t, nil, func(w *grantWorld) {
			_, w.plane, _ = ed25519.GenerateKey(nil)
			s := w.stub("a")
			w.push1(s, "lease-a", w.signed(&s, nil))
			assert.Equal(t, wire.ReleaseRefused, w.verdict())
		})
	})
}

func TestWithoutAKeyTheOwnerDecides(t *testing.T) {
	for name, c := range map[string]struct{ owner, reason string }{
		"its own":      {"friend", ""},
		"another's":    {"owner", wire.ReleaseRefused},
		"the relay's ": {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			inGrantWorld(t, func(cfg *Config) { cfg.ControlPlane, cfg.Owner = nil, c.owner }, func(w *grantWorld) {
				s := w.stub("a")
				s.Owner, s.Audience = "friend", "team"
				w.push1(s, "lease-a", w.signed(&s, func(g *wire.SignedGrant) { g.Signature = "not looked at" }))
				assert.Equal(t, c.reason, w.verdict())
			})
		})
	}
}

// The service that the control plane picked is the one that runs the job, and that the result names.
func TestTheGrantsServiceRuns(t *testing.T) {
	inGrantWorld(t, nil, func(w *grantWorld) {
		var service string
		w.d.cfg.Run = runnerFunc(func(_ context.Context, j Job) (Answer, error) {
			service = j.Service
			return Answer{Text: "done"}, nil
		})
		s := w.stub("a")
		w.push1(s, "lease-a", w.signed(&s, func(g *wire.SignedGrant) { g.Service = "shared" }))
		w.push(payloadFrame(grant("a"), w.sealed("a", "x")))
		synctest.Wait()
		assert.Equal(t, "shared", service)
		require.Len(t, w.results(), 1)
	})
}

func TestAGrantIsTakenOnce(t *testing.T) {
	again := wire.Grant{JobID: "a", LeaseID: "second"}
	for name, meanwhile := range map[string]func(w *grantWorld){
		"in one process": func(*grantWorld) {},
		"in another session": func(w *grantWorld) {
			w.cut()
			w.connect(newFakeConn("s2"))
		},
		"after a crash": func(w *grantWorld) {
			w.kill()
			w.start(w.run)
			w.connect(newFakeConn("s2"))
		},
		"after the torn end of a line": func(w *grantWorld) {
			w.kill()
			f, err := os.OpenFile(filepath.Join(w.dir, spentName), os.O_APPEND|os.O_WRONLY, 0)
			require.NoError(w.t, err)
			_, err = f.WriteString(`{"grantId":"gra`)
			require.NoError(w.t, err)
			require.NoError(w.t, f.Close())
			w.start(w.run)
			w.connect(newFakeConn("s2"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inGrantWorld(t, nil, func(w *grantWorld) {
				s := w.stub("a")
				g := w.signed(&s, nil)
				w.push1(s, "lease-a", g)
				require.Equal(t, []wire.Grant{grant("a")}, w.accepted())
				w.d.lose([]wire.Grant{grant("a")}, wire.LostLapsed)
				meanwhile(w)
				w.push1(s, again.LeaseID, g)
				assert.Equal(t, map[string][]wire.Grant{wire.ReleaseRefused: {again}}, w.released())
				fresh := w.signed(&s, nil)
				w.push1(s, "third", fresh)
				assert.Contains(t, w.accepted(), wire.Grant{JobID: "a", LeaseID: "third"}, "the next grant for the job is as good as any")
			})
		})
	}
}

// A second copy of an offer isn't a second use of its grant.
func TestACopyOfAnOfferIsNoReuse(t *testing.T) {
	inGrantWorld(t, nil, func(w *grantWorld) {
		s := w.stub("a")
		g := w.signed(&s, nil)
		w.push1(s, "lease-a", g)
		w.push1(s, "lease-a", g)
		assert.Equal(t, []wire.Grant{grant("a")}, w.accepted())
		assert.Empty(t, w.released())
	})
}

// Two offers with one grant at once: one of them is accepted.
func TestTheSameGrantTwiceAtOnce(t *testing.T) {
	inGrantWorld(t, nil, func(w *grantWorld) {
		a, b := w.stub("a"), w.stub("a")
		b.Owner = a.Owner
		g := w.signed(&a, nil)
		a.Raw = wire.AppendStub(nil, a)
		var jobs []wire.ClaimedJob
		for _, lease := range []string{"l1", "l2", "l3"} {
			jobs = append(jobs, wire.ClaimedJob{Stub: &a, Lease: wire.ClaimLease{ID: lease, RunnerID: "runner", ExpiresAt: testDeadline}, Grant: g})
		}
		w.push(wire.AppendClaimed(nil, jobs, 60_000))
		synctest.Wait()
		assert.Len(t, w.accepted(), 1)
	})
}

// A record that can't be trusted stops everything until nothing that it may have named is fresh.
func TestADamagedRecordStopsGrants(t *testing.T) {
	inGrantWorld(t, nil, func(w *grantWorld) {
		w.kill()
		require.NoError(t, os.WriteFile(filepath.Join(w.dir, spentName), []byte("{\"grantId\":\"x\"\ngarbage\n"), 0o600))
		w.start(w.run)
		w.connect(newFakeConn("s2"))
		s := w.stub("a")
		w.push1(s, "lease-a", w.signed(&s, nil))
		assert.Equal(t, wire.ReleaseBackendDown, w.verdict())
		w.kill()
		w.start(w.run) // which doesn't forget that it was damaged
		w.connect(newFakeConn("s3"))
		w.push1(s, "lease-a", w.signed(&s, nil))
		assert.Equal(t, wire.ReleaseBackendDown, w.verdict())
		<-time.After(spentFor)
		w.push1(s, "second", w.signed(&s, nil))
		assert.Len(t, w.accepted(), 1)
	})
}

// What can't be recorded isn't run.
func TestARecordThatCannotBeWritten(t *testing.T) {
	inGrantWorld(t, nil, func(w *grantWorld) {
		require.NoError(t, w.d.spent.file.Close())
		s := w.stub("a")
		g := w.signed(&s, nil)
		w.push1(s, "lease-a", g)
		assert.Equal(t, wire.ReleaseBackendDown, w.verdict())
		w.push1(s, "again", g)
		assert.Empty(t, w.accepted(), "whether it is on the disk nobody knows")
		w.push1(s, "second", w.signed(&s, nil))
		assert.Len(t, w.accepted(), 1, "the file was written anew")
	})
}

func TestTheRecordStaysSmall(t *testing.T) {
	now := time.Now()
	s, damaged, err := openSpent(t.TempDir(), now)
	require.NoError(t, err)
	require.False(t, damaged)
	defer func() { assert.NoError(t, s.close()) }()
	for round := range 12 {
		var batch []*wire.SignedGrant
		for i := range 1000 {
			batch = append(batch, &wire.SignedGrant{GrantID: fmt.Sprint(round, "-", i), IssuedAt: now.UnixMilli()})
		}
		good, err := s.burn(batch, now)
		require.NoError(t, err)
		assert.NotContains(t, good, false)
		good, err = s.burn(batch, now)
		require.NoError(t, err)
		assert.NotContains(t, good, true)
		now = now.Add(spentFor / 2)
		assert.LessOrEqual(t, s.lines, spentMax+1000)
	}
	info, err := os.Stat(s.path)
	require.NoError(t, err)
	assert.Less(t, info.Size(), int64(500_000))
}

func TestGrantConfig(t *testing.T) {
	key := make(ed25519.PublicKey, ed25519.PublicKeySize)
	for name, change := range map[string]func(*Config){
		"a short key":        func(c *Config) { c.ControlPlane, c.Owner = key[:31], "o" },
		"no owner":           func(c *Config) { c.ControlPlane = key },
		"another dialect":    func(c *Config) { c.ControlPlane, c.Owner, c.Dialect = key, "o", wire.Dialect0 },
		"an owner too long ": func(c *Config) { c.ControlPlane, c.Owner = key, string(make([]byte, 257)) },
	} {
		cfg := Config{URL: "ws://127.0.0.1:1", RunnerID: "r", Keys: newKeys(t), StateDir: t.TempDir(), Run: &echo{}, Capabilities: capabilities()}
		change(&cfg)
		_, err := New(cfg)
		assert.Error(t, err, name)
	}
}

// FuzzOpenSpent reads any file: what stands in it as a whole line is never taken again, or nothing is.
func FuzzOpenSpent(f *testing.F) {
	f.Add([]byte(`{"grantId":"a","until":4000000000000}` + "\n"))
	f.Add([]byte("garbage\n" + `{"grantId":"a","until":4000000000000}` + "\n"))
	f.Add([]byte(`{"grantId":"a","until":40000000`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		dir, now := t.TempDir(), time.UnixMilli(3_000_000_000_000)
		require.NoError(t, os.WriteFile(filepath.Join(dir, spentName), raw, 0o600))
		s, damaged, err := openSpent(dir, now)
		require.NoError(t, err)
		known := len(s.until)
		require.NoError(t, s.close())
		again, damagedAgain, err := openSpent(dir, now)
		require.NoError(t, err)
		defer func() { require.NoError(t, again.close()) }()
		assert.False(t, damagedAgain, "it was written anew")
		assert.Len(t, again.until, known)
		if damaged {
			require.ErrorIs(t, s.check("anything", now), errUnsure)
		}
		assert.Equal(t, s.check("anything", now), again.check("anything", now))
	})
}
