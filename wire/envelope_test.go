package wire_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pushrelay/wire"
)

func TestParseEnvelopeAliases(t *testing.T) {
	raw := append(append([]byte(" "), sealedOf(8<<10)...), '\n')
	e, err := wire.ParseEnvelope(raw)
	require.NoError(t, err)
	assert.Equal(t, "BYOLLM-R", e.RecipientKeyID)
	assert.Equal(t, "BYOLLM-S", e.SenderKeyID)
	assert.Equal(t, wire.DirectionPayload, e.Direction)
	assert.Equal(t, int64(1790000000000), e.DeadlineAt)
	assert.Same(t, &raw[1], &e.Raw[0])
	assert.Len(t, e.Raw, len(raw)-2)
	assert.Equal(t, len(e.Raw), cap(e.Raw), "appending to Raw must not write into the frame")

	text, err := e.Ciphertext()
	require.NoError(t, err)
	assert.Equal(t, strings.Repeat("QUFB", 2<<10), string(text))
}

// The short way around a long ciphertext must decide like the strict reader, which judges short and reordered ones.
func TestParseEnvelopeRefusals(t *testing.T) {
	rest := `"recipientKeyId":"r","senderKeyId":"s","direction":"result","deadlineAt":1}`
	for _, pad := range []int{0, 4<<10 - 3, 8 << 10, 8<<10 + 5} {
		filler := strings.Repeat("A", pad)
		for name, c := range map[string]struct {
			raw string
			ok  bool
		}{
			"plain":             {`{"ciphertext":"A` + filler + `",` + rest, true},
			"spaces":            {`{ "ciphertext" : "A` + filler + `",` + rest, true},
			"escape":            {`{"ciphertext":"A\n` + filler + `",` + rest, true},
			"quote":             {`{"ciphertext":"A\"` + filler + `",` + rest, true},
			"other alphabet":    {`{"ciphertext":"A é` + filler + `",` + rest, true},
			"last":              {`{` + rest[:len(rest)-1] + `,"ciphertext":"A` + filler + `"}`, true},
			"line break":        {`{"ciphertext":"A` + filler + "\n\"," + rest, false},
			"control":           {`{"ciphertext":"` + filler + "\x1f" + filler + `",` + rest, false},
			"broken UTF-8":      {`{"ciphertext":"` + filler + "\xff" + filler + `",` + rest, false},
			"bad escape":        {`{"ciphertext":"A\x` + filler + `",` + rest, false},
			"cut":               {`{"ciphertext":"A` + filler, false},
			"unknown member":    {`{"ciphertext":"A` + filler + `","secret":1,` + rest, false},
			"ciphertext twice":  {`{"ciphertext":"A` + filler + `","ciphertext":"A",` + rest, false},
			"number":            {`{"ciphertext":1,` + rest + strings.Repeat(" ", pad), false},
			"empty":             {`{"ciphertext":"",` + rest + strings.Repeat(" ", pad), false},
			"followed":          {`{"ciphertext":"A` + filler + `",` + rest + `secret`, false},
			"bad direction":     {`{"ciphertext":"A` + filler + `",` + strings.Replace(rest, "result", "secret", 1), false},
			"null deadline":     {`{"ciphertext":"A` + filler + `",` + strings.Replace(rest, `:1}`, `:null}`, 1), false},
			"recipient missing": {`{"ciphertext":"A` + filler + `",` + strings.Replace(rest, `"recipientKeyId":"r",`, ``, 1), false},
		} {
			_, err := wire.ParseEnvelope([]byte(c.raw))
			if c.ok {
				assert.NoError(t, err, "%s, %d", name, pad)
				continue
			}
			refused(t, err)
		}
	}
}

func TestParseEnvelopeSize(t *testing.T) {
	around := len(sealedOf(0))
	fits := sealedOf((wire.MaxEnvelopeBytes - around) &^ 3)
	_, err := wire.ParseEnvelope(fits)
	require.NoError(t, err)
	_, err = wire.ParseEnvelope(sealedOf(wire.MaxEnvelopeBytes))
	refused(t, err)
}

func TestParseEnvelopeAllocations(t *testing.T) {
	raw := sealedOf(6<<20 - 1<<10)
	allocs := testing.AllocsPerRun(5, func() {
		if _, err := wire.ParseEnvelope(raw); err != nil {
			t.Fatal(err)
		}
	})
	assert.LessOrEqual(t, allocs, 40.0)
	res := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			_, _ = wire.ParseEnvelope(raw)
		}
	})
	assert.Less(t, res.AllocedBytesPerOp(), int64(16<<10), "the ciphertext was copied")
}

func TestDecodeAliasesLargeMembers(t *testing.T) {
	sealed := sealedOf(1 << 20)
	frame := wire.AppendTail(append(wire.AppendResultHead(nil, "1", wire.Grant{JobID: "j", LeaseID: "l"}, wire.DispositionOK), sealed...))
	r, err := wire.Decode[wire.Result](frame)
	require.NoError(t, err)
	assert.Same(t, &frame[len(frame)-1-len(sealed)], &r.Envelope[0])
	assert.Equal(t, len(r.Envelope), cap(r.Envelope))

	frame = wire.AppendResultsHead(nil)
	for i := range 3 {
		frame = wire.AppendResultJobHead(frame, i == 0, wire.ResultJob{JobID: "j", LeaseID: "l"})
		frame = wire.AppendResultJobTail(append(frame, sealed...))
	}
	frame = wire.AppendResultsTail(frame)
	res := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			_, _ = wire.Decode[wire.Results](frame)
		}
	})
	assert.Less(t, res.AllocedBytesPerOp(), int64(16<<10), "an envelope was copied")
}
