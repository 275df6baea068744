package wire

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base32"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	keyIDPrefix         = "BYOLLM"
	encryptionContext   = "byollm/v1/encryption-key:"
	x25519KeyBytes      = 32
	crockfordAlphabet   = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	fingerprintBytes    = 15
	fingerprintGroupLen = 4
)

// KeyID is the fingerprint of an identity key: BYOLLM- and 24 Crockford characters in six groups of four.
func KeyID(pub ed25519.PublicKey) string {
	sum := sha256.Sum256(pub)
	digits := base32.NewEncoding(crockfordAlphabet).WithPadding(base32.NoPadding).EncodeToString(sum[:fingerprintBytes])
	out := make([]byte, 0, len(keyIDPrefix)+len(digits)*5/fingerprintGroupLen)
	out = append(out, keyIDPrefix...)
	for i := 0; i < len(digits); i += fingerprintGroupLen {
		out = append(append(out, '-'), digits[i:i+fingerprintGroupLen]...)
	}
	return string(out)
}

// Key decodes the identity key; ErrBadIdentity unless it is 32 bytes. It doesn't check the signature: see Verify.
func (p PublicIdentity) Key() (ed25519.PublicKey, error) {
	b, err := DecodeBase64(p.Identity)
	if err != nil || len(b) != ed25519.PublicKeySize {
		return nil, ErrBadIdentity
	}
	return b, nil
}

// KeyID is the fingerprint of the identity key alone; ErrBadIdentity when that key can't be decoded.
func (p PublicIdentity) KeyID() (string, error) {
	key, err := p.Key()
	if err != nil {
		return "", err
	}
	return KeyID(key), nil
}

// EncryptionKey decodes the raw X25519 key that others seal to; ErrBadIdentity unless it is 32 bytes.
func (p PublicIdentity) EncryptionKey() ([x25519KeyBytes]byte, error) {
	var key [x25519KeyBytes]byte
	b, err := DecodeBase64(p.Encryption)
	if err != nil || len(b) != len(key) {
		return key, ErrBadIdentity
	}
	return [x25519KeyBytes]byte(b), nil
}

// Verify checks, on every receipt, that both keys decode and that the first signed the second; else ErrBadIdentity.
func (p PublicIdentity) Verify() error {
	key, err := p.Key()
	if err != nil {
		return err
	}
	if _, err := p.EncryptionKey(); err != nil {
		return err
	}
	if !verify(key, EncryptionStatement(p.Encryption), p.EncryptionSig) {
		return ErrBadIdentity
	}
	return nil
}

// EncryptionStatement is what an identity key signs to vouch for an encryption key, given as its base64url text.
func EncryptionStatement(encryption string) []byte { return []byte(encryptionContext + encryption) }

func verify(key ed25519.PublicKey, message []byte, signature string) bool {
	sig, err := DecodeBase64(signature)
	return err == nil && len(sig) == ed25519.SignatureSize && len(key) == ed25519.PublicKeySize &&
		ed25519.Verify(key, message, sig)
}

// ParsePublicIdentity reads an identity strictly, by its shape alone; call Verify before trusting it.
func ParsePublicIdentity(raw []byte) (PublicIdentity, error) {
	var p PublicIdentity
	return p, publicIdentity(&p)("identity", raw)
}

func publicIdentity(dst *PublicIdentity) reader {
	return func(what string, v jsontext.Value) error {
		return readObject(what, v, true, need("identity", nonEmpty(&dst.Identity)),
			need("encryption", nonEmpty(&dst.Encryption)), need("encryptionSig", nonEmpty(&dst.EncryptionSig)))
	}
}
