package seal_test

import (
	"crypto/ed25519"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pushrelay/wire"
	"pushrelay/wire/seal"
)

// lowOrderIdentity is properly signed, but its encryption key is the point zero.
func lowOrderIdentity() wire.PublicIdentity {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	encryption := wire.EncodeBase64(make([]byte, 32))
	return wire.PublicIdentity{
		Identity:      wire.EncodeBase64(key.Public().(ed25519.PublicKey)),
		Encryption:    encryption,
		EncryptionSig: wire.EncodeBase64(ed25519.Sign(key, wire.EncryptionStatement(encryption))),
	}
}

func TestPayloadsAreWrittenAsJavaScriptDoes(t *testing.T) {
	b, err := seal.GeneratePayload{Prompt: "<a> & \u2028 \"é\"\n"}.Encode()
	require.NoError(t, err)
	assert.Equal(t, "{\"prompt\":\"<a> & \u2028 \\\"é\\\"\\n\"}", string(b))
	p, err := seal.ParseGenerate(b)
	require.NoError(t, err)
	assert.Equal(t, "<a> & \u2028 \"é\"\n", p.Prompt)

	chat := seal.ChatPayload{Messages: []seal.Message{{Role: "user", Content: "hi"}, {Role: "assistant"}}, System: "s"}
	b, err = chat.Encode()
	require.NoError(t, err)
	assert.Equal(t, `{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":""}],"system":"s"}`, string(b))
	back, err := seal.ParseChat(b)
	require.NoError(t, err)
	assert.Equal(t, chat, back)
	assert.Equal(t, 3, chat.Units())
}

func TestPayloadRefusals(t *testing.T) {
	for _, bad := range []string{
		``, `null`, `[]`, `{}`, `{"prompt":""}`, `{"prompt":7}`, `{"prompt":"a","extra":1}`, `{"prompt":"a","prompt":"b"}`,
		`{"prompt":"` + strings.Repeat("x", seal.MaxTextUnits+1) + `"}`,
	} {
		_, err := seal.ParseGenerate([]byte(bad))
		assert.ErrorIs(t, err, seal.ErrBadPlaintext)
	}
	for _, bad := range []string{
		`{}`, `{"messages":[]}`, `{"messages":[{"role":"tool","content":"x"}]}`, `{"messages":[{"role":"user","content":"x","name":"n"}]}`,
		`{"messages":[` + strings.Repeat(`{"role":"user","content":"x"},`, 256) + `{"role":"user","content":"x"}]}`,
	} {
		_, err := seal.ParseChat([]byte(bad))
		assert.ErrorIs(t, err, seal.ErrBadPlaintext)
	}
	long := strings.Repeat("x", seal.MaxTextUnits)
	messages := make([]seal.Message, 4)
	for i := range messages {
		messages[i] = seal.Message{Role: "user", Content: long}
	}
	_, err := seal.ChatPayload{Messages: messages}.Encode()
	assert.NoError(t, err)
	_, err = seal.ChatPayload{Messages: messages, System: "x"}.Encode()
	assert.ErrorIs(t, err, seal.ErrBadPlaintext)
	_, err = seal.GeneratePayload{}.Encode()
	assert.ErrorIs(t, err, seal.ErrBadPlaintext)

	cut, err := seal.ParseGenerate([]byte(`{"prompt":"cut \ud83d"}`))
	require.NoError(t, err, "JavaScript may cut a string between two surrogates")
	assert.Equal(t, "cut \ufffd", cut.Prompt)
}

func TestSizeClass(t *testing.T) {
	for units, want := range map[int]string{0: "small", 4_000: "small", 4_001: "medium", 64_000: "medium", 64_001: "large"} {
		assert.Equal(t, want, seal.SizeClass(units))
	}
	assert.Equal(t, 4, seal.GeneratePayload{Prompt: "a\U0001F600", System: "b"}.Units())
}

func TestResultsReadBack(t *testing.T) {
	reported := true
	ran := seal.Ran{Model: "llama3", BackendClass: "http", DurationMs: 12}
	for want, r := range map[string]seal.Result{
		`{"outcome":{"outcome":"ok","text":""},"ran":{"model":"llama3","backendClass":"http","durationMs":12}}`:                                      {Outcome: seal.OK(""), Ran: ran},
		`{"outcome":{"outcome":"error","code":"c","message":"m","retryable":false},"ran":{"model":"llama3","backendClass":"http","durationMs":12}}`:  {Outcome: seal.Failed("c", "m", false), Ran: ran},
		`{"outcome":{"outcome":"canceled"},"ran":{"model":"llama3","backendClass":"http","durationMs":12}}`:                                          {Outcome: seal.Canceled(), Ran: ran},
		`{"outcome":{"outcome":"ok","text":"t"},"ran":{"model":"m","backendClass":"process","durationMs":0,"stop":"length","stopReported":true}}`:    {Outcome: seal.OK("t"), Ran: seal.Ran{Model: "m", BackendClass: "process", Stop: "length", StopReported: &reported}},
		`{"outcome":{"outcome":"ok","text":"t","artifactUrl":"https://a.example/x"},"ran":{"model":"llama3","backendClass":"http","durationMs":12}}`: {Outcome: seal.Outcome{Outcome: "ok", Text: "t", ArtifactURL: "https://a.example/x"}, Ran: ran},
	} {
		b, err := r.Encode()
		require.NoError(t, err)
		assert.Equal(t, want, string(b))
		back, err := seal.ParseResult(b)
		require.NoError(t, err)
		assert.Equal(t, r, back)
	}
}

func TestResultRefusals(t *testing.T) {
	const ran = `"ran":{"model":"m","backendClass":"http","durationMs":1}`
	for _, bad := range []string{
		``, `{}`, `{` + ran + `}`, `{"outcome":{"outcome":"ok","text":"t"}}`, `{"outcome":{"outcome":"ok"},` + ran + `}`,
		`{"outcome":{"outcome":"refused","reason":"r"},` + ran + `}`, `{"outcome":{"outcome":"ok","text":"t","code":"c"},` + ran + `}`,
		`{"outcome":{"outcome":"error","code":"","message":"m","retryable":true},` + ran + `}`,
		`{"outcome":{"outcome":"error","code":"c","message":"m"},` + ran + `}`, `{"outcome":{"outcome":"canceled","text":"t"},` + ran + `}`,
		`{"outcome":{"outcome":"canceled"},"ran":{"model":"","backendClass":"http","durationMs":1}}`,
		`{"outcome":{"outcome":"canceled"},"ran":{"model":"m","backendClass":"magic","durationMs":1}}`,
		`{"outcome":{"outcome":"canceled"},"ran":{"model":"m","backendClass":"http","durationMs":-1}}`,
		`{"outcome":{"outcome":"canceled"},"ran":{"model":"m","backendClass":"http","durationMs":1,"stop":"bored"}}`,
	} {
		_, err := seal.ParseResult([]byte(bad))
		assert.ErrorIs(t, err, seal.ErrBadPlaintext, bad)
	}
	_, err := seal.Result{Outcome: seal.OK("t")}.Encode()
	assert.ErrorIs(t, err, seal.ErrBadPlaintext)
}

func FuzzParseStoredKeys(f *testing.F) {
	for _, c := range envelopeCases(f) {
		f.Add([]byte(c.RecipientKeys))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		k, err := seal.ParseStoredKeys(raw)
		if err != nil {
			require.ErrorIs(t, err, seal.ErrBadKeys)
			return
		}
		text, err := k.MarshalStored()
		require.NoError(t, err)
		again, err := seal.ParseStoredKeys(text)
		require.NoError(t, err)
		assert.Equal(t, k.Public(), again.Public())
		assert.Equal(t, k.CreatedAt(), again.CreatedAt())
	})
}

func FuzzPlaintexts(f *testing.F) {
	f.Add([]byte(`{"prompt":"p","system":"s"}`))
	f.Add([]byte(`{"messages":[{"role":"user","content":"c"}]}`))
	f.Add([]byte(`{"outcome":{"outcome":"ok","text":"t"},"ran":{"model":"m","backendClass":"http","durationMs":1}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if p, err := seal.ParseGenerate(raw); err == nil {
			text, err := p.Encode()
			require.NoError(t, err)
			again, err := seal.ParseGenerate(text)
			require.NoError(t, err)
			assert.Equal(t, p, again)
		}
		if p, err := seal.ParseChat(raw); err == nil {
			text, err := p.Encode()
			require.NoError(t, err)
			again, err := seal.ParseChat(text)
			require.NoError(t, err)
			assert.Equal(t, p, again)
		}
		if r, err := seal.ParseResult(raw); err == nil {
			text, err := r.Encode()
			require.NoError(t, err)
			again, err := seal.ParseResult(text)
			require.NoError(t, err)
			assert.Equal(t, r, again)
		}
	})
}

// FuzzOpen feeds ciphertexts to a real recipient.
func FuzzOpen(f *testing.F) {
	cases := envelopeCases(f)
	keys, err := seal.ParseStoredKeys(cases[0].RecipientKeys)
	require.NoError(f, err)
	for _, c := range cases {
		f.Add([]byte(c.Envelope))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		e, err := wire.ParseEnvelope(raw)
		if err != nil {
			return
		}
		sender := wire.PublicIdentity{Identity: cases[0].SenderIdentityPublic}
		_, _ = seal.Open(keys, sender, seal.Expected{
			JobID: "job_0", Direction: e.Direction, SenderKeyID: e.SenderKeyID, RecipientKeyID: e.RecipientKeyID,
		}, e)
	})
}
