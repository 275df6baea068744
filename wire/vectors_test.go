package wire_test

import (
	"crypto/ed25519"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pushrelay/wire"
)

// vectors reads a file of cases and makes sure that it holds at least as many as were recorded.
func vectors[T any](t testing.TB, file string, least int) []T {
	t.Helper()
	dir := os.Getenv("WIRE_VECTORS")
	if dir == "" {
		dir = "testdata"
	}
	raw, err := os.ReadFile(filepath.Join(dir, file))
	require.NoError(t, err)
	var cases []T
	require.NoError(t, json.Unmarshal(raw, &cases))
	require.GreaterOrEqual(t, len(cases), least, "cases are missing from %s", file)
	return cases
}

type schemaCase struct {
	Version string         `json:"version"`
	Shape   string         `json:"shape"`
	Name    string         `json:"name"`
	Value   jsontext.Value `json:"value"`
	Valid   bool           `json:"valid"`
}

func TestVectorsSchema(t *testing.T) {
	for i, c := range vectors[schemaCase](t, "schema.json", 1566) {
		d, err := wire.ParseDialect(c.Version)
		require.NoError(t, err)
		parse := wire.Shape(c.Shape)
		require.NotNil(t, parse, "no reader for shape %s", c.Shape)
		err = parse(d, c.Value)
		assert.Equal(t, c.Valid, err == nil, "case %d: %s %s %s: %v\n%s", i, c.Version, c.Shape, c.Name, err, c.Value)
		if err != nil {
			var refusal *wire.Error
			require.ErrorAs(t, err, &refusal)
			assert.Equal(t, wire.CodeBadRequest, refusal.Code)
		}
	}
	assert.Nil(t, wire.Shape("Unheard"))
}

type identityCase struct {
	Name     string              `json:"name"`
	Identity wire.PublicIdentity `json:"identity"`
	KeyID    string              `json:"keyId"`
	Valid    bool                `json:"valid"`
}

func TestVectorsIdentities(t *testing.T) {
	for _, c := range vectors[identityCase](t, "identities.json", 12) {
		t.Run(c.Name, func(t *testing.T) {
			err := c.Identity.Verify()
			assert.Equal(t, c.Valid, err == nil, "%v", err)
			// The public packages also fingerprint what can't be a key; here that is an error.
			if id, err := c.Identity.KeyID(); err == nil {
				assert.Equal(t, c.KeyID, id)
			} else {
				assert.False(t, c.Valid)
				assert.ErrorIs(t, err, wire.ErrBadIdentity)
			}
		})
	}
}

type canonicalCase struct {
	Endpoint     string `json:"endpoint"`
	RunnerID     string `json:"runnerId"`
	IssuedAt     int64  `json:"issuedAt"`
	Body         string `json:"body"`
	CanonicalHex string `json:"canonicalHex"`
}

func TestVectorsCanonical(t *testing.T) {
	for _, c := range vectors[canonicalCase](t, "canonical.json", 4) {
		got := wire.CanonicalRequest(c.Endpoint, c.RunnerID, c.IssuedAt, []byte(c.Body))
		assert.Equal(t, c.CanonicalHex, hex.EncodeToString(got))
	}
}

type requestCase struct {
	Name      string `json:"name"`
	Plane     string `json:"plane"`
	Endpoint  string `json:"endpoint"`
	Body      string `json:"body"`
	Signature struct {
		RunnerID  string `json:"runnerId"`
		IssuedAt  int64  `json:"issuedAt"`
		Signature string `json:"signature"`
	} `json:"signature"`
	IdentityPublic string  `json:"identityPublic"`
	Now            int64   `json:"now"`
	Failure        *string `json:"failure"`
}

func TestVectorsRequests(t *testing.T) {
	for i, c := range vectors[requestCase](t, "requests.json", 120) {
		endpoint := c.Endpoint
		if c.Plane == "site" {
			endpoint = wire.SiteEndpoint(endpoint)
		}
		key, err := wire.PublicIdentity{Identity: c.IdentityPublic}.Key()
		require.NoError(t, err)
		s := c.Signature
		err = wire.VerifyRequest(key, endpoint, s.RunnerID, s.IssuedAt, []byte(c.Body), s.Signature, c.Now)
		switch {
		case c.Failure == nil:
			assert.NoError(t, err, "case %d: %s", i, c.Name)
		case *c.Failure == "stale":
			assert.ErrorIs(t, err, wire.ErrStale, "case %d: %s", i, c.Name)
		default:
			assert.ErrorIs(t, err, wire.ErrBadSignature, "case %d: %s", i, c.Name)
		}
	}
}

type successionCase struct {
	Name    string          `json:"name"`
	Link    wire.Succession `json:"link"`
	ToKeyID string          `json:"toKeyId"`
	Valid   bool            `json:"valid"`
}

func TestVectorsSuccessions(t *testing.T) {
	for _, c := range vectors[successionCase](t, "successions.json", 9) {
		t.Run(c.Name, func(t *testing.T) {
			err := c.Link.Verify(c.ToKeyID)
			assert.Equal(t, c.Valid, err == nil, "%v", err)
			if !c.Valid {
				assert.ErrorIs(t, err, wire.ErrBadSuccession)
			}
		})
	}
}

func TestCallerCannotMoveLines(t *testing.T) {
	key := make(ed25519.PublicKey, ed25519.PublicKeySize)
	assert.ErrorIs(t, wire.VerifySignature(key, "claim", "a\nb", 1, nil, "AA"), wire.ErrBadSignature)
	assert.ErrorIs(t, wire.VerifySignature(key, "claim\na", "b", 1, nil, "AA"), wire.ErrBadSignature)
}
