// Package seal is what only the ends of a job may do: hold private keys, sign, seal and open. The relay never imports it
// (design, rule 1); sites, daemons and tools do.
package seal

import (
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	"pushrelay/wire"
)

// ErrBadKeys means that stored keys don't parse or don't belong together; no detail, as details could be key material.
var ErrBadKeys = errors.New("seal: stored keys are not valid")

// Keys are a party's private keys. Every way to print them shows the key id alone; MarshalStored is the only way out.
type Keys struct {
	identity   ed25519.PrivateKey
	encryption *ecdh.PrivateKey
	public     wire.PublicIdentity
	keyID      string
	createdAt  int64 // epoch ms
}

// Generate makes new keys from random, or from the system's source when random is nil; created now.
func Generate(random io.Reader) (*Keys, error) {
	if random == nil {
		random = rand.Reader
	}
	// Seeds are read here because the library's own generators ignore the source that they are given.
	var seed, scalar [32]byte
	if _, err := io.ReadFull(random, seed[:]); err != nil {
		return nil, fmt.Errorf("seal: random source: %w", err)
	}
	if _, err := io.ReadFull(random, scalar[:]); err != nil {
		return nil, fmt.Errorf("seal: random source: %w", err)
	}
	encryption, err := ecdh.X25519().NewPrivateKey(scalar[:])
	if err != nil {
		return nil, fmt.Errorf("seal: encryption key: %w", err)
	}
	return newKeys(ed25519.NewKeyFromSeed(seed[:]), encryption, time.Now().UnixMilli()), nil
}

func newKeys(identity ed25519.PrivateKey, encryption *ecdh.PrivateKey, createdAt int64) *Keys {
	pub := identity.Public().(ed25519.PublicKey)
	text := wire.EncodeBase64(encryption.PublicKey().Bytes())
	return &Keys{
		identity: identity, encryption: encryption, keyID: wire.KeyID(pub), createdAt: createdAt,
		public: wire.PublicIdentity{
			Identity: wire.EncodeBase64(pub), Encryption: text,
			EncryptionSig: wire.EncodeBase64(ed25519.Sign(identity, wire.EncryptionStatement(text))),
		},
	}
}

// Public is what others may know of these keys; it verifies.
func (k Keys) Public() wire.PublicIdentity { return k.public }

// KeyID is the fingerprint of the identity key, the same as Public's.
func (k Keys) KeyID() string { return k.keyID }

// CreatedAt is when the keys were made, in epoch ms.
func (k Keys) CreatedAt() int64 { return k.createdAt }

// SignRequest signs a request as caller for the relay to verify; issuedAt is epoch ms, body the exact bytes sent.
func (k Keys) SignRequest(endpoint, caller string, issuedAt int64, body []byte) string {
	return k.sign(wire.CanonicalRequest(endpoint, caller, issuedAt, body))
}

func (k Keys) sign(message []byte) string {
	return wire.EncodeBase64(ed25519.Sign(k.identity, message))
}

// SignSuccession makes previous' signed link to the key that follows it; wire.ErrBadIdentity when next doesn't verify.
func SignSuccession(previous *Keys, next wire.PublicIdentity) (wire.Succession, error) {
	if err := next.Verify(); err != nil {
		return wire.Succession{}, err
	}
	to, err := next.KeyID()
	if err != nil {
		return wire.Succession{}, err
	}
	return wire.Succession{
		Identity: previous.public, Signature: previous.sign(wire.SuccessionStatement(previous.keyID, to)),
	}, nil
}

// String shows the key id alone. Value receivers, here and below, so that a copied Keys doesn't print its fields.
func (k Keys) String() string { return "seal.Keys(" + k.keyID + ")" }

// GoString is String for the %#v verb, so that debugging output shows no key.
func (k Keys) GoString() string { return k.String() }

// Format is String for every verb and flag, so that no verb reaches the fields.
func (k Keys) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, k.String()) }

// MarshalJSON writes String as a JSON string, so that keys within logged values stay private.
func (k Keys) MarshalJSON() ([]byte, error) { return wire.AppendString(nil, k.String()), nil }

// MarshalText writes String, for encoders that prefer text over MarshalJSON or know nothing else.
func (k Keys) MarshalText() ([]byte, error) { return []byte(k.String()), nil }
