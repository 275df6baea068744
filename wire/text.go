package wire

import (
	"encoding/base64"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// AppendString appends s as a JSON string the way JavaScript does: no escapes for <, >, & and U+2028; broken UTF-8
// becomes U+FFFD.
func AppendString(dst []byte, s string) []byte {
	dst, _ = jsontext.AppendQuote(dst, s) // its only error is the replaced UTF-8
	return dst
}

// EncodeBase64 writes bytes as base64url without padding, the form of every key and signature on the wire.
func EncodeBase64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// DecodeBase64 reads base64url as real clients write it: padding is tolerated, any other foreign character isn't.
func DecodeBase64(s string) ([]byte, error) {
	if strings.ContainsAny(s, "\r\n") {
		return nil, base64.CorruptInputError(0) // the standard decoder would skip them
	}
	if n := len(s); n%4 == 0 {
		s = strings.TrimSuffix(strings.TrimSuffix(s, "="), "=")
	}
	return base64.RawURLEncoding.DecodeString(s)
}
