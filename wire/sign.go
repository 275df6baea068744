package wire

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
)

const (
	requestContext = "byollm/v1/request"
	sitePrefix     = "site/"
)

// SiteEndpoint is the endpoint name that a site signs; the prefix keeps its requests apart from a daemon's.
func SiteEndpoint(name string) string { return sitePrefix + name }

// CanonicalRequest is the five lines that a caller signs; issuedAt is epoch ms, body the exact bytes sent.
func CanonicalRequest(endpoint, caller string, issuedAt int64, body []byte) []byte {
	sum := sha256.Sum256(body)
	out := make([]byte, 0, len(requestContext)+len(endpoint)+len(caller)+2*sha256.Size+24)
	out = append(append(out, requestContext...), '\n')
	out = append(append(out, endpoint...), '\n')
	out = append(append(out, caller...), '\n')
	out = append(strconv.AppendInt(out, issuedAt, 10), '\n')
	return hex.AppendEncode(out, sum[:])
}

// VerifySignature checks a request's signature and not its age: ErrBadSignature, also when a line break in caller or
// endpoint could move the lines that are signed.
func VerifySignature(key ed25519.PublicKey, endpoint, caller string, issuedAt int64, body []byte, signature string) error {
	if strings.Contains(endpoint, "\n") || strings.Contains(caller, "\n") {
		return ErrBadSignature
	}
	if !verify(key, CanonicalRequest(endpoint, caller, issuedAt, body), signature) {
		return ErrBadSignature
	}
	return nil
}

// VerifyRequest is VerifySignature with freshness: ErrStale, judged first, when issuedAt is over MaxSkewMs from nowMs.
func VerifyRequest(
	key ed25519.PublicKey, endpoint, caller string, issuedAt int64, body []byte, signature string, nowMs int64,
) error {
	if issuedAt < nowMs-MaxSkewMs || issuedAt > nowMs+MaxSkewMs {
		return ErrStale
	}
	return VerifySignature(key, endpoint, caller, issuedAt, body, signature)
}
