package seal_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pushrelay/wire"
	"pushrelay/wire/seal"
)

type envelopeCase struct {
	Name                 string         `json:"name"`
	Envelope             jsontext.Value `json:"envelope"`
	RecipientKeys        jsontext.Value `json:"recipientKeys"`
	SenderIdentityPublic string         `json:"senderIdentityPublic"`
	Expected             struct {
		JobID          string         `json:"jobId"`
		SenderKeyID    string         `json:"senderKeyId"`
		RecipientKeyID string         `json:"recipientKeyId"`
		Direction      wire.Direction `json:"direction"`
	} `json:"expected"`
	Result struct {
		OK        bool   `json:"ok"`
		Plaintext string `json:"plaintext"`
		Reason    string `json:"reason"`
	} `json:"result"`
}

func envelopeCases(t testing.TB) []envelopeCase {
	t.Helper()
	dir := os.Getenv("WIRE_VECTORS")
	if dir == "" {
		dir = filepath.Join("..", "testdata")
	}
	raw, err := os.ReadFile(filepath.Join(dir, "envelopes.json"))
	require.NoError(t, err)
	var cases []envelopeCase
	require.NoError(t, json.Unmarshal(raw, &cases))
	require.GreaterOrEqual(t, len(cases), 21, "cases are missing")
	return cases
}

func TestVectorsEnvelopes(t *testing.T) {
	reasons := map[string]error{
		"not-for-us": seal.ErrNotForUs, "unopenable": seal.ErrUnopenable, "malformed": seal.ErrMalformed,
		"bad-signature": seal.ErrBadSignature, "context-mismatch": seal.ErrContextMismatch,
	}
	for _, c := range envelopeCases(t) {
		t.Run(c.Name, func(t *testing.T) {
			env, err := wire.ParseEnvelope(c.Envelope)
			require.NoError(t, err)
			keys, err := seal.ParseStoredKeys(c.RecipientKeys)
			require.NoError(t, err)
			sender := wire.PublicIdentity{Identity: c.SenderIdentityPublic}
			got, err := seal.Open(keys, sender, seal.Expected{
				JobID: c.Expected.JobID, Direction: c.Expected.Direction,
				SenderKeyID: c.Expected.SenderKeyID, RecipientKeyID: c.Expected.RecipientKeyID,
			}, env)
			if c.Result.OK {
				require.NoError(t, err)
				assert.Equal(t, c.Result.Plaintext, string(got))
				return
			}
			require.Contains(t, reasons, c.Result.Reason)
			assert.ErrorIs(t, err, reasons[c.Result.Reason])
		})
	}
}
