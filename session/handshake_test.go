package session

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"pushrelay/wire"
)

func TestHandshakeRefusals(t *testing.T) {
	r := newRelay(t)
	r.dir.unknown["stranger"] = true
	r.dir.revoked["revoked_1"] = true
	r.op.open = func(_ context.Context, s *Session) (Peer, wire.Welcome, error) {
		switch s.Caller() {
		case "outage":
			return nil, wire.Welcome{}, errors.New("the store is away")
		case "late":
			return nil, wire.Welcome{}, &EndError{Reason: ReasonUnknown, Text: "left meanwhile"}
		}
		return nil, wire.Welcome{}, nil
	}
	var secrets []string
	for name, c := range map[string]struct {
		path   string
		change func(*hello)
		code   websocket.StatusCode
		text   string
		word   string
	}{
		"version":      {change: func(h *hello) { h.version = "7" }, code: 4426, text: "version", word: "unsupported-protocol-version"},
		"no version":   {change: func(h *hello) { h.version = "" }, code: 4426, text: "version", word: "unsupported-protocol-version"},
		"unknown":      {change: func(h *hello) { h.caller = "stranger" }, code: 4401, text: "unknown", word: "unauthorized"},
		"key":          {change: func(h *hello) { h.signer = "somebody" }, code: 4401, text: "signature", word: "unauthorized"},
		"nonce":        {change: func(h *hello) { h.nonce = newNonce() }, code: 4401, text: "signature", word: "unauthorized"},
		"relay":        {change: func(h *hello) { h.relay = "wss://other.example/byollm/session" }, code: 4401, text: "signature", word: "unauthorized"},
		"endpoint":     {change: func(h *hello) { h.endpoint = wire.EndpointSite }, code: 4401, text: "signature", word: "unauthorized"},
		"role":         {change: func(h *hello) { h.role = wire.RoleSite }, code: 4401, text: "signature", word: "unauthorized"},
		"revoked":      {change: func(h *hello) { h.caller = "revoked_1" }, code: 4403, text: "revoked", word: "revoked"},
		"stolen":       {change: func(h *hello) { h.caller, h.signer = "revoked_1", "x" }, code: 4401, text: "signature", word: "unauthorized"},
		"outage":       {change: func(h *hello) { h.caller = "outage" }, code: 1013, text: "busy", word: "server-error"},
		"opener":       {change: func(h *hello) { h.caller = "late" }, code: 4401, text: "unknown", word: "unauthorized"},
		"empty caller": {change: func(h *hello) { h.caller = "" }, code: 4400, text: "bad-frame", word: "bad-request"},
		"no body role": {change: func(h *hello) { h.role = "" }, code: 4400, text: "bad-frame", word: "bad-request"},
		"site":         {path: wire.SitePath, change: func(h *hello) { h.signer = "x" }, code: 4401, text: "signature", word: "unauthorized"},
	} {
		t.Run(name, func(t *testing.T) {
			path := c.path
			if path == "" {
				path = wire.DaemonPath
			}
			ws := r.dial(t, path)
			ch := ws.read()
			frame := r.helloFrame(ch["nonce"].(string), path, c.change)
			var sent wire.Hello
			if err := json.Unmarshal([]byte(frame), &sent); err != nil {
				t.Fatal(err)
			}
			secrets = append(secrets, ch["nonce"].(string), sent.Signature)
			ws.write(frame)
			e, code, text := ws.closed()
			if code != c.code || !strings.HasPrefix(text, c.text) {
				t.Fatalf("closed with %d %q, want %d %q", code, text, c.code, c.text)
			}
			if e == nil || e["error"] != c.word {
				t.Fatalf("error frame %v, want %s", e, c.word)
			}
			if c.word == "unsupported-protocol-version" && (e["minimum"] != wire.Minimum() || e["supported"] == nil) {
				t.Fatalf("error frame %v", e)
			}
		})
	}
	r.seen.until(t, "all ended", func() bool { return len(r.seen.ended) == 15 })
	if r.seen.opened != 0 {
		t.Fatal("somebody was welcome")
	}
	for _, secret := range secrets {
		if strings.Contains(r.log.String(), secret) {
			t.Fatalf("the log has %s: %s", secret, r.log.String())
		}
	}
	if !strings.Contains(r.log.String(), `"caller":"stranger"`) {
		t.Fatal("the log does not say who was refused")
	}
}

func TestHelloComesFirst(t *testing.T) {
	r := newRelay(t)
	for name, send := range map[string]func(*raw){
		"request": func(c *raw) { c.write(`{"type":"heartbeat","id":"1","activeLeases":[]}`) },
		"junk":    func(c *raw) { c.write(`{"type":`) },
		"parts":   func(c *raw) { c.writeBinary([]byte{0, 0, 0, 1, 5, 0, 0, 0, 1, '{'}) },
		"empty":   func(c *raw) { c.write(``) },
		"array":   func(c *raw) { c.write(`[]`) },
	} {
		t.Run(name, func(t *testing.T) {
			c := r.dial(t, wire.DaemonPath)
			c.read()
			send(c)
			e, code, text := c.closed()
			if code != 4400 || !strings.HasPrefix(text, "bad-frame") || e["error"] != "bad-request" {
				t.Fatal(e, code, text)
			}
		})
	}
}

func TestSupersededKeyStillSigns(t *testing.T) {
	r := newRelay(t)
	old, next := keyOf("old"), keyOf("next")
	r.Server.cfg.Directory = twoKeys{next.Public().(edPublic), old.Public().(edPublic)}
	r.join(t, wire.SitePath, func(h *hello) { h.signer = "old" })
	if got := r.session(0).Key(); !got.Equal(old.Public()) {
		t.Fatal("another key")
	}
}

func TestWelcomeLongerThanAMessage(t *testing.T) {
	r := newRelay(t)
	r.op.open = func(_ context.Context, s *Session) (Peer, wire.Welcome, error) {
		s.Push([]byte(`{"type":"sites"}`)) // sent after the welcome
		w := wire.Welcome{Epoch: "e", Sites: map[string]wire.PublicIdentity{}}
		for range 2000 {
			w.Sites[newNonce()] = wire.PublicIdentity{Identity: newNonce(), Encryption: newNonce(), EncryptionSig: newNonce()}
		}
		return &stubPeer{r.op, s}, w, nil
	}
	h := newHandler()
	pushed := make(chan wire.FrameType, 1)
	h.push = func(_ *Conn, head wire.Head, _ []byte) { pushed <- head.Type }
	_, c := r.client(t, h, "runner_1", wire.RoleDaemon)
	if c.SessionID() == "" {
		t.Fatal("no id")
	}
	if p := <-pushed; p != wire.TypeSites {
		t.Fatal(p)
	}
}
