package wire_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pushrelay/wire"
)

func TestDeclaredVersion(t *testing.T) {
	for text, want := range map[string]string{
		`{"protocolVersion":"2"}`: "2", `{"a":{"protocolVersion":"0"},"protocolVersion":"2"}`: "2", ` {"protocolVersion" : "\u0032"} `: "2",
		`{"a":{"b":1,"b":2},"protocolVersion":"2"}`: "2", `{` + strings.Join(numbered(31), ",") + `,"protocolVersion":"2"}`: "2",
		`{` + strings.Join(numbered(33), ",") + `,"protocolVersion":"2"}`: "",
		`{}`: "", `{"protocolVersion":2}`: "", `{"protocolVersion":null}`: "", `[]`: "", `null`: "", `"2"`: "", ` 7 `: "",
	} {
		got, err := wire.DeclaredVersion([]byte(text))
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
	for _, text := range []string{``, ` `, `{`, `{"protocolVersion"`, `{"a":}`, `{"a":1,"a":2}`, `nul`, `{"a":1}x`} {
		_, err := wire.DeclaredVersion([]byte(text))
		assert.ErrorIs(t, err, &wire.Error{Code: wire.CodeBadRequest}, text)
	}
}

// numbered answers n members.
func numbered(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf(`"m%d":[]`, i)
	}
	return out
}

// It is asked of bodies that nobody has signed: 8 MiB of names must not become hundreds of megabytes of memory.
func TestDeclaredVersionNeedsNoMemory(t *testing.T) {
	for name, text := range map[string]string{
		"members":          "{" + strings.Join(numbered(100_000), ",") + "}",
		"members within":   `{"a":{` + strings.Join(numbered(100_000), ",") + `},"protocolVersion":"2"}`,
		"members in lists": `[{` + strings.Join(numbered(100_000), ",") + `}]`,
	} {
		raw := []byte(text)
		assert.Less(t, testing.AllocsPerRun(1, func() { _, _ = wire.DeclaredVersion(raw) }), 500.0, name)
	}
}

func FuzzDeclaredVersion(f *testing.F) {
	f.Add([]byte(`{"protocolVersion":"2"}`))
	f.Add([]byte(`{"a":[1,{"b":"c"}],"protocolVersion":"0"}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		v, err := wire.DeclaredVersion(raw)
		if err != nil {
			assert.Empty(t, v)
		}
	})
}

const fuzzEnvelope = `{"ciphertext":"AA","recipientKeyId":"r","senderKeyId":"s","direction":"payload","deadlineAt":1}`

func FuzzParseEnqueueRequest(f *testing.F) {
	stub := `{"id":"j","kind":"k","owner":"o","site":"s","audience":"self","sizeClass":"small","streaming":false,"deadlineAt":1}`
	f.Add([]byte(`{"protocolVersion":"0","siteId":"shop","stub":` + stub + `}`))
	f.Add([]byte(`{"protocolVersion":"2","siteId":"shop","stub":` + stub + `}`))
	f.Add([]byte(`{"protocolVersion":"0","siteId":"shop","stub":null}`))
	f.Add([]byte(`{"siteId":"shop","stub":{},"extra":1}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, d := range dialects() {
			r, err := wire.ParseEnqueueRequest(d, raw)
			if err != nil {
				assert.ErrorIs(t, err, &wire.Error{Code: wire.CodeBadRequest})
				continue
			}
			again, err := wire.ParseEnqueueRequest(d, wire.AppendEnqueueRequest(nil, d, r.SiteID, r.Stub.Raw))
			require.NoError(t, err)
			assert.Equal(t, r, again)
		}
	})
}

func FuzzParsePayloadRequest(f *testing.F) {
	f.Add([]byte(`{"protocolVersion":"0","siteId":"shop","jobId":"j","envelope":` + fuzzEnvelope + `}`))
	f.Add([]byte(`{"protocolVersion":"2","siteId":"","jobId":"j","envelope":[]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, d := range dialects() {
			r, err := wire.ParsePayloadRequest(d, raw)
			if err != nil {
				assert.ErrorIs(t, err, &wire.Error{Code: wire.CodeBadRequest})
				continue
			}
			again, err := wire.ParsePayloadRequest(d, wire.AppendPayloadRequest(nil, d, r.SiteID, r.JobID, r.Envelope.Raw))
			require.NoError(t, err)
			assert.Equal(t, r, again)
		}
	})
}

func FuzzParseCancelRequest(f *testing.F) {
	f.Add([]byte(`{"protocolVersion":"0","siteId":"shop","jobId":"j"}`))
	f.Add([]byte(`{"protocolVersion":"2","siteId":"shop","jobIds":["j"]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, d := range dialects() {
			r, err := wire.ParseCancelRequest(d, raw)
			if err != nil {
				assert.ErrorIs(t, err, &wire.Error{Code: wire.CodeBadRequest})
				continue
			}
			again, err := wire.ParseCancelRequest(d, wire.AppendCancelRequest(nil, d, r.SiteID, r.JobID))
			require.NoError(t, err)
			assert.Equal(t, r, again)
		}
	})
}

func FuzzParsePendingResponse(f *testing.F) {
	f.Add([]byte(`{"jobs":[]}`))
	f.Add([]byte(`{"jobs":[{"jobId":"j","leaseId":"l","runnerId":"r","device":{"identity":"i","encryption":"e","encryptionSig":"s"},"awaitingUntil":1,"leaseExpiresAt":2}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := wire.ParsePendingResponse(raw)
		if err != nil {
			return
		}
		again, err := wire.ParsePendingResponse(wire.AppendPendingResponse(nil, r.Jobs))
		require.NoError(t, err)
		assert.Equal(t, r, again)
	})
}

func FuzzParseResultsResponse(f *testing.F) {
	f.Add([]byte(`{"jobs":[]}`))
	f.Add([]byte(`{"jobs":[{"jobId":"j","leaseId":"l","envelope":` + fuzzEnvelope + `,"disposition":"ok","runnerId":"r","runnerOwner":"o","device":{"identity":"i","encryption":"e","encryptionSig":"s"}}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := wire.ParseResultsResponse(raw)
		if err != nil {
			return
		}
		text := wire.AppendResultsResponseHead(nil)
		for i, j := range r.Jobs {
			text = append(wire.AppendResultJobHead(text, i == 0, j), j.Envelope...)
			text = wire.AppendResultJobTail(text)
		}
		again, err := wire.ParseResultsResponse(wire.AppendResultsTail(text))
		require.NoError(t, err)
		assert.Equal(t, r, again)
	})
}
