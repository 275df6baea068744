package daemon

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"pushrelay/wire"
)

// FuzzPush lets a hostile relay send whatever it likes: nothing panics, nothing runs twice or unverified, and no goroutine
// is left (synctest would report it).
func FuzzPush(f *testing.F) {
	f.Add([]byte(`{"type":"claimed","jobs":[{}],"leaseMs":1}`), uint8(0))
	f.Add([]byte(`{"type":"claimed","jobs":[{"id":"x","lease":{"id":"y","runnerId":"z","expiresAt":1}}]}`), uint8(1))
	f.Add([]byte(`{"type":"payload","jobId":"a","leaseId":"lease-a","envelope":{}}`), uint8(2))
	f.Add([]byte(`{"type":"cancel","grants":[{"jobId":"a","leaseId":"lease-a"}]}`), uint8(3))
	f.Add([]byte(`{"type":"lost","grants":[{"jobId":"a","leaseId":"lease-a"}],"reason":"unaccepted"}`), uint8(1))
	f.Add([]byte(`{"type":"sites","sites":{"x":{}},"awaitingConsent":null}`), uint8(2))
	f.Add([]byte(`{"type":"revoked"}`), uint8(3))
	f.Add([]byte(`{"type":"goaway"}`), uint8(0))
	device, site := newKeys(f), newKeys(f)
	good := sealAs(f, site, device.Public(), "a", wire.DirectionPayload, testDeadline, "x")
	f.Fuzz(func(t *testing.T, frame []byte, order uint8) {
		synctest.Test(t, func(t *testing.T) {
			run := &echo{}
			w := &world{t: t, dir: t.TempDir(), device: device, site: site, siteID: site.KeyID(), ctx: t.Context()}
			w.start(run)
			w.connect(newFakeConn("s1"))
			hostile := func() {
				for _, typ := range []wire.FrameType{
					wire.TypeClaimed, wire.TypePayload, wire.TypeCancel, wire.TypeLost, wire.TypeSites, wire.TypeGoaway, "nonsense",
				} {
					w.d.push(w.conn, wire.Head{Type: typ}, frame)
				}
				if h, err := wire.DecodeHead(frame); err == nil {
					w.d.push(w.conn, h, frame)
				}
			}
			steps := []func(){
				func() { w.offer("a") },
				func() { w.push(payloadFrame(grant("a"), good)) },
				func() { w.push(payloadFrame(grant("a"), good)) },
			}
			for i, step := range steps {
				if order&(1<<i) != 0 {
					hostile()
				}
				step()
				synctest.Wait()
			}
			assert.LessOrEqual(t, run.count("a"), 1)
			assert.LessOrEqual(t, len(run.runs), 1, "only what the site sealed is run")
		})
	})
}
