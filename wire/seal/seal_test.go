package seal_test

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pushrelay/wire"
	"pushrelay/wire/seal"
)

func generate(t testing.TB) *seal.Keys {
	t.Helper()
	k, err := seal.Generate(nil)
	require.NoError(t, err)
	return k
}

func TestSealOpens(t *testing.T) {
	site, device := generate(t), generate(t)
	c := seal.Context{JobID: "job \"1\" \u2028", Direction: wire.DirectionPayload, DeadlineAt: 1790000000000}
	for _, plaintext := range []string{"", "hello", "<>&\u2028\u2029\x01é\U0001F600", strings.Repeat("x", 1<<20)} {
		e, err := seal.Seal(site, device.Public(), c, []byte(plaintext))
		require.NoError(t, err)
		parsed, err := wire.ParseEnvelope(e.Raw)
		require.NoError(t, err)
		assert.Equal(t, e, parsed)
		got, err := seal.Open(device, site.Public(), seal.Expected{JobID: c.JobID, Direction: c.Direction}, parsed)
		require.NoError(t, err)
		assert.Equal(t, plaintext, string(got))
	}
}

func TestOpenRefusals(t *testing.T) {
	site, device, stranger := generate(t), generate(t), generate(t)
	c := seal.Context{JobID: "job_1", Direction: wire.DirectionPayload, DeadlineAt: 1790000000000}
	good, err := seal.Seal(site, device.Public(), c, []byte("secret"))
	require.NoError(t, err)
	want := seal.Expected{JobID: "job_1", Direction: wire.DirectionPayload}
	reread := func(e wire.Envelope, ciphertext []byte) wire.Envelope {
		e.Raw = wire.AppendEnvelope(nil, e, string(ciphertext))
		return e
	}
	text, err := good.Ciphertext()
	require.NoError(t, err)

	otherDeadline := good
	otherDeadline.DeadlineAt++
	otherSender := good
	otherSender.SenderKeyID = stranger.KeyID()
	for name, c := range map[string]struct {
		keys   *seal.Keys
		sender wire.PublicIdentity
		want   seal.Expected
		env    wire.Envelope
		err    error
	}{
		"to another":         {stranger, site.Public(), want, good, seal.ErrNotForUs},
		"other direction":    {device, site.Public(), seal.Expected{JobID: "job_1", Direction: wire.DirectionResult}, good, seal.ErrNotForUs},
		"from another":       {device, stranger.Public(), want, good, seal.ErrNotForUs},
		"not our key":        {stranger, site.Public(), seal.Expected{JobID: "job_1", Direction: wire.DirectionPayload, RecipientKeyID: device.KeyID()}, good, seal.ErrUnopenable},
		"cut":                {device, site.Public(), want, reread(good, text[:len(text)-8]), seal.ErrUnopenable},
		"tiny":               {device, site.Public(), want, reread(good, text[:8]), seal.ErrUnopenable},
		"not base64url":      {device, site.Public(), want, reread(good, []byte("***")), seal.ErrUnopenable},
		"no text":            {device, site.Public(), want, wire.Envelope{RecipientKeyID: good.RecipientKeyID, SenderKeyID: good.SenderKeyID, Direction: good.Direction}, seal.ErrUnopenable},
		"signed by another":  {device, stranger.Public(), want, otherSender, seal.ErrBadSignature},
		"other job":          {device, site.Public(), seal.Expected{JobID: "job_2", Direction: wire.DirectionPayload}, good, seal.ErrContextMismatch},
		"other deadline":     {device, site.Public(), want, otherDeadline, seal.ErrContextMismatch},
		"sender is no party": {device, wire.PublicIdentity{}, want, good, wire.ErrBadIdentity},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := seal.Open(c.keys, c.sender, c.want, c.env)
			assert.ErrorIs(t, err, c.err)
			assert.Nil(t, got)
		})
	}
}

func TestSealRefusals(t *testing.T) {
	site, device := generate(t), generate(t)
	c := seal.Context{JobID: "job_1", Direction: wire.DirectionPayload, DeadlineAt: 1}
	swapped := device.Public()
	swapped.Encryption = site.Public().Encryption
	_, err := seal.Seal(site, swapped, c, nil)
	assert.ErrorIs(t, err, wire.ErrBadIdentity)
	_, err = seal.Seal(site, device.Public(), c, []byte("\xff"))
	assert.ErrorIs(t, err, seal.ErrNotText)
	_, err = seal.Seal(site, device.Public(), seal.Context{JobID: "\xff"}, nil)
	assert.ErrorIs(t, err, seal.ErrNotText)
	for _, n := range []int{5 << 20, 7 << 20} { // each layer of base64 adds a third
		_, err = seal.Seal(site, device.Public(), c, bytes.Repeat([]byte("x"), n))
		assert.ErrorIs(t, err, seal.ErrTooLarge)
	}
	_, err = seal.Seal(site, device.Public(), c, bytes.Repeat([]byte("x"), 1<<20))
	assert.NoError(t, err)
}

// A key of small order gives every sender the same secret; the identity around it may verify all the same.
func TestSealRefusesLowOrderKeys(t *testing.T) {
	for _, c := range envelopeCases(t)[:1] {
		keys, err := seal.ParseStoredKeys(c.RecipientKeys)
		require.NoError(t, err)
		p := lowOrderIdentity()
		require.NoError(t, p.Verify())
		_, err = seal.Seal(keys, p, seal.Context{JobID: "j"}, nil)
		assert.ErrorIs(t, err, wire.ErrBadIdentity)
	}
}

func TestKeysNeverPrint(t *testing.T) {
	k := generate(t)
	stored, err := k.MarshalStored()
	require.NoError(t, err)
	var parts map[string]any
	require.NoError(t, json.Unmarshal(stored, &parts))
	type holder struct {
		Name string
		Keys *seal.Keys
		Copy seal.Keys
	}
	h := holder{"n", k, *k}
	var out strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T"} {
		fmt.Fprintf(&out, verb+"|", k)
		fmt.Fprintf(&out, verb+"|", *k)
		fmt.Fprintf(&out, verb+"|", h)
		fmt.Fprintf(&out, verb+"|", []*seal.Keys{k})
	}
	for _, v := range []any{k, *k, h} {
		b, err := json.Marshal(v)
		require.NoError(t, err)
		out.Write(b)
		b, err = stdjson.Marshal(v)
		require.NoError(t, err)
		out.Write(b)
	}
	assert.Contains(t, out.String(), k.KeyID())
	for _, name := range []string{"identityPrivate", "encryptionPrivate"} {
		secret := parts[name].(string)
		assert.NotContains(t, out.String(), secret)
		assert.NotContains(t, out.String(), secret[22:], "the raw key's text")
	}
	assert.NotContains(t, out.String(), k.Public().Identity, "fields were printed one by one")
	assert.NotContains(t, out.String(), "[]byte{")
}

func TestStoredKeysReadBack(t *testing.T) {
	k := generate(t)
	raw, err := k.MarshalStored()
	require.NoError(t, err)
	back, err := seal.ParseStoredKeys(raw)
	require.NoError(t, err)
	assert.Equal(t, k.Public(), back.Public())
	assert.Equal(t, k.KeyID(), back.KeyID())
	assert.Equal(t, k.CreatedAt(), back.CreatedAt())
	assert.Equal(t, k.SignRequest("claim", "r", 1, nil), back.SignRequest("claim", "r", 1, nil))
	require.NoError(t, k.Public().Verify())

	other, err := generate(t).MarshalStored()
	require.NoError(t, err)
	swap := func(member string) string {
		var mine, theirs map[string]any
		require.NoError(t, json.Unmarshal(raw, &mine))
		require.NoError(t, json.Unmarshal(other, &theirs))
		mine[member] = theirs[member]
		b, err := json.Marshal(mine)
		require.NoError(t, err)
		return string(b)
	}
	text := string(raw)
	for name, bad := range map[string]string{
		"not JSON":         "secret",
		"version 2":        strings.Replace(text, `"version":1`, `"version":2`, 1),
		"unknown member":   strings.Replace(text, `{`, `{"extra":1,`, 1),
		"member twice":     strings.Replace(text, `{`, `{"version":1,`, 1),
		"never created":    strings.Replace(text, `"createdAt":`, `"createdAt":-`, 1),
		"identityPublic":   swap("identityPublic"),
		"identityPrivate":  swap("identityPrivate"),
		"encryptionPublic": swap("encryptionPublic"),
		"encryptionPriv":   swap("encryptionPrivate"),
		"encryptionSig":    swap("encryptionSig"),
		"swapped privates": strings.NewReplacer("identityPrivate", "encryptionPrivate", "encryptionPrivate", "identityPrivate").Replace(text),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := seal.ParseStoredKeys([]byte(bad))
			assert.ErrorIs(t, err, seal.ErrBadKeys)
		})
	}
}

func TestGenerateUsesItsSource(t *testing.T) {
	fixed := func() io.Reader { return bytes.NewReader(bytes.Repeat([]byte{7}, 64)) }
	a, err := seal.Generate(fixed())
	require.NoError(t, err)
	b, err := seal.Generate(fixed())
	require.NoError(t, err)
	assert.Equal(t, a.Public(), b.Public())
	_, err = seal.Generate(bytes.NewReader(make([]byte, 63)))
	assert.True(t, errors.Is(err, io.ErrUnexpectedEOF))
}

func TestSignSuccession(t *testing.T) {
	keys := []*seal.Keys{generate(t), generate(t), generate(t)}
	var links []wire.Succession
	for i := range 2 {
		link, err := seal.SignSuccession(keys[i], keys[i+1].Public())
		require.NoError(t, err)
		links = append(links, link)
	}
	assert.NoError(t, wire.VerifyChain(links, keys[2].KeyID()))
	_, err := seal.SignSuccession(keys[0], wire.PublicIdentity{})
	assert.ErrorIs(t, err, wire.ErrBadIdentity)
}

func TestSignRequestVerifies(t *testing.T) {
	k := generate(t)
	key, err := k.Public().Key()
	require.NoError(t, err)
	sig := k.SignRequest(wire.EndpointDaemon, "runner_1", 5, []byte("body"))
	assert.NoError(t, wire.VerifySignature(key, wire.EndpointDaemon, "runner_1", 5, []byte("body"), sig))
	assert.ErrorIs(t, wire.VerifySignature(key, wire.EndpointSite, "runner_1", 5, []byte("body"), sig), wire.ErrBadSignature)
}
