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

// Results beyond 16 MiB, and beyond 64, come with the next call; a large one always fits.
func TestResultsComeInPortions(t *testing.T) {
	r := newRig(t)
	d, s := r.daemon("d1"), r.quiet("shop")
	portion := func(from, n, size int, want ...int) {
		t.Helper()
		for i := range n {
			id := fmt.Sprintf("job-%d", from+i)
			s.enqueue(id, "ada")
			jobs := d.claim(1)
			require.Len(t, jobs, 1)
			s.seal(s.pending()[0])
			require.True(t, ok[wire.ResultResponse](r, d.resultCall(grantOf(jobs[0]), "shop", "ok", size)).Accepted)
		}
		for _, most := range want {
			got := s.results()
			assert.Len(t, got, most)
		}
	}
	portion(0, 5, 5*mib, 3, 2, 0)
	portion(100, 70, 100, 64, 6, 0)
	portion(200, 3, 40<<10, 3, 0)
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
	for budget.Used() < poll.MaxBodyBytes {
		_, err := r.try(t.Context(), r.siteGet("shop", "results", "0")) // they need no room
		require.NoError(t, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	waits := make(chan error, 1)
	go func() {
		_, err := r.try(ctx, r.daemon("d2").releaseCall("shutdown"))
		waits <- err
	}()
	s := r.site("shop")
	for range 5 {
		assert.Empty(t, s.results(), "others are served")
	}
	require.Empty(t, waits)
	_ = conn.Close()
	require.NoError(t, <-waits, "there is room again")
	cancel()
	r.seen.await(t, "result", "gone", 1)
	for budget.Used() > 0 {
		s.results()
	}
	assert.LessOrEqual(t, budget.Peak(), budget.Size())
}
