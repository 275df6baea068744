package seal_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"pushrelay/wire"
	"pushrelay/wire/seal"
)

// The vectors under docs/ are for authors of clients. -update writes them anew; without it they are held to the code.
var update = flag.Bool("update", false, "write docs/vectors anew")

// partCase is one binary message and what a receiver makes of it.
type partCase struct {
	Name      string `json:"name"`
	Message   string `json:"messageHex"`       // without the filling
	Filling   int    `json:"filling,omitzero"` // so many bytes 0x61 follow
	Stream    uint32 `json:"stream,omitzero"`  // when accepted
	Flags     byte   `json:"flags,omitzero"`   // when accepted
	Total     uint32 `json:"total,omitzero"`   // of a first part
	DataBytes int    `json:"dataBytes,omitzero"`
	Refused   string `json:"refused,omitzero"` // bad or too-large
}

func (c partCase) message(t *testing.T) []byte {
	t.Helper()
	head, err := hex.DecodeString(c.Message)
	require.NoError(t, err)
	return append(head, bytes.Repeat([]byte{'a'}, c.Filling)...)
}

func partCases() []partCase {
	c := func(name, message string, filling int) partCase {
		return partCase{Name: name, Message: message, Filling: filling}
	}
	return []partCase{
		c("first part of 40,000 bytes on stream 1", "000000010400009c40", 32768),
		c("last part of them", "0000000101", 7232),
		c("a middle part, stream ids are big-endian", "0102030400", 32768),
		c("a whole frame in one part", "00000007050000000161", 0),
		c("an abort", "0000000102", 0),
		c("an abort with data", "000000010261", 0),
		c("an abort that is also last", "0000000103", 0),
		c("an unknown flag", "000000010861", 0),
		c("shorter than its header", "00000001", 0),
		c("a first part without its length", "00000001040000", 0),
		c("no data", "0000000100", 0),
		c("one byte over a part's limit", "0000000100", 32769),
		c("longest frame", "000000010400800000", 32768),
		c("one byte over the longest frame", "000000010400800001", 32768),
		c("more data than its length", "00000001040000000161", 1),
		c("first and last, and less data than its length", "00000001050000000361", 0),
	}
}

func judgePart(t *testing.T, c partCase) partCase {
	t.Helper()
	h, total, data, err := wire.ParsePart(c.message(t))
	c.Stream, c.Flags, c.Total, c.DataBytes, c.Refused = h.Stream, h.Flags, total, len(data), ""
	switch {
	case errors.Is(err, wire.ErrPartTooLarge):
		c.Refused = "too-large"
	case err != nil:
		c.Refused = "bad"
	}
	return c
}

// helloCase is a hello with all that a relay judges it by.
type helloCase struct {
	Name     string     `json:"name"`
	Endpoint string     `json:"endpoint"`
	Identity string     `json:"identityPublic"`
	Nonce    string     `json:"nonce"`  // of the challenge
	Relays   []string   `json:"relays"` // the relay's public URLs
	Hello    wire.Hello `json:"hello"`
	Signed   string     `json:"signedHex"` // the five lines
	Refused  string     `json:"refused,omitzero"`
}

func judgeHello(t *testing.T, c helloCase) helloCase {
	t.Helper()
	c.Refused = ""
	c.Signed = hex.EncodeToString(wire.CanonicalRequest(c.Endpoint, c.Hello.Caller, c.Hello.IssuedAt, []byte(c.Hello.Body)))
	key, err := wire.PublicIdentity{Identity: c.Identity}.Key()
	require.NoError(t, err)
	body, err := wire.ParseHelloBody([]byte(c.Hello.Body))
	if err != nil {
		var e *wire.Error
		require.ErrorAs(t, err, &e)
		c.Refused = string(e.Code)
		return c
	}
	err = wire.VerifySignature(key, c.Endpoint, c.Hello.Caller, c.Hello.IssuedAt, []byte(c.Hello.Body), c.Hello.Signature)
	switch {
	case err != nil:
		c.Refused = "signature"
	case body.Nonce != c.Nonce:
		c.Refused = "nonce"
	case !wire.SameRelay(body.Relay, c.Relays):
		c.Refused = "relay"
	}
	return c
}

// makeHellos signs the cases with a stored key of the shared vectors, so that they can be made again.
func makeHellos(t *testing.T) []helloCase {
	t.Helper()
	raw, err := os.ReadFile("../testdata/envelopes.json")
	require.NoError(t, err)
	var envs []struct {
		RecipientKeys jsontext.Value `json:"recipientKeys"`
	}
	require.NoError(t, json.Unmarshal(raw, &envs))
	keys, err := seal.ParseStoredKeys(envs[0].RecipientKeys)
	require.NoError(t, err)
	nonce := "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
	daemon := `{"protocolVersion":"0","nonce":"` + nonce + `","relay":"wss://relay.example.org/byollm/session","role":"daemon","client":{"name":"example","version":"1.0.0"},"capabilities":[{"kind":"llm.generate","backendId":"ollama","backendClass":"http","model":"llama3","offerScope":"self"}],"slots":2,"paused":false,"activeLeases":[]}`
	site := `{"protocolVersion":"2","nonce":"` + nonce + `","relay":"wss://RELAY.example.org:443","role":"site","client":{"name":"example","version":"1.0.0"}}`
	make := func(name, endpoint, caller, body string) helloCase {
		c := helloCase{Name: name, Endpoint: endpoint, Identity: keys.Public().Identity, Nonce: nonce, Relays: []string{"https://relay.example.org"}}
		c.Hello = wire.Hello{Type: wire.TypeHello, Caller: caller, IssuedAt: 1790000000123, Body: body}
		c.Hello.Signature = keys.SignRequest(endpoint, caller, c.Hello.IssuedAt, []byte(body))
		return c
	}
	cases := []helloCase{
		make("a daemon", wire.EndpointDaemon, "runner_1", daemon),
		make("a site; scheme, host and default port compare equal", wire.EndpointSite, "site_1", site),
		make("signed for the other role's endpoint", wire.EndpointSite, "runner_1", daemon),
		make("another nonce", wire.EndpointDaemon, "runner_1", daemon),
		make("another relay", wire.EndpointDaemon, "runner_1", daemon),
		make("the body was written anew after signing", wire.EndpointDaemon, "runner_1", daemon),
		make("another caller than signed", wire.EndpointDaemon, "runner_1", daemon),
		make("a version from the future", wire.EndpointDaemon, "runner_1", `{"protocolVersion":"9"}`),
		make("no slots", wire.EndpointDaemon, "runner_1", string(bytes.Replace([]byte(daemon), []byte(`"slots":2`), []byte(`"slots":0`), 1))),
	}
	cases[2].Endpoint = wire.EndpointDaemon
	cases[3].Nonce = "HwECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
	cases[4].Relays = []string{"https://other.example.org"}
	cases[5].Hello.Body = cases[5].Hello.Body[:len(cases[5].Hello.Body)-1] + " }"
	cases[6].Hello.Caller = "runner_2"
	return cases
}

func vectorFile[T any](t *testing.T, name string, fresh func() []T, judge func(*testing.T, T) T) {
	t.Helper()
	path := filepath.Join("..", "..", "docs", "vectors", name)
	if *update {
		cases := fresh()
		for i := range cases {
			cases[i] = judge(t, cases[i])
		}
		raw, err := json.Marshal(cases, jsontext.WithIndent(" "))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, append(raw, '\n'), 0o644))
	}
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	var cases []T
	require.NoError(t, json.Unmarshal(raw, &cases, json.RejectUnknownMembers(true)))
	require.Len(t, cases, len(fresh()))
	for _, c := range cases {
		require.Equal(t, c, judge(t, c))
	}
}

func TestDocumentedParts(t *testing.T) { vectorFile(t, "parts.json", partCases, judgePart) }

func TestDocumentedHellos(t *testing.T) {
	vectorFile(t, "hello.json", func() []helloCase { return makeHellos(t) }, judgeHello)
}
