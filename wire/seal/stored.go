package seal

import (
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"

	"github.com/go-json-experiment/json"

	"pushrelay/wire"
)

const storedVersion = 1

// stored is the file format that the public packages share: PKCS#8 DER as padded base64 for private keys.
type stored struct {
	Version           int    `json:"version"`
	IdentityPublic    string `json:"identityPublic"`
	IdentityPrivate   string `json:"identityPrivate"`
	EncryptionPublic  string `json:"encryptionPublic"`
	EncryptionPrivate string `json:"encryptionPrivate"`
	EncryptionSig     string `json:"encryptionSig"`
	CreatedAt         int64  `json:"createdAt"`
}

// ParseStoredKeys reads stored keys strictly and checks that public and private parts belong together; else ErrBadKeys.
func ParseStoredKeys(raw []byte) (*Keys, error) {
	var s stored
	if err := json.Unmarshal(raw, &s, json.RejectUnknownMembers(true)); err != nil {
		return nil, ErrBadKeys
	}
	if s.Version != storedVersion || s.CreatedAt <= 0 {
		return nil, ErrBadKeys
	}
	identity, ok := parsePrivate(s.IdentityPrivate).(ed25519.PrivateKey)
	if !ok {
		return nil, ErrBadKeys
	}
	encryption, ok := parsePrivate(s.EncryptionPrivate).(*ecdh.PrivateKey)
	if !ok || encryption.Curve() != ecdh.X25519() {
		return nil, ErrBadKeys
	}
	k := newKeys(identity, encryption, s.CreatedAt)
	public := wire.PublicIdentity{
		Identity: s.IdentityPublic, Encryption: s.EncryptionPublic, EncryptionSig: s.EncryptionSig,
	}
	if public != k.public { // Ed25519 is deterministic, so even the signature has one form
		return nil, ErrBadKeys
	}
	return k, nil
}

func parsePrivate(text string) any {
	der, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil
	}
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil
	}
	return key
}

// MarshalStored writes the keys for a file that only their owner can read. Private keys leave the package here only.
func (k Keys) MarshalStored() ([]byte, error) {
	identity, err := x509.MarshalPKCS8PrivateKey(k.identity)
	if err != nil {
		return nil, ErrBadKeys
	}
	encryption, err := x509.MarshalPKCS8PrivateKey(k.encryption)
	if err != nil {
		return nil, ErrBadKeys
	}
	return json.Marshal(stored{
		Version: storedVersion, CreatedAt: k.createdAt,
		IdentityPublic: k.public.Identity, IdentityPrivate: base64.StdEncoding.EncodeToString(identity),
		EncryptionPublic: k.public.Encryption, EncryptionPrivate: base64.StdEncoding.EncodeToString(encryption),
		EncryptionSig: k.public.EncryptionSig,
	})
}
