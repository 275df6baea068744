package wire_test

import (
	"crypto/ed25519"
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pushrelay/wire"
)

// grantCase is what the public JavaScript package says of a grant.
type grantCase struct {
	Name               string         `json:"name"`
	Grant              jsontext.Value `json:"grant"`
	ControlPlanePublic string         `json:"controlPlanePublic"`
	Owner              string         `json:"owner"`
	JobID              string         `json:"jobId"`
	Now                int64          `json:"now"`
	StatementHex       string         `json:"statementHex"`
	Failure            *string        `json:"failure"`
}

func grantCases(t testing.TB) []grantCase {
	t.Helper()
	raw, err := os.ReadFile("testdata/grants.json")
	require.NoError(t, err)
	var cases []grantCase
	require.NoError(t, json.Unmarshal(raw, &cases))
	require.Len(t, cases, 21)
	return cases
}

func TestVectorsGrants(t *testing.T) {
	for _, c := range grantCases(t) {
		t.Run(c.Name, func(t *testing.T) {
			g, err := wire.ParseSignedGrant(c.Grant)
			require.NoError(t, err)
			assert.Equal(t, c.StatementHex, hex.EncodeToString(g.Statement()))
			key, err := wire.ParseControlPlaneKey(c.ControlPlanePublic)
			require.NoError(t, err)
			// The public verifier judges job and owner only; the rest of the stub is the grant's own here.
			s := wire.Stub{ID: c.JobID, Site: g.Site, Owner: g.User, Kind: g.Kind, Purpose: g.Purpose}
			err = g.Check(key, &s, c.Owner, c.Now, wire.GrantMaxAgeMs)
			switch {
			case c.Failure == nil:
				assert.NoError(t, err)
			case strings.HasPrefix(*c.Failure, "wrong-"):
				assert.ErrorIs(t, err, wire.ErrGrantMismatch)
			case *c.Failure == "bad-signature":
				assert.ErrorIs(t, err, wire.ErrGrantSignature)
			default:
				assert.ErrorIs(t, err, wire.ErrGrantStale)
			}
		})
	}
}

// signedGrant is a grant that fits grantStub, signed by a new key.
func signedGrant(t testing.TB, change func(g *wire.SignedGrant)) (wire.SignedGrant, ed25519.PublicKey) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	s := grantStub()
	g := wire.SignedGrant{
		GrantID: "grant_1", JobID: s.ID, Site: s.Site, User: s.Owner, Owner: "bob", Purpose: wire.DefaultPurpose, Kind: s.Kind,
		Service: "svc", IssuedAt: 1_790_000_000_000,
	}
	if change != nil {
		change(&g)
	}
	g.Signature = wire.EncodeBase64(ed25519.Sign(private, g.Statement()))
	return g, public
}

func grantStub() wire.Stub {
	return wire.Stub{ID: "job_1", Kind: "llm.generate", Owner: "alice", Site: "BYOLLM-S"}
}

// Every member is held against the job, whatever the signature says.
func TestGrantFitsItsJobOnly(t *testing.T) {
	const now = 1_790_000_000_000
	for name, c := range map[string]struct {
		change func(g *wire.SignedGrant)
		stub   func(s *wire.Stub)
		want   error
	}{
		"as is":           {nil, nil, nil},
		"another job":     {func(g *wire.SignedGrant) { g.JobID = "job_2" }, nil, wire.ErrGrantMismatch},
		"another site":    {func(g *wire.SignedGrant) { g.Site = "BYOLLM-T" }, nil, wire.ErrGrantMismatch},
		"another person":  {func(g *wire.SignedGrant) { g.User = "carol" }, nil, wire.ErrGrantMismatch},
		"another owner":   {func(g *wire.SignedGrant) { g.Owner = "alice" }, nil, wire.ErrGrantMismatch},
		"another kind":    {func(g *wire.SignedGrant) { g.Kind = "llm.chat" }, nil, wire.ErrGrantMismatch},
		"another purpose": {func(g *wire.SignedGrant) { g.Purpose = "drafting" }, nil, wire.ErrGrantMismatch},
		"the stub's purpose": {
			func(g *wire.SignedGrant) { g.Purpose = "drafting" },
			func(s *wire.Stub) { s.Purpose = "drafting" }, nil,
		},
		"default for a purpose": {nil, func(s *wire.Stub) { s.Purpose = "drafting" }, wire.ErrGrantMismatch},
		"old":                   {func(g *wire.SignedGrant) { g.IssuedAt = now - 60_001 }, nil, wire.ErrGrantStale},
		"just young enough":     {func(g *wire.SignedGrant) { g.IssuedAt = now - 60_000 }, nil, nil},
		"ahead":                 {func(g *wire.SignedGrant) { g.IssuedAt = now + 30_001 }, nil, wire.ErrGrantStale},
		"a little ahead":        {func(g *wire.SignedGrant) { g.IssuedAt = now + 30_000 }, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			g, key := signedGrant(t, c.change)
			s := grantStub()
			if c.stub != nil {
				c.stub(&s)
			}
			assert.ErrorIs(t, g.Check(key, &s, "bob", now, 60_000), c.want)
			other, _, err := ed25519.GenerateKey(nil)
			require.NoError(t, err)
			if c.want == nil {
				assert.ErrorIs(t, g.Check(other, &s, "bob", now, 60_000), wire.ErrGrantSignature)
				assert.ErrorIs(t, g.Check(nil, &s, "bob", now, 60_000), wire.ErrGrantSignature)
			}
		})
	}
}

func TestParseSignedGrantIsStrict(t *testing.T) {
	g, _ := signedGrant(t, nil)
	good := string(wire.AppendSignedGrant(nil, &g))
	back, err := wire.ParseSignedGrant([]byte(good))
	require.NoError(t, err)
	assert.Equal(t, g, back)
	with := func(old, new string) string {
		require.Contains(t, good, old)
		return strings.Replace(good, old, new, 1)
	}
	for name, raw := range map[string]string{
		"not an object":     `"secret"`,
		"null":              `null`,
		"unknown member":    with(`"grantId"`, `"secret":1,"grantId"`),
		"a member twice":    with(`"grantId"`, `"grantId":"secret","grantId"`),
		"no id":             with(`"grantId":"grant_1",`, ``),
		"an empty id":       with(`"grant_1"`, `""`),
		"an id of 257":      with(`grant_1`, strings.Repeat("x", 257)),
		"a null owner":      with(`"owner":"bob"`, `"owner":null`),
		"time as text":      with(`"issuedAt":1790000000000`, `"issuedAt":"1790000000000"`),
		"time zero":         with(`"issuedAt":1790000000000`, `"issuedAt":0`),
		"time with a half":  with(`"issuedAt":1790000000000`, `"issuedAt":1.5`),
		"a lone surrogate":  with(`grant_1`, `\ud800`),
		"an endless one":    with(g.Signature, strings.Repeat("A", 1<<20)),
		"something follows": good + `{}`,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := wire.ParseSignedGrant([]byte(raw))
			refused(t, err)
		})
	}
}

func TestClaimedJobCarriesItsGrant(t *testing.T) {
	s, err := wire.ParseStub(wire.Dialect2, []byte(stub2))
	require.NoError(t, err)
	g, _ := signedGrant(t, func(g *wire.SignedGrant) { g.Service = "a \"b\" <c>\u2028" })
	job := wire.ClaimedJob{Stub: &s, Lease: wire.ClaimLease{ID: "l", RunnerID: "r", ExpiresAt: 1}, Grant: &g}
	back, err := wire.ParseClaimed(wire.Dialect2, job.Append(nil))
	require.NoError(t, err)
	assert.Equal(t, job, back)
	_, err = wire.ParseClaimed(wire.Dialect0, job.Append(nil))
	refused(t, err)
	job.Grant = nil
	back, err = wire.ParseClaimed(wire.Dialect2, job.Append(nil))
	require.NoError(t, err)
	assert.Equal(t, job, back)
}

func FuzzParseSignedGrant(f *testing.F) {
	for _, c := range grantCases(f) {
		f.Add([]byte(c.Grant))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		g, err := wire.ParseSignedGrant(raw)
		if err != nil {
			return
		}
		again, err := wire.ParseSignedGrant(wire.AppendSignedGrant(nil, &g))
		require.NoError(t, err)
		assert.Equal(t, g, again)
		var list []any
		require.NoError(t, json.Unmarshal(g.Statement(), &list), "what is signed is JSON")
		assert.Len(t, list, 10)
	})
}
