package poll_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pushrelay/session"
	"pushrelay/session/poll"
	"pushrelay/wire"
)

const mib = 1 << 20

// largest is a ciphertext whose envelope is just within its 6 MiB.
const largest = 6*mib - 300

func TestTheLargestEnvelopesPass(t *testing.T) {
	r := newRig(t, holding)
	d, s := r.daemon("d1"), r.quiet("shop")
	c := r.fly(d.claimCall(1), "claim")
	s.results()
	s.enqueue("job", "ada")
	g := grantOf(d.claimed(c.land())[0])
	require.Equal(t, "ready", ok[wire.StateResponse](r, s.payloadCall("job", s.pending()[0].Device, largest)).State)
	assert.Greater(t, len(d.fetch(g).Raw), 6*mib-200)
	assert.True(t, ok[wire.ResultResponse](r, d.resultCall(g, "shop", "ok", largest)).Accepted)
	results := s.results()
	require.Len(t, results, 1)
	assert.Greater(t, len(results[0].Envelope), 6*mib-200)

	a := r.send(d.resultCall(g, "shop", "ok", 6*mib))
	assert.Equal(t, http.StatusBadRequest, a.status, "one byte over")
}

func TestBodiesThatAreTooLong(t *testing.T) {
	r := newRig(t)
	for name, c := range map[string]*call{
		"told":    r.daemonCall("d1", "release", strings.Repeat(" ", poll.MaxBodyBytes+1)),
		"chunked": r.daemonCall("d1", "release", strings.Repeat(" ", poll.MaxBodyBytes+1)),
	} {
		q := r.request(t.Context(), c)
		if name == "chunked" {
			q.ContentLength, q.Body = -1, io.NopCloser(bytes.NewReader(c.body))
		}
		resp, err := r.client.Do(q)
		if err != nil {
			continue // the relay answered and closed while the client still wrote
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err == nil {
			assert.Equal(t, http.StatusBadRequest, resp.StatusCode)
			assert.Equal(t, `{"error":"bad-request","message":"a body has at most 8388608 bytes"}`, string(text), name)
		}
		r.seen.await(t, "release", "bad-request", 1)
	}
}

func TestBodiesOfUntoldLength(t *testing.T) {
	r := newRig(t)
	for name, size := range map[string]int{"short": 0, "long": 3 * mib} {
		c := r.daemonCall("d1", "release", strings.Replace(release0, "[]", "["+strings.Repeat(" ", size)+"]", 1))
		q := r.request(t.Context(), c)
		q.ContentLength, q.Body = -1, io.NopCloser(bytes.NewReader(c.body))
		resp, err := r.client.Do(q)
		require.NoError(t, err)
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		resp.Body.Close()
		assert.Equal(t, `{"released":[]}`, string(text), name)
	}
}

// exchange writes a request by hand and reads its answer.
func exchange(t *testing.T, conn net.Conn, reader *bufio.Reader, text string) *http.Response {
	t.Helper()
	_, err := io.WriteString(conn, text)
	require.NoError(t, err)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(patience)))
	resp, err := http.ReadResponse(reader, nil)
	require.NoError(t, err)
	return resp
}

func (r *rig) dial() net.Conn {
	r.t.Helper()
	conn, err := net.Dial("tcp", r.server.Listener.Addr().String())
	require.NoError(r.t, err)
	r.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// A long body of somebody that isn't known isn't even waited for.
func TestLongBodiesOfStrangersAreNotRead(t *testing.T) {
	r := newRig(t)
	stale := time.Now().Add(-time.Hour).UnixMilli()
	for name, tc := range map[string]struct {
		headers, code string
	}{
		"unsigned": {"", "unauthorized"},
		"unknown":  {"X-Byollm-Runner: nobody\r\nX-Byollm-Issued-At: 1\r\nX-Byollm-Signature: AAAA\r\n", "unauthorized"},
		"stale":    {fmt.Sprintf("X-Byollm-Runner: d1\r\nX-Byollm-Issued-At: %d\r\nX-Byollm-Signature: AAAA\r\n", stale), "clock-skew"},
	} {
		conn := r.dial()
		resp := exchange(t, conn, bufio.NewReader(conn),
			"POST /byollm/result HTTP/1.1\r\nHost: relay\r\nContent-Length: 8000000\r\n"+tc.headers+"\r\n")
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		assert.Equal(t, http.StatusUnauthorized, resp.StatusCode, name)
		assert.Contains(t, string(text), `"error":"`+tc.code+`"`, name)
	}
}

// A connection serves one request after the other, held ones and refused ones too.
func TestConnectionsAreKept(t *testing.T) {
	r := newRig(t, func(_ *rig, _ *hubSettings, opts *poll.Options) { opts.HoldClaim = 20 * time.Millisecond })
	conn := r.dial()
	reader := bufio.NewReader(conn)
	d := r.daemon("d1")
	for range 3 {
		for _, c := range []*call{d.claimCall(1), d.releaseCall("shutdown"), d.fetchCall(wire.Grant{JobID: "j", LeaseID: "l"})} {
			var text bytes.Buffer
			require.NoError(t, r.request(t.Context(), c).Write(&text))
			resp := exchange(t, conn, reader, text.String())
			_, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.False(t, resp.Close)
		}
	}
}

// What is being received is bounded over all, for a caller and for an address; others wait for their turn.
func TestBodiesWaitForRoom(t *testing.T) {
	budget := session.NewBudget(32 * mib)
	r := newRig(t, func(_ *rig, _ *hubSettings, opts *poll.Options) { opts.Budget = budget })
	// The address has a quarter of the budget: one body of 8 MiB. This one doesn't come.
	half := r.daemonCall("d1", "result", strings.Repeat(" ", poll.MaxBodyBytes))
	conn := r.dial()
	var text bytes.Buffer
	require.NoError(t, r.request(t.Context(), half).Write(&text))
	_, err := conn.Write(text.Bytes()[:text.Len()/2])
	require.NoError(t, err)
	s, d := r.site("shop"), r.daemon("d2")
	for budget.Used() < poll.MaxBodyBytes {
		s.results()
	}
	waits := make(chan answered, 1)
	go func() {
		a, err := r.try(context.Background(), d.resultCall(wire.Grant{JobID: "j", LeaseID: "l"}, "shop", "ok", mib))
		assert.NoError(t, err)
		waits <- a
	}()
	for range 5 {
		d.heartbeat() // small ones don't wait for long ones
	}
	require.Empty(t, waits)
	_ = conn.Close()
	assert.Equal(t, http.StatusNotFound, (<-waits).status, "there is room again")
	r.seen.await(t, "result", "gone", 1)
	for budget.Used() > 0 {
		s.results()
	}
	assert.LessOrEqual(t, budget.Peak(), budget.Size())
}

// Nothing of what a client wrote is in the log, but the id of one that the projection knows; a class of refusals has one line.
func TestTheLogOfRefusals(t *testing.T) {
	r := newRig(t)
	const secret = "s3cret agent"
	for range 3 {
		c := r.daemonCall("d1", "release", `{"protocolVersion":"0","`+"s3cret"+`":1}`)
		r.send(c)
		c.caller = "s3cret"
		r.send(c)
		c.path = "/byollm/s3cret"
		r.send(c)
		c = r.daemonCall("d1", "release", `{"protocolVersion":"s3cret"}`)
		c.header.Set("User-Agent", secret)
		r.send(c)
		r.send(r.daemon("d1").fetchCall(wire.Grant{JobID: "s3cret", LeaseID: "s3cret"}))
	}
	r.seen.await(t, "release", "bad-request", 3)
	log := r.log.String()
	assert.NotContains(t, log, "s3cret")
	assert.Equal(t, 5, strings.Count(log, `"event":"poll-refused"`), log)
	assert.Contains(t, log, `"endpoint":"release","code":"bad-request","count":1,"caller":"d1"`)
}
