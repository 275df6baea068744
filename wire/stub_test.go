package wire_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pushrelay/wire"
)

const stub0 = `{"id":"job_1","kind":"llm.generate","owner":"alice","site":"BYOLLM-S","audience":"self","sizeClass":"small","streaming":false,"deadlineAt":1790000000000}`

const stub2 = `{"id":"job_1","kind":"llm.generate","owner":"alice","site":"BYOLLM-S","audience":"team","purpose":"drafting","sizeClass":"large","streaming":true,"deadlineAt":1790000000000}`

// refused asserts a bad-request whose message doesn't repeat the input.
func refused(t *testing.T, err error) {
	t.Helper()
	require.Error(t, err)
	assert.ErrorIs(t, err, &wire.Error{Code: wire.CodeBadRequest})
	assert.NotContains(t, err.Error(), "secret")
}

func TestParseStubKeepsTheText(t *testing.T) {
	spaced := "\n{ \"deadlineAt\" : 1790000000000.0,\t\"id\":\"job\\u005f1 <\u2028>\"," + stub0[len(`{"id":"job_1",`):len(stub0)-len(`,"deadlineAt":1790000000000}`)] + " }\n"
	raw := []byte(spaced)
	s, err := wire.ParseStub(wire.Dialect0, raw)
	require.NoError(t, err)
	for i := range raw {
		raw[i] = 'x' // the copy is private
	}
	assert.Equal(t, "job_1 <\u2028>", s.ID)
	assert.Equal(t, int64(1790000000000), s.DeadlineAt)
	assert.True(t, s.Private())
	assert.True(t, strings.HasPrefix(string(s.Raw), "{\"deadlineAt\":1790000000000.0,\"id\":\"job\\u005f1 <\u2028>\",\"kind\":"), string(s.Raw))

	claimed := s.AppendClaimed(nil, "lease\"1", "runner_1", 42)
	back, err := wire.ParseClaimed(wire.Dialect0, claimed)
	require.NoError(t, err)
	assert.Equal(t, wire.ClaimLease{ID: "lease\"1", RunnerID: "runner_1", ExpiresAt: 42}, back.Lease)
	assert.Equal(t, s, *back.Stub)
}

// TestLongestStub has every string at its bound and written as long as JSON allows.
func TestLongestStub(t *testing.T) {
	id := strings.Repeat(`\u0001`, wire.MaxIDBytes)
	raw := strings.NewReplacer("job_1", id, "llm.generate", id, "alice", id, "BYOLLM-S", id, "drafting", id, ",", ", ").Replace(stub2)
	s, err := wire.ParseStub(wire.Dialect2, []byte(raw+strings.Repeat(" ", wire.MaxStubBytes)))
	require.NoError(t, err)
	assert.Len(t, s.Purpose, wire.MaxIDBytes)
}

func TestParseStubRefusals(t *testing.T) {
	with := func(old, new string) string { return strings.Replace(stub0, old, new, 1) }
	for name, raw := range map[string]string{
		"no JSON":                  `secret`,
		"empty":                    ``,
		"two values":               stub0 + stub0,
		"cut":                      stub0[:40],
		"unknown member":           with(`"id"`, `"secret":1,"id"`),
		"member twice":             with(`"id"`, `"id":"secret","id"`),
		"member twice by escape":   with(`"id"`, `"i\u0064":"secret","id"`),
		"other case":               with(`"id"`, `"ID"`),
		"broken UTF-8":             with(`job_1`, "secret\xff"),
		"lone surrogate":           with(`job_1`, `secret\ud800`),
		"U+0000":                   with(`job_1`, `secret\u0000`),
		"endless number":           with(`1790000000000`, `1790000000000.`+strings.Repeat("0", wire.MaxStubBytes)),
		"id of 257 bytes":          with(`job_1`, strings.Repeat("j", 257)),
		"owner of 257 bytes":       with(`alice`, strings.Repeat("j", 257)),
		"purpose in dialect 0":     with(`"id"`, `"purpose":"secret","id"`),
		"deadline with a fraction": with(`1790000000000`, `1790000000000.5`),
		"deadline over 2^53":       with(`1790000000000`, `9007199254740993`),
		"deadline beyond int64":    with(`1790000000000`, `1e400`),
		"deadline minus zero":      with(`1790000000000`, `-0`),
		"audience of dialect 2":    with(`self`, `private`),
		"lease":                    with(`"id"`, `"lease":{},"id"`),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := wire.ParseStub(wire.Dialect0, []byte(raw))
			refused(t, err)
		})
	}
	_, err := wire.ParseStub(wire.Dialect0, []byte(with(`job_1`, strings.Repeat("j", 256))))
	assert.NoError(t, err)
	_, err = wire.ParseStub(wire.Dialect0, []byte(with(`1790000000000`, `1.79e12`)))
	assert.NoError(t, err, "JavaScript reads this as a whole number")
}

func TestAppendStubReadsBack(t *testing.T) {
	s, err := wire.ParseStub(wire.Dialect2, []byte(stub2))
	require.NoError(t, err)
	again := s
	again.Raw = nil
	text := wire.AppendStub(nil, again)
	assert.Equal(t, stub2, string(text))
	assert.False(t, s.Private())
}

func TestParseClaimedGrant(t *testing.T) {
	s, err := wire.ParseStub(wire.Dialect2, []byte(stub2))
	require.NoError(t, err)
	job := string(s.AppendClaimed(nil, "l", "r", 1))
	granted := job[:len(job)-1] + `,"grant":{"grantId":"g","jobId":"j","site":"s","user":"u","owner":"o","purpose":"p","kind":"k","service":"v","issuedAt":1,"signature":"x"}}`
	back, err := wire.ParseClaimed(wire.Dialect2, []byte(granted))
	require.NoError(t, err)
	assert.Equal(t, stub2, string(back.Stub.Raw))
	for _, bad := range []string{
		strings.Replace(granted, `"user":"u",`, ``, 1),
		strings.Replace(granted, `"expiresAt":1`, `"expiresAt":1,"extra":1`, 1),
		strings.Replace(job, `,"lease":`, `,"leash":`, 1),
	} {
		_, err := wire.ParseClaimed(wire.Dialect2, []byte(bad))
		refused(t, err)
	}
	_, err = wire.ParseClaimed(wire.Dialect0, []byte(granted))
	refused(t, err)
}

func TestCheckID(t *testing.T) {
	for _, ok := range []string{"a", " ", "\u2028", strings.Repeat("x", 256), "a\nb"} {
		assert.NoError(t, wire.CheckID(ok))
	}
	for _, bad := range []string{"", "a\x00b", "\xff", strings.Repeat("x", 257)} {
		refused(t, wire.CheckID(bad))
	}
}

func TestParseDialect(t *testing.T) {
	for _, v := range wire.Supported() {
		d, err := wire.ParseDialect(v)
		require.NoError(t, err)
		assert.Equal(t, v, string(d))
	}
	for _, v := range []string{"", "1", "3", " 0", strings.Repeat("9", 1000)} {
		_, err := wire.ParseDialect(v)
		e := wire.AsError(err)
		assert.Equal(t, wire.CodeUnsupportedVersion, e.Code)
		assert.Equal(t, []string{"0", "2"}, e.Supported)
		assert.Equal(t, wire.Minimum(), e.Minimum)
		assert.Contains(t, e.Message, "upgrade")
		assert.Less(t, len(e.Message), 200)
	}
}

func TestParseCapabilities(t *testing.T) {
	caps := []wire.Capability{
		{Kind: "llm.generate", BackendID: "ollama", BackendClass: "http", Service: "local", Model: "llama3", OfferScope: "team"},
		{Kind: "new.kind", BackendID: "new-backend", BackendClass: "process", Service: "a\"b", Model: "\u2028", OfferScope: "private"},
	}
	got, err := wire.ParseCapabilities(wire.Dialect2, wire.AppendCapabilities(nil, wire.Dialect2, caps))
	require.NoError(t, err)
	assert.Equal(t, caps, got)

	empty, err := wire.ParseCapabilities(wire.Dialect0, wire.AppendCapabilities(nil, wire.Dialect0, nil))
	require.NoError(t, err)
	assert.NotNil(t, empty)
	assert.Empty(t, empty)

	_, err = wire.ParseCapabilities(wire.Dialect0, wire.AppendCapabilities(nil, wire.Dialect2, caps))
	refused(t, err)
	one := string(wire.AppendCapabilities(nil, wire.Dialect0, []wire.Capability{
		{Kind: "k", BackendID: "b", BackendClass: "http", Model: "m", OfferScope: "public"},
	}))
	one = one[1 : len(one)-1]
	_, err = wire.ParseCapabilities(wire.Dialect0, []byte("["+strings.Repeat(one+",", 255)+one+"]"))
	assert.NoError(t, err)
	for _, bad := range []string{
		``, `null`, `{}`, `[null]`, `[` + one, `[` + one + `] secret`,
		"[" + strings.Repeat(one+",", 256) + one + "]",
		`[` + strings.Replace(one, `"kind":"k"`, `"kind":""`, 1) + `]`,
		`[` + strings.Replace(one, `"kind"`, `"kind":"secret","kind"`, 1) + `]`,
	} {
		_, err := wire.ParseCapabilities(wire.Dialect0, []byte(bad))
		refused(t, err)
	}
}
