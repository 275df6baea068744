package poll_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pushrelay/wire"
)

const release0 = `{"protocolVersion":"0","runnerId":"d1","leases":[],"reason":"shutdown"}`

// The checks in their order: each case fails the one that it names and all later ones that it can.
func TestChecksComeInTheirOrder(t *testing.T) {
	r := newRig(t)
	stale := time.Now().Add(-10 * time.Minute).UnixMilli()
	cases := []struct {
		name   string
		change func(c *call)
		status int
		code   string
	}{
		{"path before all", func(c *call) { c.path, c.unsigned, c.body = "/byollm/nothing", true, nil }, 404, "not-found"},
		{"method before the version", func(c *call) { c.method, c.unsigned, c.body = "PUT", true, []byte(`{}`) }, 405, "bad-request"},
		{"a query before the version", func(c *call) { c.path += "?a=b"; c.unsigned, c.body = true, []byte(`{}`) }, 400, "bad-request"},
		{"version before the signature", func(c *call) { c.unsigned, c.body = true, []byte(`{"protocolVersion":"1"}`) }, 400, "unsupported-protocol-version"},
		{"no version", func(c *call) { c.unsigned, c.body = true, []byte(`{}`) }, 400, "unsupported-protocol-version"},
		{"a version that is no string", func(c *call) { c.unsigned, c.body = true, []byte(`{"protocolVersion":2}`) }, 400, "unsupported-protocol-version"},
		{"no object", func(c *call) { c.unsigned, c.body = true, []byte(`[]`) }, 400, "unsupported-protocol-version"},
		{"no JSON", func(c *call) { c.unsigned, c.body = true, []byte(`{"protocolVersion`) }, 400, "bad-request"},
		{"no body", func(c *call) { c.unsigned, c.body = true, nil }, 400, "bad-request"},
		{"unsigned", func(c *call) { c.unsigned = true; c.body = []byte(`{"protocolVersion":"0"}`) }, 401, "unauthorized"},
		{"an empty caller", func(c *call) { c.caller = "" }, 401, "unauthorized"},
		{"unknown before stale", func(c *call) { c.caller, c.issuedAt = "d9", stale }, 401, "unauthorized"},
		{"stale before the signature", func(c *call) { c.issuedAt, c.keys = stale, r.key("d2") }, 401, "clock-skew"},
		{"too early", func(c *call) { c.issuedAt = time.Now().Add(10 * time.Minute).UnixMilli() }, 401, "clock-skew"},
		{"a foreign key before the schema", func(c *call) { c.keys, c.body = r.key("d2"), []byte(`{"protocolVersion":"0"}`) }, 401, "unauthorized"},
		{"another endpoint's signature", func(c *call) { c.endpoint = "heartbeat" }, 401, "unauthorized"},
		{"a site's signature", func(c *call) { c.endpoint = "site/release" }, 401, "unauthorized"},
		{"schema before the id", func(c *call) { c.body = []byte(`{"protocolVersion":"0","runnerId":"d2"}`) }, 400, "bad-request"},
		{"one member too many", func(c *call) { c.body = []byte(strings.Replace(release0, "{", `{"extra":1,`, 1)) }, 400, "bad-request"},
		{"another's id", func(c *call) { c.body = []byte(strings.Replace(release0, `"d1"`, `"d2"`, 1)) }, 403, "forbidden"},
		{"all well", func(*call) {}, 200, ""},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			c := r.daemonCall("d1", "release", release0)
			tc.change(c)
			a := r.send(c)
			assert.Equal(t, tc.status, a.status, a.body)
			assert.Equal(t, "application/json", a.header.Get("Content-Type"))
			assert.Equal(t, "no-store", a.header.Get("Cache-Control"))
			if tc.code == "" {
				return
			}
			e, err := wire.ParseWireError(wire.Dialect2, []byte(a.body))
			require.NoError(t, err, a.body)
			assert.Equal(t, wire.ErrorCode(tc.code), e.Code)
		})
	}
}

func TestRevokedBeforeTheSchema(t *testing.T) {
	r := newRig(t)
	r.replace(r.parties().Consent("ada", "shop").MarkRevoked("d1", true))
	a := r.send(r.daemonCall("d1", "release", `{"protocolVersion":"0"}`))
	assert.Equal(t, http.StatusForbidden, a.status)
	assert.JSONEq(t, `{"error":"revoked","message":"this caller is revoked; pair again to come back"}`, a.body)
}

func TestWhoLeftTheProjectionIsRefusedAtOnce(t *testing.T) {
	r := newRig(t)
	ok[wire.ReleaseResponse](r, r.daemonCall("d1", "release", release0))
	old := r.key("d1")
	delete(r.keys, "d1") // the projection has another key for it from now on
	r.replace(r.parties().Consent("ada", "shop"))
	c := r.daemonCall("d1", "release", release0)
	ok[wire.ReleaseResponse](r, c)
	c.keys = old
	a := r.send(c)
	assert.Equal(t, http.StatusUnauthorized, a.status)
	assert.JSONEq(t, `{"error":"unauthorized","message":"this request's signature is not valid"}`, a.body)
}

func TestTheMethodIsTold(t *testing.T) {
	r := newRig(t)
	c := r.daemonCall("d1", "release", release0)
	c.method = http.MethodDelete
	a := r.send(c)
	assert.Equal(t, http.StatusMethodNotAllowed, a.status)
	assert.Equal(t, http.MethodPost, a.header.Get("Allow"))
}

func TestClockSkewTellsTheTime(t *testing.T) {
	r := newRig(t)
	c := r.daemonCall("d1", "release", release0)
	c.issuedAt -= wire.MaxSkewMs + 5000
	e := strict[struct {
		Error      string `json:"error"`
		Message    string `json:"message"`
		ServerTime int64  `json:"serverTime"`
		MaxSkewMs  int64  `json:"maxSkewMs"`
	}](t, r.send(c).body)
	assert.Equal(t, "clock-skew", e.Error)
	assert.InDelta(t, time.Now().UnixMilli(), e.ServerTime, 5000)
	assert.EqualValues(t, 120_000, e.MaxSkewMs)
}

func TestPathsAreNotDressedUp(t *testing.T) {
	r := newRig(t)
	for _, path := range []string{
		"/", "/byollm", "/byollm/", "/byollm/release/", "/byollm//release", "/byollm/%72elease", "/x/../byollm/release",
		"/literally/anything/release", "/relay/site/release", "/debug", "/byollm/debug", "/healthz",
	} {
		c := r.daemonCall("d1", "release", release0)
		c.path = path
		a := r.send(c)
		assert.Equal(t, http.StatusNotFound, a.status, path)
		assert.JSONEq(t, `{"error":"not-found","message":"nothing is served at this path"}`, a.body, path)
	}
}

func TestOutcomesAreCounted(t *testing.T) {
	r := newRig(t)
	r.send(r.daemonCall("d1", "release", release0))
	r.send(r.siteCall("shop", "nothing", `{}`))
	r.send(r.siteGet("shop", "nothing", "0"))
	r.seen.await(t, "release", "ok", 1)
	r.seen.await(t, "unknown", "not-found", 2)
}

func TestPairingIsNotThereUnlessGiven(t *testing.T) {
	r := newRig(t)
	c := r.daemonCall("d1", "pair", `{"protocolVersion":"2"}`)
	c.unsigned = true
	a := r.send(c)
	assert.Equal(t, http.StatusNotImplemented, a.status)
	e, err := wire.ParseWireError(wire.Dialect2, []byte(a.body))
	require.NoError(t, err)
	assert.Equal(t, wire.CodeBadRequest, e.Code)
}

func TestHeartbeatTellsSites(t *testing.T) {
	r := newRig(t)
	body := `{"protocolVersion":"0","runnerId":"d1","daemonVersion":"1","capabilities":[],"activeLeases":[{"jobId":"j","leaseId":"l"}],"paused":false}`
	a := r.send(r.daemonCall("d1", "heartbeat", body))
	require.Equal(t, http.StatusOK, a.status, a.body)
	got, err := wire.ParseHeartbeatResponse(wire.Dialect0, []byte(a.body))
	require.NoError(t, err)
	assert.Len(t, got.Sites, 2)
	assert.Equal(t, r.key("shop").Public(), got.Sites[r.key("shop").KeyID()])
	assert.Equal(t, []wire.Grant{{JobID: "j", LeaseID: "l"}}, got.Lost)
	assert.Empty(t, got.Cancel)
	assert.Empty(t, got.AwaitingConsent)

	r.replace(r.parties())
	got, err = wire.ParseHeartbeatResponse(wire.Dialect0, []byte(r.send(r.daemonCall("d1", "heartbeat", body)).body))
	require.NoError(t, err)
	assert.Empty(t, got.Sites)
	assert.Equal(t, []wire.Grant{{JobID: "j", LeaseID: "l"}}, got.Lost, "without any site every active lease is lost")
}
