package session

import (
	"context"
	"testing"
	"time"

	"github.com/coder/websocket"

	"pushrelay/wire"
)

func TestRequestIsAnswered(t *testing.T) {
	r := newRelay(t)
	c := r.join(t, wire.DaemonPath)
	c.write(`{"type":"heartbeat","id":"1","activeLeases":[]}`)
	if m := c.read(); m["type"] != "reply" || m["re"] != "1" {
		t.Fatal(m)
	}
}

func TestOrderlyCloseByPeer(t *testing.T) {
	r := newRelay(t)
	c := r.join(t, wire.SitePath)
	begin := time.Now()
	if err := c.ws.Close(websocket.StatusNormalClosure, "bye"); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(begin); d > 2*time.Second {
		t.Fatal(d)
	}
	r.seen.until(t, "ended", func() bool { return len(r.seen.ended) == 1 })
	if r.seen.ended[0] != ReasonPeer {
		t.Fatal(r.seen.ended)
	}
}

type clientHandler struct {
	welcome chan *Conn
	push    func(c *Conn, head wire.Head, frame []byte)
	ended   chan End
}

func (h *clientHandler) Welcome(_ context.Context, c *Conn, _ wire.Welcome) { h.welcome <- c }
func (h *clientHandler) Push(_ context.Context, c *Conn, head wire.Head, frame []byte) {
	if h.push != nil {
		h.push(c, head, frame)
	}
}
func (h *clientHandler) Ended(_ *Conn, e End) { h.ended <- e }

func newHandler() *clientHandler {
	return &clientHandler{welcome: make(chan *Conn, 16), ended: make(chan End, 16)}
}

func (r *relay) clientConfig(h ClientHandler, caller, role string) ClientConfig {
	return ClientConfig{
		URL: r.url, Caller: caller, Role: role, Handler: h,
		Sign: func(endpoint, caller string, at int64, body []byte) string {
			return sign(caller, endpoint, caller, at, body)
		},
		Body: func(b *wire.HelloBody) {
			b.ProtocolVersion, b.Client = "0", wire.ClientInfo{Name: "c", Version: "1"}
			if role == wire.RoleDaemon {
				b.Slots, b.Capabilities = 4, []byte("[]")
			}
		},
	}
}

func TestClientRoundTrip(t *testing.T) {
	r := newRelay(t)
	h := newHandler()
	cl, err := NewClient(r.clientConfig(h, "site_1", wire.RoleSite))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- cl.Run(ctx) }()
	c := <-h.welcome
	reply, err := c.Request(ctx, func(dst []byte, id string) []byte {
		return wire.AppendCancelJobs(dst, id, []string{"j1"})
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Log(string(reply))
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	t.Log(<-h.ended)
}
