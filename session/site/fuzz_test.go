package site

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"pushrelay/session/internal/fake"
	"pushrelay/wire"
)

// FuzzPush lets a hostile relay send whatever it likes: nothing panics, nothing unverified is believed, and no goroutine is
// left (synctest would report it).
func FuzzPush(f *testing.F) {
	f.Add([]byte(`{"type":"seal-request","jobs":[{"jobId":"a","leaseId":"l","device":{}}]}`))
	f.Add([]byte(`{"type":"results","jobs":[{"jobId":"a","leaseId":"l","envelope":{},"device":{}}]}`))
	f.Add([]byte(`{"type":"notices","jobs":[{"jobId":"a","why":"deadline"}]}`))
	f.Add([]byte(`{"type":"requeued","jobs":[{}]}`))
	f.Add([]byte(`{"type":"goaway"}`))
	keys, device := newKeys(f), newKeys(f)
	f.Fuzz(func(t *testing.T, frame []byte) {
		synctest.Test(t, func(t *testing.T) {
			w := &world{t: t, keys: keys, device: device}
			w.start(nil)
			w.connect(newFakeConn("s1"), "epoch")
			w.submit(job("a"))
			for _, typ := range []wire.FrameType{
				wire.TypeSealRequest, wire.TypeResults, wire.TypeNotices, wire.TypeRequeued, wire.TypeGoaway, "nonsense",
			} {
				w.s.push(w.conn, wire.Head{Type: typ}, frame)
			}
			synctest.Wait()
			for _, r := range w.results {
				assert.False(t, r.Verified)
			}
			assert.Empty(t, fake.Sent[wire.Seal](t, w.conn, wire.TypeSeal))
		})
	})
}
