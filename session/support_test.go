package session

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"pushrelay/wire"
)

// directory is a stub: every caller has the key that is derived from its id, unless told otherwise.
type directory struct {
	mu      sync.Mutex
	unknown map[string]bool
	revoked map[string]bool
}

func keyOf(id string) ed25519.PrivateKey {
	seed := make([]byte, ed25519.SeedSize)
	copy(seed, id)
	return ed25519.NewKeyFromSeed(seed)
}

func (d *directory) Caller(_, id string) (Caller, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.unknown[id] {
		return Caller{}, false
	}
	return Caller{Keys: []ed25519.PublicKey{keyOf(id).Public().(ed25519.PublicKey)}, Revoked: d.revoked[id]}, true
}

// opener is a stub hub.
type opener struct {
	open   func(ctx context.Context, s *Session) (Peer, wire.Welcome, error)
	handle func(ctx context.Context, s *Session, r *Request)

	mu       sync.Mutex
	sessions []*Session
	closed   []End
}

func (o *opener) Open(ctx context.Context, s *Session) (Peer, wire.Welcome, error) {
	if o.open != nil {
		p, w, err := o.open(ctx, s)
		if p != nil || err != nil {
			return p, w, err
		}
	}
	o.mu.Lock()
	o.sessions = append(o.sessions, s)
	o.mu.Unlock()
	return &stubPeer{o, s}, wire.Welcome{Epoch: "e1", LeaseMs: 60000, HeartbeatMs: 20000}, nil
}

type stubPeer struct {
	o *opener
	s *Session
}

func (p *stubPeer) Handle(ctx context.Context, r *Request) {
	if p.o.handle != nil {
		p.o.handle(ctx, p.s, r)
		return
	}
	r.Reply(wire.AppendReplyOK(nil, r.ID()))
}

func (p *stubPeer) Closed(e End) {
	p.o.mu.Lock()
	p.o.closed = append(p.o.closed, e)
	p.o.mu.Unlock()
}

// observer remembers what was counted.
type counted struct {
	mu      sync.Mutex
	opened  int
	ended   []Reason
	sums    []Summary
	refused []string
	change  chan struct{}
}

func newCounted() *counted { return &counted{change: make(chan struct{}, 1<<16)} }

func (c *counted) Opened(string) { c.mu.Lock(); c.opened++; c.mu.Unlock(); c.change <- struct{}{} }
func (c *counted) Ended(_ string, r Reason, s Summary) {
	c.mu.Lock()
	c.ended = append(c.ended, r)
	c.sums = append(c.sums, s)
	c.mu.Unlock()
	c.change <- struct{}{}
}

func (c *counted) Refused(w string) {
	c.mu.Lock()
	c.refused = append(c.refused, w)
	c.mu.Unlock()
	c.change <- struct{}{}
}

// until waits for a condition over what was counted.
func (c *counted) until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	limit := time.After(3 * time.Minute)
	for {
		c.mu.Lock()
		done := ok()
		c.mu.Unlock()
		if done {
			return
		}
		select {
		case <-c.change:
		case <-limit:
			t.Fatalf("never: %s", what)
		}
	}
}

// relay is a Server behind a real http.Server.
type relay struct {
	*Server
	http *httptest.Server
	op   *opener
	dir  *directory
	seen *counted
	url  string // ws://host:port
	log  *syncBuffer
}

type syncBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func newRelay(t testing.TB, change ...func(*ServerConfig)) *relay {
	t.Helper()
	r := &relay{
		op: &opener{}, dir: &directory{unknown: map[string]bool{}, revoked: map[string]bool{}}, seen: newCounted(), log: &syncBuffer{},
	}
	mux := http.NewServeMux()
	r.http = httptest.NewServer(mux)
	r.url = "ws" + strings.TrimPrefix(r.http.URL, "http")
	cfg := ServerConfig{
		Opener: r.op, Directory: r.dir, PublicURLs: []string{r.url}, Version: "test", Observer: r.seen, Log: zerolog.New(r.log),
	}
	for _, f := range change {
		f(&cfg)
	}
	var err error
	if r.Server, err = NewServer(cfg); err != nil {
		t.Fatal(err)
	}
	mux.Handle(wire.DaemonPath, r.Handler(wire.RoleDaemon))
	mux.Handle(wire.SitePath, r.Handler(wire.RoleSite))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = r.Close(ctx)
		r.http.Close()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	})
	return r
}

// raw is a client made of the bare library.
type raw struct {
	t  testing.TB
	ws *websocket.Conn
}

func (r *relay) dial(t testing.TB, path string) *raw {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, r.url+path, &websocket.DialOptions{Subprotocols: []string{wire.Subprotocol}})
	if err != nil {
		t.Fatal(err)
	}
	ws.SetReadLimit(1 << 20)
	t.Cleanup(func() { _ = ws.CloseNow() })
	return &raw{t, ws}
}

func within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	context.AfterFunc(ctx, cancel)
	return ctx
}

// read answers the next text frame as a map.
func (c *raw) read() map[string]any {
	c.t.Helper()
	m, err := c.tryRead()
	if err != nil {
		c.t.Fatal(err)
	}
	return m
}

func (c *raw) tryRead() (map[string]any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	typ, b, err := c.ws.Read(ctx)
	if err != nil {
		return nil, err
	}
	if typ != websocket.MessageText {
		return nil, errors.New("binary")
	}
	var m map[string]any
	return m, json.Unmarshal(b, &m)
}

func (c *raw) write(text string) {
	c.t.Helper()
	if err := c.ws.Write(context.Background(), websocket.MessageText, []byte(text)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *raw) writeBinary(b []byte) {
	c.t.Helper()
	if err := c.ws.Write(context.Background(), websocket.MessageBinary, b); err != nil {
		c.t.Fatal(err)
	}
}

// closed reads to the end: the last error frame, and the close frame.
func (c *raw) closed() (lastError map[string]any, code websocket.StatusCode, text string) {
	c.t.Helper()
	for {
		m, err := c.tryRead()
		var ce websocket.CloseError
		switch {
		case err == nil:
			if m["type"] == "error" {
				lastError = m
			}
		case errors.As(err, &ce):
			return lastError, ce.Code, ce.Reason
		default:
			c.t.Fatalf("no close frame: %v", err)
		}
	}
}

// hello is what a test may change of a hello.
type hello struct {
	caller, version, nonce, relay, role, endpoint, signer string
}

func (r *relay) helloFrame(nonce string, path string, change ...func(*hello)) string {
	h := hello{caller: "runner_1", version: "0", nonce: nonce, relay: r.url + path, role: wire.RoleDaemon, endpoint: wire.EndpointDaemon}
	if path == wire.SitePath {
		h.role, h.endpoint = wire.RoleSite, wire.EndpointSite
	}
	for _, f := range change {
		f(&h)
	}
	if h.signer == "" {
		h.signer = h.caller
	}
	b := wire.HelloBody{
		ProtocolVersion: h.version, Nonce: h.nonce, Relay: h.relay, Role: h.role, Client: wire.ClientInfo{Name: "test", Version: "1"},
	}
	if h.role == wire.RoleDaemon {
		b.Slots, b.Capabilities = 4, []byte("[]")
	}
	body, err := wire.Encode(b)
	if err != nil {
		panic(err)
	}
	at := time.Now().UnixMilli()
	frame, err := wire.Encode(wire.Hello{
		Type: wire.TypeHello, Caller: h.caller, IssuedAt: at, Body: string(body), Signature: sign(h.signer, h.endpoint, h.caller, at, body),
	})
	if err != nil {
		panic(err)
	}
	return string(frame)
}

func sign(signer, endpoint, caller string, at int64, body []byte) string {
	return wire.EncodeBase64(ed25519.Sign(keyOf(signer), wire.CanonicalRequest(endpoint, caller, at, body)))
}

// join dials and shakes hands.
func (r *relay) join(t testing.TB, path string, change ...func(*hello)) *raw {
	t.Helper()
	c := r.dial(t, path)
	ch := c.read()
	c.write(r.helloFrame(ch["nonce"].(string), path, change...))
	if w := c.read(); w["type"] != "welcome" {
		t.Fatalf("no welcome: %v", w)
	}
	return c
}

func (r *relay) session(i int) *Session {
	r.op.mu.Lock()
	defer r.op.mu.Unlock()
	return r.op.sessions[i]
}

type edPublic = ed25519.PublicKey

// twoKeys is a directory whose every caller may sign with two keys.
type twoKeys [2]ed25519.PublicKey

func (k twoKeys) Caller(string, string) (Caller, bool) { return Caller{Keys: k[:]}, true }

// client runs a Client against the relay until the test ends, and answers its first session.
func (r *relay) client(t testing.TB, h *clientHandler, caller, role string, change ...func(*ClientConfig)) (*Client, *Conn) {
	t.Helper()
	cfg := r.clientConfig(h, caller, role)
	for _, f := range change {
		f(&cfg)
	}
	cl, err := NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- cl.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	select {
	case c := <-h.welcome:
		return cl, c
	case <-time.After(20 * time.Second):
		t.Fatal("no welcome")
		return nil, nil
	}
}

// dialTCP upgrades by hand, for what no library would send.
func (r *relay) dialTCP(t testing.TB, path string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "ws://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	return conn, upgradeByHand(t, conn, path)
}

func upgradeByHand(t testing.TB, conn net.Conn, path string) *bufio.Reader {
	t.Helper()
	_, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: relay\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: "+wire.Subprotocol+"\r\n\r\n")
	if err != nil {
		t.Fatal(err)
	}
	br := bufio.NewReader(conn)
	resp, err := http.ReadResponse(br, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(resp, err)
	}
	return br
}

// readFrame reads one unmasked frame.
func readFrame(t testing.TB, br *bufio.Reader) (op byte, payload []byte) {
	t.Helper()
	op, payload, err := tryReadFrame(br)
	if err != nil {
		t.Fatal(err)
	}
	return op, payload
}

func tryReadFrame(br *bufio.Reader) (op byte, payload []byte, err error) {
	head := make([]byte, 2)
	if _, err := io.ReadFull(br, head); err != nil {
		return 0, nil, err
	}
	n := uint64(head[1])
	switch n {
	case 126:
		b := make([]byte, 2)
		_, err = io.ReadFull(br, b)
		n = uint64(binary.BigEndian.Uint16(b))
	case 127:
		b := make([]byte, 8)
		_, err = io.ReadFull(br, b)
		n = binary.BigEndian.Uint64(b)
	}
	if err != nil {
		return 0, nil, err
	}
	payload = make([]byte, n)
	_, err = io.ReadFull(br, payload)
	return head[0] & 0x0F, payload, err
}

// budgetEmpties waits until all memory is given back: the writer lets go of a frame's just after it wrote it.
func (r *relay) budgetEmpties(t testing.TB) {
	t.Helper()
	require.Eventually(t, func() bool { return r.Server.cfg.Budget.Used() == 0 }, 5*time.Second, time.Millisecond,
		"bytes of the budget are lost")
}
