package wire_test

import (
	"fmt"
	"strings"
	"testing"

	"pushrelay/wire"
)

// sealedOf makes an envelope's text with a ciphertext of n characters.
func sealedOf(n int) []byte {
	e := wire.Envelope{RecipientKeyID: "BYOLLM-R", SenderKeyID: "BYOLLM-S", Direction: wire.DirectionPayload, DeadlineAt: 1790000000000}
	return wire.AppendEnvelope(nil, e, strings.Repeat("QUFB", n/4))
}

func BenchmarkParseEnvelope(b *testing.B) {
	for _, n := range []int{1 << 10, 6<<20 - 1<<10} {
		raw := sealedOf(n)
		b.Run(fmt.Sprintf("%dKiB", len(raw)>>10), func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := wire.ParseEnvelope(raw); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDecodeHead(b *testing.B) {
	for name, frame := range map[string][]byte{
		"heartbeat": []byte(`{"type":"heartbeat","id":"17","activeLeases":[{"jobId":"job_1","leaseId":"11111111-1111-4111-8111-111111111111"}]}`),
		"result6MiB": wire.AppendTail(append(wire.AppendResultHead(nil, "18",
			wire.Grant{JobID: "job_1", LeaseID: "lease_1"}, wire.DispositionOK), sealedOf(6<<20-1<<10)...)),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(frame)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := wire.DecodeHead(frame); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/peek", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := wire.PeekHead(frame); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDecodeResult(b *testing.B) {
	frame := wire.AppendTail(append(wire.AppendResultHead(nil, "18",
		wire.Grant{JobID: "job_1", LeaseID: "lease_1"}, wire.DispositionOK), sealedOf(6<<20-1<<10)...))
	b.SetBytes(int64(len(frame)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := wire.Decode[wire.Result](frame); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseStub(b *testing.B) {
	raw := []byte(`{"id":"job_1","kind":"llm.generate","owner":"alice","site":"BYOLLM-RAVJ-1GSJ-CMXH-F702-GKN8-2FN7","audience":"self","sizeClass":"small","streaming":false,"deadlineAt":1790000000000}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := wire.ParseStub(wire.Dialect0, raw); err != nil {
			b.Fatal(err)
		}
	}
}
