package wire

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// ErrorCode is the word that a refusal carries on the wire (design, section 4); the set is closed.
type ErrorCode string

// The codes of a refusal, each with its HTTP status.
const (
	CodeBadRequest         ErrorCode = "bad-request"                  // 400
	CodeUnsupportedVersion ErrorCode = "unsupported-protocol-version" // 400, with supported and minimum
	CodeUnauthorized       ErrorCode = "unauthorized"                 // 401, we don't know the caller
	CodeClockSkew          ErrorCode = "clock-skew"                   // 401, with serverTime and maxSkewMs
	CodeForbidden          ErrorCode = "forbidden"                    // 403, we know the caller, and no
	CodeRevoked            ErrorCode = "revoked"                      // 403
	CodeNotFound           ErrorCode = "not-found"                    // 404
	CodeNotReady           ErrorCode = "not-ready"                    // 409, ask again
	CodeTooLate            ErrorCode = "too-late"                     // 409, stop
	CodeRateLimited        ErrorCode = "rate-limited"                 // 429, with retryAfter
	CodeServerError        ErrorCode = "server-error"                 // 500, or 503 with retryAfter
	CodeBelowFloor         ErrorCode = "daemon-below-floor"           // 426; other relays send it, this one never does
)

// MaxSkewMs is how far, in milliseconds, a signed request's time may be from the relay's, either way.
const MaxSkewMs = 120_000

// Sentinels for proofs that don't hold; none of them says which part failed.
var (
	// ErrBadSignature means that a signature doesn't cover the request with the caller's key.
	ErrBadSignature = errors.New("wire: signature does not match")
	// ErrStale means that a request's time is over MaxSkewMs away from the relay's, judged before its signature.
	ErrStale = errors.New("wire: request is not fresh")
	// ErrBadIdentity means that a public identity isn't two keys with a valid signature over the second.
	ErrBadIdentity = errors.New("wire: public identity does not verify")
	// ErrBadSuccession means that a link isn't signed by its predecessor for the key that follows it.
	ErrBadSuccession = errors.New("wire: succession does not verify")
)

// Error is a refusal as both planes send it. Extras travel only with the code they belong to, zero ones never.
type Error struct {
	Code    ErrorCode
	Message string // a sentence for a person; never parsed
	Status  int    // of HTTP, where it isn't the code's own; 0: the code's

	ServerTime int64    // clock-skew, too-late; epoch ms
	MaxSkewMs  int64    // clock-skew
	RetryAfter int      // rate-limited, server-error; seconds
	Supported  []string // unsupported-protocol-version
	Minimum    string   // unsupported-protocol-version
	State      string   // too-late, the job's state
	Floor      string   // daemon-below-floor
}

// Error gives code and message in one line, for logs; peers get the wire form of AppendErrorFrame instead.
func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// Is matches another Error by its code alone, so that errors.Is works with a bare &Error{Code: ...} as target.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && (t.Message == "" || t.Message == e.Message)
}

// HTTPStatus maps the code to its HTTP status, unless Status has one; a server-error with RetryAfter is 503, an unknown code
// 500.
func (e *Error) HTTPStatus() int {
	if e.Status != 0 {
		return e.Status
	}
	switch e.Code {
	case CodeBadRequest, CodeUnsupportedVersion:
		return http.StatusBadRequest
	case CodeUnauthorized, CodeClockSkew:
		return http.StatusUnauthorized
	case CodeForbidden, CodeRevoked:
		return http.StatusForbidden
	case CodeNotFound:
		return http.StatusNotFound
	case CodeNotReady, CodeTooLate:
		return http.StatusConflict
	case CodeBelowFloor:
		return http.StatusUpgradeRequired
	case CodeRateLimited:
		return http.StatusTooManyRequests
	}
	if e.RetryAfter > 0 {
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// Errorf builds an Error of the given code without extras; the message is formatted as fmt.Sprintf does.
func Errorf(code ErrorCode, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// BadRequest builds a bad-request Error; don't put the caller's own text into the message.
func BadRequest(format string, args ...any) *Error { return Errorf(CodeBadRequest, format, args...) }

// UnsupportedVersion builds the answer to a missing (empty) or foreign protocolVersion, with what to do about it.
func UnsupportedVersion(declared string) *Error {
	e := &Error{Code: CodeUnsupportedVersion, Supported: Supported(), Minimum: Minimum()}
	spoken := strings.Join(e.Supported, ", ")
	switch {
	case declared == "":
		e.Message = "no protocolVersion was declared; this relay speaks " + spoken + ", declare one of them or upgrade the client"
	case declared < e.Minimum || len(declared) > 16:
		e.Message = "this relay speaks protocolVersion " + spoken + "; upgrade the client"
	default:
		e.Message = "this relay speaks protocolVersion " + spoken + " and not the declared one; upgrade the client, or this relay if the client is newer"
	}
	return e
}

// ClockSkew builds the answer to a stale request; serverTime is the relay's time in epoch ms.
func ClockSkew(serverTime int64) *Error {
	return &Error{
		Code: CodeClockSkew, ServerTime: serverTime, MaxSkewMs: MaxSkewMs,
		Message: "the request's time is too far from the relay's; set the clock and sign again",
	}
}

// RateLimited builds a rate-limited Error; seconds below 1 count as 1, so that the extra is never missing.
func RateLimited(seconds int, message string) *Error {
	return &Error{Code: CodeRateLimited, RetryAfter: max(1, seconds), Message: message}
}

// Unavailable builds a server-error that HTTP sends as 503; seconds below 1 count as 1.
func Unavailable(seconds int, message string) *Error {
	return &Error{Code: CodeServerError, RetryAfter: max(1, seconds), Message: message}
}

// TooLate builds a too-late Error; state and serverTime (epoch ms) are left out when empty or zero.
func TooLate(message, state string, serverTime int64) *Error {
	return &Error{Code: CodeTooLate, Message: message, State: state, ServerTime: serverTime}
}

// AsError returns the Error within err, or a server-error without details that a peer may see.
func AsError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Code: CodeServerError, Message: "the relay failed; try again"}
}
