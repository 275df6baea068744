package wire_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pushrelay/wire"
)

func TestErrorStatus(t *testing.T) {
	for code, status := range map[wire.ErrorCode]int{
		wire.CodeBadRequest: 400, wire.CodeUnsupportedVersion: 400, wire.CodeUnauthorized: 401, wire.CodeClockSkew: 401,
		wire.CodeForbidden: 403, wire.CodeRevoked: 403, wire.CodeNotFound: 404, wire.CodeNotReady: 409, wire.CodeTooLate: 409,
		wire.CodeRateLimited: 429, wire.CodeServerError: 500, wire.CodeBelowFloor: 426, "unheard": 500,
	} {
		assert.Equal(t, status, (&wire.Error{Code: code}).HTTPStatus(), code)
	}
	assert.Equal(t, 503, wire.Unavailable(0, "m").HTTPStatus())
	assert.Equal(t, 1, wire.RateLimited(-5, "m").RetryAfter)
}

func TestErrorIsAndAs(t *testing.T) {
	err := fmt.Errorf("store: %w", wire.BadRequest("no %d", 7))
	assert.ErrorIs(t, err, &wire.Error{Code: wire.CodeBadRequest})
	assert.NotErrorIs(t, err, &wire.Error{Code: wire.CodeForbidden})
	assert.Equal(t, "no 7", wire.AsError(err).Message)
	hidden := wire.AsError(errors.New("secret"))
	assert.Equal(t, wire.CodeServerError, hidden.Code)
	assert.NotContains(t, hidden.Message, "secret")
}

// Every extra stands on every error here, and only those of the code may be written.
func TestErrorFramesCarryTheirExtrasOnly(t *testing.T) {
	full := wire.Error{
		Message: odd, ServerTime: 1, MaxSkewMs: 2, RetryAfter: 3, Supported: []string{"0", "2"}, Minimum: "0", State: "done", Floor: "1",
	}
	for code, want := range map[wire.ErrorCode]wire.Error{
		wire.CodeBadRequest:         {},
		wire.CodeUnauthorized:       {},
		wire.CodeForbidden:          {},
		wire.CodeRevoked:            {},
		wire.CodeNotFound:           {},
		wire.CodeNotReady:           {},
		wire.CodeClockSkew:          {ServerTime: 1, MaxSkewMs: 2},
		wire.CodeTooLate:            {ServerTime: 1, State: "done"},
		wire.CodeRateLimited:        {RetryAfter: 3},
		wire.CodeServerError:        {RetryAfter: 3},
		wire.CodeUnsupportedVersion: {Supported: []string{"0", "2"}, Minimum: "0"},
		wire.CodeBelowFloor:         {Floor: "1"},
	} {
		e := full
		e.Code, want.Code, want.Message = code, code, odd
		re, got, err := wire.ParseErrorFrame(wire.AppendErrorFrame(nil, odd, &e))
		require.NoError(t, err, code)
		assert.Equal(t, odd, re)
		assert.Equal(t, &want, got)

		// Bodies of the polling planes are the closed shape, in which too-late has no extras.
		if code == wire.CodeTooLate {
			want.ServerTime, want.State = 0, ""
		}
		body, err := wire.ParseWireError(wire.Dialect2, e.AppendJSON(nil))
		require.NoError(t, err, code)
		assert.Equal(t, &want, body)
	}
}

func TestErrorFrameWithoutRequest(t *testing.T) {
	frame := wire.AppendErrorFrame(nil, "", &wire.Error{Code: wire.CodeNotFound})
	assert.Equal(t, `{"type":"error","error":"not-found","message":"not-found"}`, string(frame))
	site := wire.TooLate("m", "done", 7).AppendSiteJSON(nil)
	assert.Equal(t, `{"error":"too-late","message":"m","serverTime":7,"state":"done"}`, string(site))
	for _, bad := range []string{`{}`, `{"type":"reply","error":"x"}`, `{"type":"error"}`, `x`} {
		_, _, err := wire.ParseErrorFrame([]byte(bad))
		refused(t, err)
	}
	_, e, err := wire.ParseErrorFrame([]byte(`{"type":"error","error":"unheard","message":"m","new":1}`))
	require.NoError(t, err)
	assert.Equal(t, wire.ErrorCode("unheard"), e.Code)
}

func TestConstructorsMatchTheirShape(t *testing.T) {
	for _, e := range []*wire.Error{
		wire.UnsupportedVersion(""), wire.UnsupportedVersion("9"), wire.ClockSkew(1790000000000), wire.RateLimited(5, "slow down"),
		wire.Unavailable(1, "later"), wire.TooLate("over", "done", 1), wire.BadRequest("no"), wire.AsError(errors.New("x")),
	} {
		for _, d := range []wire.Dialect{wire.Dialect0, wire.Dialect2} {
			_, err := wire.ParseWireError(d, e.AppendJSON(nil))
			assert.NoError(t, err, e.Code)
		}
	}
	for _, bad := range []string{
		`{"error":"clock-skew","message":"m"}`, `{"error":"forbidden","message":"m","serverTime":1}`,
		`{"error":"forbidden","message":"m","supported":[]}`, `{"error":"unsupported-protocol-version","message":"m"}`,
		`{"error":"not-ready","message":"m","floor":"1"}`, `{"error":"forbidden","message":"m","state":"done"}`,
	} {
		_, err := wire.ParseWireError(wire.Dialect2, []byte(bad))
		refused(t, err)
	}
	_, err := wire.ParseWireError(wire.Dialect0, []byte(`{"error":"daemon-below-floor","message":"m","floor":"1"}`))
	refused(t, err)
}
