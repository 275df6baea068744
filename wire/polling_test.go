package wire_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pushrelay/wire"
)

func TestDeclaredVersion(t *testing.T) {
	for text, want := range map[string]string{
		`{"protocolVersion":"2"}`: "2", `{"a":{"protocolVersion":"0"},"protocolVersion":"2"}`: "2", ` {"protocolVersion" : "\u0032"} `: "2",
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
