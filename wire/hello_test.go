package wire_test

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pushrelay/wire"
)

func daemonHello() wire.HelloBody {
	return wire.HelloBody{
		ProtocolVersion: "0", Nonce: "n", Relay: "wss://relay.example/byollm/session", Role: wire.RoleDaemon,
		Client:       wire.ClientInfo{Name: "pushrelay", Version: "1.0.0", Platform: "linux"},
		Capabilities: jsontext.Value(`[]`), Slots: 4, Paused: true,
		ActiveLeases: []wire.Grant{{JobID: "j", LeaseID: "l"}},
	}
}

func TestParseHelloBody(t *testing.T) {
	want := daemonHello()
	got, err := wire.ParseHelloBody(must(wire.Encode(want)))
	require.NoError(t, err)
	assert.Equal(t, want, got)

	site := wire.HelloBody{
		ProtocolVersion: "2", Nonce: "n", Relay: "wss://r", Role: wire.RoleSite, Client: wire.ClientInfo{Name: "s", Version: "1"},
	}
	got, err = wire.ParseHelloBody(must(wire.Encode(site)))
	require.NoError(t, err)
	assert.Equal(t, site, got)

	_, err = wire.ParseHelloBody([]byte(`{"new":1,` + string(must(wire.Encode(want)))[1:]))
	assert.NoError(t, err, "unknown members are ignored")
}

func TestParseHelloBodyRefusals(t *testing.T) {
	long := strings.Repeat("x", 65)
	for name, change := range map[string]func(*wire.HelloBody){
		"no nonce":         func(b *wire.HelloBody) { b.Nonce = "" },
		"no relay":         func(b *wire.HelloBody) { b.Relay = "" },
		"unknown role":     func(b *wire.HelloBody) { b.Role = "secret" },
		"no slots":         func(b *wire.HelloBody) { b.Slots = 0 },
		"65 slots":         func(b *wire.HelloBody) { b.Slots = 65 },
		"negative slots":   func(b *wire.HelloBody) { b.Slots = -1 },
		"no capabilities":  func(b *wire.HelloBody) { b.Capabilities = nil },
		"bad capabilities": func(b *wire.HelloBody) { b.Capabilities = jsontext.Value(`[{}]`) },
		"no client":        func(b *wire.HelloBody) { b.Client = wire.ClientInfo{} },
		"long name":        func(b *wire.HelloBody) { b.Client.Name = long },
		"long version":     func(b *wire.HelloBody) { b.Client.Version = long },
		"long platform":    func(b *wire.HelloBody) { b.Client.Platform = long },
		"empty lease":      func(b *wire.HelloBody) { b.ActiveLeases = []wire.Grant{{}} },
		"1025 leases":      func(b *wire.HelloBody) { b.ActiveLeases = make([]wire.Grant, 1025) },
		"over 16 KiB":      func(b *wire.HelloBody) { b.Nonce = strings.Repeat("n", wire.MaxHelloBytes) },
	} {
		t.Run(name, func(t *testing.T) {
			b := daemonHello()
			change(&b)
			_, err := wire.ParseHelloBody(must(wire.Encode(b)))
			refused(t, err)
		})
	}
	for _, raw := range []string{``, `[]`, `{"protocolVersion":"0"`, `{"protocolVersion":"0","protocolVersion":"0"}`, `{"protocolVersion":"0","slots":"4"}`} {
		_, err := wire.ParseHelloBody([]byte(raw))
		refused(t, err)
	}
	// The version comes first: a client of another version learns so, whatever else it says.
	for _, raw := range []string{`{}`, `{"protocolVersion":"3","role":7}`, `{"protocolVersion":0}`, `{"protocolVersion":null}`} {
		_, err := wire.ParseHelloBody([]byte(raw))
		assert.ErrorIs(t, err, &wire.Error{Code: wire.CodeUnsupportedVersion}, raw)
	}
}

func TestSameRelay(t *testing.T) {
	public := []string{"https://Relay.Example", "http://127.0.0.1:8080/prefix", "wss://[2001:db8::1]:444"}
	for _, same := range []string{
		"wss://relay.example/byollm/session", "WSS://RELAY.example:443", "https://relay.example:443/x?y#z",
		"ws://127.0.0.1:8080", "https://[2001:DB8::1]:444/byollm/session",
	} {
		assert.True(t, wire.SameRelay(same, public), same)
	}
	for _, other := range []string{
		"", "relay.example", "//relay.example", "ws://relay.example", "http://relay.example:443", "wss://relay.example:444",
		"wss://evil.example/relay.example", "wss://relay.example.evil.example", "ftp://relay.example", "wss://", "wss://:443",
		"ws://127.0.0.1", "wss://relay.example@evil.example", "wss://relay.example:x", "%zz", "wss://[2001:db8::1]",
	} {
		assert.False(t, wire.SameRelay(other, public), other)
	}
	assert.False(t, wire.SameRelay("wss://relay.example", nil))
	assert.False(t, wire.SameRelay("wss://relay.example", []string{"%zz", ""}))
}
