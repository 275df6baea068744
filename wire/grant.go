package wire

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

const grantContext = "byollm/v1/grant"

// Limits of a signed grant's age, in ms of whoever judges it.
const (
	GrantMaxAgeMs = 120_000 // a device takes no older one
	GrantAheadMs  = 30_000  // nor one from further in the future
)

// DefaultPurpose is what a grant names for a stub without a purpose.
const DefaultPurpose = "default"

// Why a signed grant is worth nothing. None of them quotes the grant.
var (
	// ErrGrantMismatch means that it is about another job, site, person, owner, kind, purpose or service.
	ErrGrantMismatch = errors.New("wire: the grant is about something else")
	// ErrGrantStale means that it is too old, or from the future.
	ErrGrantStale = errors.New("wire: the grant isn't fresh")
	// ErrGrantSignature means that the control plane's key didn't sign it.
	ErrGrantSignature = errors.New("wire: the grant isn't signed by the control plane")
)

// SignedGrant is the control plane's word that devices of one owner may run one job, once (byollm/v1/grant). Only the control
// plane can make one; this relay and devices verify.
type SignedGrant struct {
	GrantID   string // fresh for each grant; a device takes each once
	JobID     string
	Site      string // key id, as in the stub
	User      string // the job's owner
	Owner     string // the device's owner
	Purpose   string // the stub's, or DefaultPurpose
	Kind      string
	Service   string // of the device's capability that is to run it
	IssuedAt  int64  // epoch ms
	Signature string // base64url, Ed25519 over Statement
}

// ParseSignedGrant reads a grant strictly, by its shape alone; see Check.
func ParseSignedGrant(raw []byte) (SignedGrant, error) {
	var g SignedGrant
	return g, signedGrant(&g)("grant", raw)
}

func signedGrant(dst *SignedGrant) reader {
	return func(what string, v jsontext.Value) error {
		return readObject(what, v, true, need("grantId", identifier(&dst.GrantID)), need("jobId", identifier(&dst.JobID)),
			need("site", identifier(&dst.Site)), need("user", identifier(&dst.User)), need("owner", identifier(&dst.Owner)),
			need("purpose", identifier(&dst.Purpose)), need("kind", identifier(&dst.Kind)), need("service", identifier(&dst.Service)),
			need("issuedAt", integer(&dst.IssuedAt, 1)), need("signature", identifier(&dst.Signature)))
	}
}

// Statement is what the control plane signs: a JSON list of the context and, in the order of their names, the members.
func (g *SignedGrant) Statement() []byte {
	dst := append(make([]byte, 0, 512), `["`+grantContext+`",`...)
	dst = append(AppendString(dst, g.GrantID), ',')
	dst = append(strconv.AppendInt(dst, g.IssuedAt, 10), ',')
	for _, s := range []string{g.JobID, g.Kind, g.Owner, g.Purpose, g.Service, g.Site} {
		dst = append(AppendString(dst, s), ',')
	}
	return append(AppendString(dst, g.User), ']')
}

// Check judges a grant for a stub and a device's owner: ErrGrantMismatch, ErrGrantStale (over maxAgeMs old at nowMs, or over
// GrantAheadMs ahead of it) or ErrGrantSignature, judged in this order. Whether the device has the service is the caller's.
func (g *SignedGrant) Check(key ed25519.PublicKey, s *Stub, owner string, nowMs, maxAgeMs int64) error {
	purpose := s.Purpose
	if purpose == "" {
		purpose = DefaultPurpose
	}
	for _, m := range []struct{ name, has, want string }{
		{"jobId", g.JobID, s.ID},
		{"site", g.Site, s.Site},
		{"user", g.User, s.Owner},
		{"owner", g.Owner, owner},
		{"kind", g.Kind, s.Kind},
		{"purpose", g.Purpose, purpose},
	} {
		if m.has != m.want {
			return fmt.Errorf("%w: its %s isn't the job's", ErrGrantMismatch, m.name)
		}
	}
	switch age := nowMs - g.IssuedAt; {
	case age > maxAgeMs:
		return fmt.Errorf("%w: it is %d s old", ErrGrantStale, age/1000)
	case age < -GrantAheadMs:
		return fmt.Errorf("%w: it is %d s ahead", ErrGrantStale, -age/1000)
	}
	if !verify(key, g.Statement(), g.Signature) {
		return ErrGrantSignature
	}
	return nil
}

// AppendSignedGrant appends the text that ParseSignedGrant reads.
func AppendSignedGrant(dst []byte, g *SignedGrant) []byte {
	dst = append(dst, `{"grantId":`...)
	dst = AppendString(dst, g.GrantID)
	dst = appendTextMember(dst, "jobId", g.JobID)
	dst = appendTextMember(dst, "site", g.Site)
	dst = appendTextMember(dst, "user", g.User)
	dst = appendTextMember(dst, "owner", g.Owner)
	dst = appendTextMember(dst, "purpose", g.Purpose)
	dst = appendTextMember(dst, "kind", g.Kind)
	dst = appendTextMember(dst, "service", g.Service)
	dst = appendIntMember(dst, "issuedAt", g.IssuedAt)
	return append(appendTextMember(dst, "signature", g.Signature), '}')
}

// ParseControlPlaneKey reads the control plane's public key as pairing answers carry it: a raw Ed25519 key in base64url.
func ParseControlPlaneKey(s string) (ed25519.PublicKey, error) {
	return PublicIdentity{Identity: s}.Key()
}
