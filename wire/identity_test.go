package wire_test

import (
	"crypto/ed25519"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pushrelay/wire"
)

// party is an identity with the key behind it, from a seed.
func party(seed byte) (wire.PublicIdentity, ed25519.PrivateKey) {
	key := ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(rune(seed)), ed25519.SeedSize)))
	encryption := wire.EncodeBase64(make([]byte, 32))
	return wire.PublicIdentity{
		Identity:      wire.EncodeBase64(key.Public().(ed25519.PublicKey)),
		Encryption:    encryption,
		EncryptionSig: wire.EncodeBase64(ed25519.Sign(key, wire.EncryptionStatement(encryption))),
	}, key
}

func TestIdentityRefusals(t *testing.T) {
	good, _ := party('a')
	other, _ := party('b')
	require.NoError(t, good.Verify())
	for name, change := range map[string]func(*wire.PublicIdentity){
		"empty":                 func(p *wire.PublicIdentity) { *p = wire.PublicIdentity{} },
		"signature of another":  func(p *wire.PublicIdentity) { p.EncryptionSig = other.EncryptionSig },
		"short signature":       func(p *wire.PublicIdentity) { p.EncryptionSig = p.EncryptionSig[:80] },
		"short identity":        func(p *wire.PublicIdentity) { p.Identity = p.Identity[:40] },
		"short encryption key":  func(p *wire.PublicIdentity) { p.Encryption = p.Encryption[:40] },
		"line break in the key": func(p *wire.PublicIdentity) { p.Identity += "\n" },
		"standard alphabet":     func(p *wire.PublicIdentity) { p.Identity = strings.Repeat("+", 43) },
		"three paddings":        func(p *wire.PublicIdentity) { p.Identity += "===" },
	} {
		t.Run(name, func(t *testing.T) {
			p := good
			change(&p)
			assert.ErrorIs(t, p.Verify(), wire.ErrBadIdentity)
		})
	}
	id, err := good.KeyID()
	require.NoError(t, err)
	assert.Regexp(t, `^BYOLLM(-[0-9A-HJKMNP-TV-Z]{4}){6}$`, id)
}

func TestVerifyRequestFreshness(t *testing.T) {
	_, key := party('a')
	pub := key.Public().(ed25519.PublicKey)
	sign := func(at int64) string {
		return wire.EncodeBase64(ed25519.Sign(key, wire.CanonicalRequest("claim", "r", at, []byte("b"))))
	}
	const now = 1_790_000_000_000
	for at, want := range map[int64]error{
		now: nil, now - 120_000: nil, now + 120_000: nil,
		now - 120_001: wire.ErrStale, now + 120_001: wire.ErrStale, 0: wire.ErrStale,
		math.MinInt64: wire.ErrStale, math.MaxInt64: wire.ErrStale,
	} {
		assert.ErrorIs(t, wire.VerifyRequest(pub, "claim", "r", at, []byte("b"), sign(at), now), want, at)
		assert.NoError(t, wire.VerifySignature(pub, "claim", "r", at, []byte("b"), sign(at)))
	}
	assert.ErrorIs(t, wire.VerifySignature(pub[:5], "claim", "r", now, []byte("b"), sign(now)), wire.ErrBadSignature)
	assert.ErrorIs(t, wire.VerifySignature(pub, wire.SiteEndpoint("claim"), "r", now, []byte("b"), sign(now)), wire.ErrBadSignature)
}

func TestVerifyChain(t *testing.T) {
	var links []wire.Succession
	const last = wire.MaxSuccessionLinks + 1
	target := func(i int) string {
		p, _ := party(byte(i))
		return must(p.KeyID())
	}
	for i := range last {
		p, key := party(byte(i))
		links = append(links, wire.Succession{
			Identity:  p,
			Signature: wire.EncodeBase64(ed25519.Sign(key, wire.SuccessionStatement(must(p.KeyID()), target(i+1)))),
		})
	}
	assert.NoError(t, wire.VerifyChain(nil, "anything"))
	assert.NoError(t, wire.VerifyChain(links[:3], target(3)))
	assert.NoError(t, wire.VerifyChain(links[1:], target(last)))
	assert.ErrorIs(t, wire.VerifyChain(links, target(last)), wire.ErrBadSuccession, "65 links")
	assert.ErrorIs(t, wire.VerifyChain(links[:3], target(2)), wire.ErrBadSuccession, "leads elsewhere")
	assert.ErrorIs(t, wire.VerifyChain([]wire.Succession{links[0], links[2]}, target(3)), wire.ErrBadSuccession, "a link is missing")
	assert.ErrorIs(t, wire.VerifyChain([]wire.Succession{links[1], links[0]}, target(2)), wire.ErrBadSuccession, "wrong order")
}

func TestBase64(t *testing.T) {
	for _, s := range []string{"", "QQ", "QUE", "QUFB", "-_-_"} {
		b, err := wire.DecodeBase64(s)
		require.NoError(t, err)
		assert.Equal(t, s, wire.EncodeBase64(b))
	}
	for _, s := range []string{"Q", "Q=", "=", "====", "QQ=", "Q\nQ", "QQ\r\n", "QQ QQ", "+/+/", "QQ==QQ=="} {
		_, err := wire.DecodeBase64(s)
		assert.Error(t, err, "%q", s)
	}
	b, err := wire.DecodeBase64("QQ==")
	require.NoError(t, err)
	assert.Equal(t, "A", string(b))
}
