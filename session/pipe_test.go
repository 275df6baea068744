package session

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/rs/zerolog"

	"pushrelay/session/internal/pipe"
	"pushrelay/wire"
)

// bubble is a relay in fake time; close it before the bubble ends.
type bubble struct {
	*relay
	pipes *pipe.Listener
	srv   *http.Server
	trans *http.Transport
}

func newBubble(t testing.TB, change ...func(*ServerConfig)) *bubble {
	t.Helper()
	b := &bubble{pipes: pipe.New(), relay: &relay{
		op: &opener{}, dir: &directory{unknown: map[string]bool{}, revoked: map[string]bool{}}, seen: newCounted(), log: &syncBuffer{}, url: "ws://relay",
	}}
	cfg := ServerConfig{
		Opener: b.op, Directory: b.dir, PublicURLs: []string{b.url}, Version: "test", Observer: b.seen, Log: zerolog.New(b.log),
	}
	for _, f := range change {
		f(&cfg)
	}
	var err error
	if b.Server, err = NewServer(cfg); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle(wire.DaemonPath, b.Handler(wire.RoleDaemon))
	mux.Handle(wire.SitePath, b.Handler(wire.RoleSite))
	b.srv = &http.Server{Handler: mux}
	go func() { _ = b.srv.Serve(b.pipes) }()
	b.trans = &http.Transport{DialContext: b.pipes.Dial, DisableKeepAlives: true}
	return b
}

func (b *bubble) close() {
	_ = b.Close(context.Background())
	_ = b.srv.Close()
}

// dial is relay.dial over a pipe.
func (b *bubble) dial(t testing.TB, path string) *raw {
	t.Helper()
	ws, _, err := websocket.Dial(context.Background(), b.url+path, &websocket.DialOptions{
		Subprotocols: []string{wire.Subprotocol}, HTTPClient: &http.Client{Transport: b.trans},
	})
	if err != nil {
		t.Fatal(err)
	}
	ws.SetReadLimit(1 << 20)
	return &raw{t, ws}
}

func (b *bubble) join(t testing.TB, path string, change ...func(*hello)) *raw {
	t.Helper()
	c := b.dial(t, path)
	ch := c.read()
	c.write(b.helloFrame(ch["nonce"].(string), path, change...))
	if w := c.read(); w["type"] != "welcome" {
		t.Fatalf("no welcome: %v", w)
	}
	return c
}

// byHand is a connection without a library that would read by itself.
func (b *bubble) byHand(t testing.TB, path string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := b.pipes.Dial(context.Background(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	return conn, upgradeByHand(t, conn, path)
}

// joinByHand shakes hands on such a connection.
func (b *bubble) joinByHand(t testing.TB) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, br := b.byHand(t, wire.DaemonPath)
	_, challenge := readFrame(t, br)
	ch, err := wire.Decode[wire.Challenge](challenge)
	if err != nil {
		t.Fatal(err)
	}
	hello := b.helloFrame(ch.Nonce, wire.DaemonPath)
	if _, err := conn.Write(appendMessage(nil, opText, true, []byte(hello))); err != nil {
		t.Fatal(err)
	}
	if _, w := readFrame(t, br); !strings.Contains(string(w), "welcome") {
		t.Fatal(string(w))
	}
	return conn, br
}
