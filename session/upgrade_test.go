package session

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"pushrelay/wire"
)

func (r *relay) try(t *testing.T, path string, header http.Header, subprotocols ...string) *http.Response {
	t.Helper()
	ws, resp, err := websocket.Dial(t.Context(), r.url+path, &websocket.DialOptions{Subprotocols: subprotocols, HTTPHeader: header})
	if err == nil {
		_ = ws.CloseNow()
	}
	if resp == nil {
		t.Fatal(err)
	}
	return resp
}

func TestUpgradeRefusals(t *testing.T) {
	r := newRelay(t, func(c *ServerConfig) { c.Origins = []string{"https://Console.example"} })
	host := strings.TrimPrefix(r.url, "ws://")
	origin := func(o string) http.Header { return http.Header{"Origin": {o}} }
	for name, c := range map[string]struct {
		path   string
		header http.Header
		proto  string
		status int
		what   string
	}{
		"plain":           {wire.DaemonPath, nil, wire.Subprotocol, 101, ""},
		"listed origin":   {wire.DaemonPath, origin("https://console.example"), wire.Subprotocol, 101, ""},
		"own host":        {wire.DaemonPath, origin("http://" + host), wire.Subprotocol, 403, RefusedOrigin},
		"foreign":         {wire.DaemonPath, origin("https://evil.example"), wire.Subprotocol, 403, RefusedOrigin},
		"null origin":     {wire.SitePath, origin("null"), wire.Subprotocol, 403, RefusedOrigin},
		"no subprotocol":  {wire.DaemonPath, nil, "", 400, RefusedSubprotocol},
		"other protocol":  {wire.DaemonPath, nil, "byollm.push.v0", 400, RefusedSubprotocol},
		"token in query":  {wire.DaemonPath + "?token=abc", nil, wire.Subprotocol, 400, RefusedQuery},
		"any query":       {wire.DaemonPath + "?x=1", nil, wire.Subprotocol, 400, RefusedQuery},
		"question mark":   {wire.DaemonPath + "?", nil, wire.Subprotocol, 400, RefusedQuery},
		"nobody's secret": {wire.SitePath + "?access_token=s3cr3t", nil, wire.Subprotocol, 400, RefusedQuery},
	} {
		t.Run(name, func(t *testing.T) {
			r.seen.mu.Lock()
			r.seen.refused = nil
			r.seen.mu.Unlock()
			var protos []string
			if c.proto != "" {
				protos = []string{c.proto}
			}
			resp := r.try(t, c.path, c.header, protos...)
			r.seen.mu.Lock()
			defer r.seen.mu.Unlock()
			if resp.StatusCode != c.status || c.what != "" && (len(r.seen.refused) != 1 || r.seen.refused[0] != c.what) {
				t.Fatal(resp.StatusCode, r.seen.refused)
			}
			if c.status == 101 && resp.Header.Get("Sec-WebSocket-Extensions") != "" {
				t.Fatal("compression was negotiated")
			}
		})
	}
	resp, err := http.Get(r.http.URL + wire.DaemonPath)
	if err != nil || resp.StatusCode != http.StatusUpgradeRequired {
		t.Fatal(resp, err)
	}
	_ = resp.Body.Close()
	if strings.Contains(r.log.String(), "s3cr3t") {
		t.Fatal("a token was logged")
	}
}

func TestBusyRelay(t *testing.T) {
	refused := func(t *testing.T, r *relay, what string) {
		t.Helper()
		resp := r.try(t, wire.DaemonPath, nil, wire.Subprotocol)
		after, err := strconv.Atoi(resp.Header.Get("Retry-After"))
		if resp.StatusCode != http.StatusServiceUnavailable || err != nil || after < 1 || after > 30 {
			t.Fatal(resp.StatusCode, resp.Header)
		}
		if got := r.seen.refused[len(r.seen.refused)-1]; got != what {
			t.Fatal(got)
		}
	}
	t.Run("per address", func(t *testing.T) {
		r := newRelay(t, func(c *ServerConfig) { c.Limits.MaxUnauthenticatedPerAddr = 2 })
		first := r.dial(t, wire.DaemonPath)
		r.dial(t, wire.DaemonPath)
		refused(t, r, RefusedAddr)
		first.write(r.helloFrame(first.read()["nonce"].(string), wire.DaemonPath))
		first.read() // welcome: it isn't a stranger any more
		_ = r.dial(t, wire.DaemonPath).ws.CloseNow()
	})
	t.Run("strangers", func(t *testing.T) {
		r := newRelay(t, func(c *ServerConfig) { c.Limits.MaxUnauthenticated = 1 })
		c := r.dial(t, wire.DaemonPath)
		refused(t, r, RefusedStrangers)
		_ = c.ws.CloseNow()
		r.seen.until(t, "ended", func() bool { return len(r.seen.ended) == 1 })
		r.join(t, wire.DaemonPath)
	})
	t.Run("sessions", func(t *testing.T) {
		r := newRelay(t, func(c *ServerConfig) { c.Limits.MaxSessions = 1 })
		r.join(t, wire.DaemonPath)
		refused(t, r, RefusedSessions)
	})
	t.Run("rate", func(t *testing.T) {
		r := newRelay(t, func(c *ServerConfig) { c.Limits.AcceptPerSecond = 0.001 })
		r.join(t, wire.DaemonPath)
		refused(t, r, RefusedRate)
	})
	t.Run("draining", func(t *testing.T) {
		r := newRelay(t)
		c := r.join(t, wire.DaemonPath)
		r.Refuse()
		refused(t, r, RefusedDraining)
		c.write(`{"type":"heartbeat","id":"1","activeLeases":[]}`)
		if m := c.read(); m["re"] != "1" {
			t.Fatal(m)
		}
	})
}

func TestClientAddr(t *testing.T) {
	l := Limits{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}}
	for _, c := range []struct {
		remote string
		hops   []string
		want   string
		key    string
	}{
		{"203.0.113.7:1", nil, "203.0.113.7", "203.0.113.7"},
		{"203.0.113.7:1", []string{"1.1.1.1"}, "203.0.113.7", "203.0.113.7"}, // nobody's proxy
		{"10.0.0.1:1", nil, "10.0.0.1", "10.0.0.1"},
		{"10.0.0.1:1", []string{"1.1.1.1"}, "1.1.1.1", "1.1.1.1"},
		{"10.0.0.1:1", []string{"6.6.6.6, 1.1.1.1"}, "1.1.1.1", "1.1.1.1"}, // the left one is forged
		{"10.0.0.1:1", []string{"6.6.6.6", "1.1.1.1, 10.2.2.2"}, "1.1.1.1", "1.1.1.1"},
		{"10.0.0.1:1", []string{"1.1.1.1, junk"}, "10.0.0.1", "10.0.0.1"},
		{"10.0.0.1:1", []string{"1.1.1.1:4711"}, "1.1.1.1", "1.1.1.1"},
		{"[fd00::1]:1", []string{"2001:db8:1:2:3::4"}, "2001:db8:1:2:3::4", "2001:db8:1:2::/64"},
		{"[fd00::1]:1", []string{"[2001:db8:1:2::9]:80"}, "2001:db8:1:2::9", "2001:db8:1:2::/64"},
		{"[::ffff:203.0.113.7]:1", nil, "203.0.113.7", "203.0.113.7"},
		{"@", nil, "invalid IP", "unknown"},
	} {
		r := &http.Request{RemoteAddr: c.remote, Header: http.Header{"X-Forwarded-For": c.hops}}
		got := l.clientAddr(r)
		if got.String() != c.want || addrKey(got) != c.key {
			t.Errorf("%s %q: %s, %s", c.remote, c.hops, got, addrKey(got))
		}
	}
}

// TestProductionChain upgrades as a deployment does: TLS that offers http/1.1, wrapped writers, server timeouts.
func TestProductionChain(t *testing.T) {
	op := &opener{}
	mux := http.NewServeMux()
	ts := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mux.ServeHTTP(wrapped{wrapped{w}}, r)
	}))
	ts.TLS = &tls.Config{NextProtos: []string{"http/1.1"}}
	ts.Config.ReadTimeout, ts.Config.WriteTimeout = 200*time.Millisecond, 200*time.Millisecond
	ts.StartTLS()
	defer ts.Close()
	srv, err := NewServer(ServerConfig{Opener: op, Directory: &directory{}, PublicURLs: []string{ts.URL}})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close(context.Background())
	op.handle = sendsEnvelopes(1 << 20)
	mux.Handle(wire.DaemonPath, srv.Handler(wire.RoleDaemon))
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ts.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &relay{url: ts.URL}
	h := newHandler()
	_, c := r.client(t, h, "runner_1", wire.RoleDaemon, func(cfg *ClientConfig) { cfg.CAFile = ca })
	for i := range 3 {
		begin := time.Now()
		if _, err := fetch(t.Context(), c, fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
		if _, err := result(t.Context(), c, fmt.Sprint(i), sealed(1<<20)); err != nil {
			t.Fatal(err)
		}
		t.Log(time.Since(begin))
		<-time.After(100 * time.Millisecond) // past the server's timeouts: they end with the upgrade
	}
}

// wrapped is a middleware's ResponseWriter that can't be hijacked but through Unwrap.
type wrapped struct{ w http.ResponseWriter }

func (w wrapped) Header() http.Header         { return w.w.Header() }
func (w wrapped) Write(p []byte) (int, error) { return w.w.Write(p) }
func (w wrapped) WriteHeader(status int)      { w.w.WriteHeader(status) }
func (w wrapped) Unwrap() http.ResponseWriter { return w.w }
