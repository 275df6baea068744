package wire_test

import (
	"bytes"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pushrelay/wire"
)

// seed adds the values of one shape from the vectors, of both dialects.
func seed(f *testing.F, shape string) {
	f.Helper()
	for _, c := range vectors[schemaCase](f, "schema.json", 1566) {
		if c.Shape == shape {
			f.Add([]byte(c.Value))
		}
	}
}

func dialects() []wire.Dialect { return []wire.Dialect{wire.Dialect0, wire.Dialect2} }

func FuzzParseStub(f *testing.F) {
	seed(f, "JobStub")
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, d := range dialects() {
			s, err := wire.ParseStub(d, raw)
			if err != nil {
				continue
			}
			again, err := wire.ParseStub(d, s.Raw)
			require.NoError(t, err)
			assert.Equal(t, s, again)
			written, err := wire.ParseStub(d, wire.AppendStub(nil, s))
			require.NoError(t, err)
			written.Raw = s.Raw
			assert.Equal(t, s, written)
			back, err := wire.ParseClaimed(d, s.AppendClaimed(nil, s.ID, s.Owner, 1))
			require.NoError(t, err)
			assert.Equal(t, wire.ClaimLease{ID: s.ID, RunnerID: s.Owner, ExpiresAt: 1}, back.Lease)
			back.Stub.Raw = s.Raw // names with escapes are written plainly in a claimed job's stub
			assert.Equal(t, s, *back.Stub)
		}
	})
}

func FuzzParseClaimed(f *testing.F) {
	for _, c := range vectors[schemaCase](f, "schema.json", 1566) {
		if r, err := wire.Decode[wire.Claimed](c.Value); c.Shape == "ClaimResponse" && err == nil {
			for _, j := range r.Jobs {
				f.Add([]byte(j))
			}
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, d := range dialects() {
			j, err := wire.ParseClaimed(d, raw)
			if err != nil {
				continue
			}
			s := *j.Stub
			again, err := wire.ParseStub(d, s.Raw)
			require.NoError(t, err)
			again.Raw = s.Raw
			assert.Equal(t, s, again)
		}
	})
}

func FuzzParseEnvelope(f *testing.F) {
	seed(f, "SealedEnvelope")
	f.Add(sealedOf(8 << 10))
	f.Add(append(sealedOf(8 << 10)[:6<<10], "\x01\",\"recipientKeyId\":\"r\"}"...))
	f.Fuzz(func(t *testing.T, raw []byte) {
		e, err := wire.ParseEnvelope(raw)
		// A leading space sends the same text past the short way: both must decide alike.
		slow, slowErr := wire.ParseEnvelope(append([]byte{'{', ' '}, bytes.TrimPrefix(raw, []byte{'{'})...))
		if bytes.HasPrefix(raw, []byte{'{'}) {
			require.Equal(t, err == nil, slowErr == nil, "%v / %v", err, slowErr)
		}
		if err != nil {
			return
		}
		if bytes.HasPrefix(raw, []byte{'{'}) {
			slow.Raw = e.Raw
			assert.Equal(t, e, slow)
		}
		require.True(t, jsontext.Value(e.Raw).IsValid())
		again, err := wire.ParseEnvelope(e.Raw)
		require.NoError(t, err)
		assert.Equal(t, e, again)
		text, err := e.Ciphertext()
		require.NoError(t, err)
		written, err := wire.ParseEnvelope(wire.AppendEnvelope(nil, e, string(text)))
		require.NoError(t, err)
		written.Raw = e.Raw
		assert.Equal(t, e, written)
	})
}

func FuzzParseCapabilities(f *testing.F) {
	for _, c := range vectors[schemaCase](f, "schema.json", 1566) {
		if r, err := wire.Decode[wire.Heartbeat](c.Value); c.Shape == "HeartbeatRequest" && err == nil {
			f.Add([]byte(r.Capabilities))
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, d := range dialects() {
			caps, err := wire.ParseCapabilities(d, raw)
			if err != nil {
				continue
			}
			again, err := wire.ParseCapabilities(d, wire.AppendCapabilities(nil, d, caps))
			require.NoError(t, err)
			assert.Equal(t, caps, again)
		}
	})
}

// FuzzShapes drives every polling body; shape picks one of them.
func FuzzShapes(f *testing.F) {
	shapes := []string{
		"PairStartRequest", "PairPollRequest", "ClaimRequest", "ClaimResponse", "FetchRequest", "HeartbeatRequest",
		"HeartbeatResponse", "ReleaseRequest", "ResultRequest", "WireError", "PublicIdentity",
	}
	for _, c := range vectors[schemaCase](f, "schema.json", 1566) {
		for i, s := range shapes {
			if s == c.Shape {
				f.Add(byte(i), []byte(c.Value))
			}
		}
	}
	f.Fuzz(func(t *testing.T, shape byte, raw []byte) {
		for _, d := range dialects() {
			parse := wire.Shape(shapes[int(shape)%len(shapes)])
			if parse(d, raw) == nil {
				require.True(t, jsontext.Value(raw).IsValid())
			}
		}
	})
}

func FuzzParseHelloBody(f *testing.F) {
	f.Add([]byte(must(wire.Encode(daemonHello()))))
	f.Add([]byte(`{"protocolVersion":"2","nonce":"n","relay":"r","role":"site","client":{"name":"n","version":"v"}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		b, err := wire.ParseHelloBody(raw)
		if err != nil {
			return
		}
		text, err := wire.Encode(b)
		if err != nil || len(text) > wire.MaxHelloBytes { // a member that was absent, or escapes that grew
			return
		}
		again, err := wire.ParseHelloBody(text)
		require.NoError(t, err)
		b.Capabilities, again.Capabilities = nil, nil // whitespace in it isn't kept
		if len(b.ActiveLeases) == 0 {
			b.ActiveLeases = nil
		}
		if len(again.ActiveLeases) == 0 {
			again.ActiveLeases = nil
		}
		assert.Equal(t, b, again)
		wire.SameRelay(b.Relay, []string{b.Relay})
	})
}

func FuzzParsePart(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, wire.PartFirst, 0, 0, 0, 9, 'x'})
	f.Add([]byte{0, 0, 0, 1, wire.PartLast, 'x'})
	f.Add([]byte{0, 0, 0, 1, wire.PartAbort})
	f.Fuzz(func(t *testing.T, msg []byte) {
		h, total, data, err := wire.ParsePart(msg)
		if err != nil {
			return
		}
		assert.Equal(t, msg, append(wire.AppendPartHeader(nil, h, total), data...))
	})
}

// frameRoundTrip decodes raw as T; what is accepted must encode and decode to the same.
func frameRoundTrip[T any](t *testing.T, raw []byte) {
	t.Helper()
	v, err := wire.Decode[T](raw)
	if err != nil {
		return
	}
	text, err := wire.Encode(v)
	if err != nil { // a raw member that was absent
		return
	}
	again, err := wire.Decode[T](text)
	require.NoError(t, err, "%s", text)
	more, err := wire.Encode(again)
	require.NoError(t, err)
	assert.Equal(t, string(text), string(more))
}

func FuzzDecode(f *testing.F) {
	grants := []wire.Grant{grant1, grant2}
	sealed := sealedOf(64)
	for _, frame := range [][]byte{
		wire.AppendGrants(nil, wire.TypeAccept, "1", grants),
		wire.AppendRelease(nil, "1", grants, wire.ReleasePause),
		wire.AppendFetch(nil, "1", grant1),
		wire.AppendTail(append(wire.AppendResultHead(nil, "1", grant1, "ok"), sealed...)),
		wire.AppendTail(append(wire.AppendSealHead(nil, "1", "j", "l"), sealed...)),
		wire.AppendEnqueue(nil, "1", []jsontext.Value{jsontext.Value(stub0)}),
		wire.AppendCancelJobs(nil, "1", []string{odd}),
		wire.AppendSealRequest(nil, []wire.SealJob{{JobID: "j", Device: device}}),
		wire.AppendHeartbeatReply(nil, "1", grants, grants, 1, []string{odd}),
		wire.AppendErrorFrame(nil, "1", wire.UnsupportedVersion("")),
		[]byte(`{"type":"heartbeat","id":"1","activeLeases":[],"paused":true,"capabilities":[]}`),
		[]byte(`{"type":"ready","id":"1","capabilities":[],"slots":1,"paused":false}`),
		[]byte(`{"type":"hello","caller":"c","issuedAt":1,"signature":"s","body":"b"}`),
	} {
		f.Add(frame)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		h, err := wire.DecodeHead(raw)
		if err == nil {
			require.True(t, jsontext.Value(raw).IsValid())
			peeked, err := wire.PeekHead(raw)
			require.NoError(t, err)
			assert.Equal(t, h, peeked)
		}
		frameRoundTrip[wire.Hello](t, raw)
		frameRoundTrip[wire.Ready](t, raw)
		frameRoundTrip[wire.Grants](t, raw)
		frameRoundTrip[wire.Fetch](t, raw)
		frameRoundTrip[wire.Heartbeat](t, raw)
		frameRoundTrip[wire.Result](t, raw)
		frameRoundTrip[wire.Release](t, raw)
		frameRoundTrip[wire.Enqueue](t, raw)
		frameRoundTrip[wire.Seal](t, raw)
		frameRoundTrip[wire.CancelJobs](t, raw)
		frameRoundTrip[wire.Welcome](t, raw)
		frameRoundTrip[wire.Results](t, raw)
		_, _, _ = wire.ParseErrorFrame(raw)
	})
}
