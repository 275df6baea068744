package wire_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pushrelay/wire"
)

func TestDecodeHead(t *testing.T) {
	long := strings.Repeat("i", wire.MaxRequestID)
	for frame, want := range map[string]wire.Head{
		`{"type":"ready","id":"1"}`:                         {Type: "ready", ID: "1"},
		` {"x":{"type":"a","id":"b"},"id":"1","type":"t"} `: {Type: "t", ID: "1"},
		`{"type":"revoked"}`:                                {Type: "revoked"},
		`{"\u0074ype":"\u0061","id":"` + long + `"}`:        {Type: "a", ID: long},
	} {
		for _, read := range []func([]byte) (wire.Head, error){wire.DecodeHead, wire.PeekHead} {
			got, err := read([]byte(frame))
			require.NoError(t, err, frame)
			assert.Equal(t, want, got)
		}
	}
	for _, frame := range []string{
		``, `x`, `null`, `[]`, `"type"`, `{}`, `{"id":"1"}`, `{"type":""}`, `{"type":null}`, `{"type":1}`,
		`{"type":"t","id":""}`, `{"type":"t","id":1}`, `{"type":"t","id":"` + long + `i"}`, `{"type":"t"`,
		`{"type":"t","type":"u"}`, `{"id":"1","id":"2","type":"t"}`, `{"type":"t"}{}`, "{\"type\":\"\xff\"}", `{"type":"t",}`,
	} {
		for _, read := range []func([]byte) (wire.Head, error){wire.DecodeHead, wire.PeekHead} {
			_, err := read([]byte(frame))
			refused(t, err)
		}
	}
}

// What PeekHead leaves unread, Decode refuses.
func TestPeekHeadLeavesTheRestToDecode(t *testing.T) {
	for _, frame := range []string{
		`{"type":"accept","id":"1","grants":[}`, `{"type":"accept","id":"1","grants":[],"id":"2"}`,
		`{"type":"accept","id":"1","grants":[]}x`, `{"type":"accept","id":"1","grants":[]`,
	} {
		h, err := wire.PeekHead([]byte(frame))
		require.NoError(t, err)
		assert.Equal(t, "1", h.ID)
		_, err = wire.DecodeHead([]byte(frame))
		refused(t, err)
		_, err = wire.Decode[wire.Grants]([]byte(frame))
		refused(t, err)
	}
}

func TestDecodeIgnoresUnknownMembers(t *testing.T) {
	g, err := wire.Decode[wire.Grants]([]byte(`{"new":{"x":[1]},"grants":[{"jobId":"j","leaseId":"l","new":1}],"id":"1","type":"accept"}`))
	require.NoError(t, err)
	assert.Equal(t, []wire.Grant{{JobID: "j", LeaseID: "l"}}, g.Grants)
}

func decodeErr[T any](frame string) error {
	_, err := wire.Decode[T]([]byte(frame))
	return err
}

func TestDecodeRefusals(t *testing.T) {
	grant := `{"jobId":"j","leaseId":"l"}`
	many := strings.Repeat(grant+",", 256) + grant
	for name, err := range map[string]error{
		"grants absent":          decodeErr[wire.Grants](`{}`),
		"grants null":            decodeErr[wire.Grants](`{"grants":null}`),
		"grants over 256":        decodeErr[wire.Grants](`{"grants":[` + many + `]}`),
		"grant without lease":    decodeErr[wire.Grants](`{"grants":[{"jobId":"j"}]}`),
		"grant with empty job":   decodeErr[wire.Grants](`{"grants":[{"jobId":"","leaseId":"l"}]}`),
		"grant of numbers":       decodeErr[wire.Grants](`{"grants":[{"jobId":1,"leaseId":"l"}]}`),
		"fetch without grant":    decodeErr[wire.Fetch](`{}`),
		"heartbeat bare":         decodeErr[wire.Heartbeat](`{}`),
		"ready without list":     decodeErr[wire.Ready](`{"slots":1}`),
		"ready null list":        decodeErr[wire.Ready](`{"slots":1,"capabilities":null}`),
		"ready no slots":         decodeErr[wire.Ready](`{"capabilities":[]}`),
		"ready 65 slots":         decodeErr[wire.Ready](`{"capabilities":[],"slots":65}`),
		"ready half a slot":      decodeErr[wire.Ready](`{"capabilities":[],"slots":1.5}`),
		"result bad word":        decodeErr[wire.Result](`{"grant":` + grant + `,"disposition":"secret","envelope":{}}`),
		"result no envelope":     decodeErr[wire.Result](`{"grant":` + grant + `,"disposition":"ok"}`),
		"result null envelope":   decodeErr[wire.Result](`{"grant":` + grant + `,"disposition":"ok","envelope":null}`),
		"release bad word":       decodeErr[wire.Release](`{"grants":[],"reason":"secret"}`),
		"release without grants": decodeErr[wire.Release](`{"reason":"pause"}`),
		"enqueue empty":          decodeErr[wire.Enqueue](`{"stubs":[]}`),
		"enqueue over 256":       decodeErr[wire.Enqueue](`{"stubs":[` + strings.Repeat("{},", 256) + `{}]}`),
		"seal without envelope":  decodeErr[wire.Seal](`{"jobId":"j","leaseId":"l"}`),
		"seal without lease":     decodeErr[wire.Seal](`{"jobId":"j","envelope":{}}`),
		"cancel empty":           decodeErr[wire.CancelJobs](`{"jobIds":[]}`),
		"cancel empty id":        decodeErr[wire.CancelJobs](`{"jobIds":[""]}`),
		"credit of nothing":      decodeErr[wire.Credit](`{"stream":1}`),
		"credit stream negative": decodeErr[wire.Credit](`{"stream":-1,"bytes":1}`),
		"hello without body":     decodeErr[wire.Hello](`{"caller":"c","signature":"s"}`),
		"payload without one":    decodeErr[wire.Payload](`{"jobId":"j","leaseId":"l"}`),
		"fetch reply without":    decodeErr[wire.FetchReply](`{}`),
	} {
		t.Run(name, func(t *testing.T) { refused(t, err) })
	}
	assert.NoError(t, decodeErr[wire.Heartbeat](`{"activeLeases":[`+many+`]}`), "heartbeats name up to 1024")
	assert.NoError(t, decodeErr[wire.Grants](`{"grants":[]}`))
}

func TestParsePart(t *testing.T) {
	data := []byte("some of a frame")
	for _, c := range []struct {
		h     wire.PartHeader
		total uint32
	}{
		{wire.PartHeader{Stream: 7, Flags: wire.PartFirst}, 70_000},
		{wire.PartHeader{Stream: 1<<32 - 1}, 0},
		{wire.PartHeader{Stream: 0, Flags: wire.PartLast}, 0},
		{wire.PartHeader{Stream: 3, Flags: wire.PartFirst | wire.PartLast}, uint32(len(data))},
	} {
		msg := append(wire.AppendPartHeader(nil, c.h, c.total), data...)
		h, total, got, err := wire.ParsePart(msg)
		require.NoError(t, err)
		assert.Equal(t, c.h, h)
		assert.Equal(t, c.total, total)
		assert.Equal(t, data, got)
		assert.Same(t, &msg[len(msg)-len(data)], &got[0])
	}
	h, _, got, err := wire.ParsePart(wire.AppendPartHeader(nil, wire.PartHeader{Stream: 1, Flags: wire.PartAbort}, 0))
	require.NoError(t, err)
	assert.True(t, h.Abort())
	assert.Empty(t, got)
}

func TestParsePartRefusals(t *testing.T) {
	first := func(flags byte, total uint32, n int) []byte {
		return append(wire.AppendPartHeader(nil, wire.PartHeader{Flags: flags | wire.PartFirst}, total), make([]byte, n)...)
	}
	for name, c := range map[string]struct {
		msg  []byte
		want error
	}{
		"empty":               {nil, wire.ErrBadPart},
		"four bytes":          {make([]byte, 4), wire.ErrBadPart},
		"no data":             {make([]byte, 5), wire.ErrBadPart},
		"unknown flag":        {[]byte{0, 0, 0, 1, 8, 1}, wire.ErrBadPart},
		"abort with data":     {[]byte{0, 0, 0, 1, wire.PartAbort, 1}, wire.ErrBadPart},
		"abort and last":      {[]byte{0, 0, 0, 1, wire.PartAbort | wire.PartLast}, wire.ErrBadPart},
		"first without total": {[]byte{0, 0, 0, 1, wire.PartFirst, 0, 0, 1}, wire.ErrBadPart},
		"first without data":  {first(0, 10, 0), wire.ErrBadPart},
		"total of zero":       {first(0, 0, 1), wire.ErrBadPart},
		"more than total":     {first(0, 1, 2), wire.ErrBadPart},
		"whole but short":     {first(wire.PartLast, 3, 2), wire.ErrBadPart},
		"frame too large":     {first(0, wire.MaxFrameBytes+1, 1), wire.ErrPartTooLarge},
		"part too large":      {make([]byte, wire.PartHeaderBytes+wire.MaxPartBytes+1), wire.ErrPartTooLarge},
		"first too large":     {first(0, wire.MaxFrameBytes, wire.MaxPartBytes+1), wire.ErrPartTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, data, err := wire.ParsePart(c.msg)
			assert.ErrorIs(t, err, c.want)
			assert.Nil(t, data)
		})
	}
	_, _, data, err := wire.ParsePart(first(0, wire.MaxFrameBytes, wire.MaxPartBytes))
	require.NoError(t, err)
	assert.Len(t, data, wire.MaxPartBytes)
}
