package endtoend

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pushrelay/wire"
)

// bare is an authenticated session whose bytes a test writes itself; what comes is read and dropped by the library.
type bare struct {
	*raw
	conn net.Conn
}

func (s *siege) bare(role, name string) *bare {
	s.t.Helper()
	d := newDialer()
	r := s.rawOver(d, role, name, nil)
	return &bare{r, d.conns[0]}
}

func (b *bare) bytes(list ...[]byte) {
	_, _ = b.conn.Write(bytes.Join(list, nil)) // the relay may have cut it, which the test looks at
}

// TestBadWebSocket breaks the rules of WebSocket itself on authenticated sessions: the relay ends that session, at once.
func TestBadWebSocket(t *testing.T) {
	t.Parallel()
	s := besiege(t)
	const fin = 0x80
	endless := clientFrame(opText, []byte("{"))
	more := clientFrame(0, []byte(strings.Repeat(" ", 4<<10)))
	for name, bytes := range map[string][]byte{
		"unmasked":                 {fin | opText, 2, '{', '}'},
		"reserved bits":            clientFrame(fin|0x40|opText, []byte("{}")),
		"reserved opcode":          clientFrame(fin|3, []byte("{}")),
		"reserved control":         clientFrame(fin|11, nil),
		"a ping in pieces":         clientFrame(opPing, nil),
		"a ping too long":          clientFrame(fin|opPing, make([]byte, 126)),
		"nothing to go on with":    clientFrame(fin, []byte("{}")),
		"two beginnings":           append(bytes.Clone(endless), endless...),
		"a message without end":    append(bytes.Clone(endless), bytes.Repeat(more, 20)...),
		"a length of 2^63":         {fin | opText, 0x80 | 127, 0x80, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4},
		"a length of 2^62":         append([]byte{fin | opText, 0x80 | 127, 0x40, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4}, make([]byte, 40<<10)...),
		"close of one byte":        clientFrame(fin|opClose, []byte{3}),
		"close 0":                  clientFrame(fin|opClose, []byte{0, 0}),
		"close 1005":               clientFrame(fin|opClose, []byte{3, 0xed}),
		"close 1006":               clientFrame(fin|opClose, []byte{3, 0xee}),
		"close 1015":               clientFrame(fin|opClose, []byte{3, 0xf7}),
		"close 65535":              clientFrame(fin|opClose, []byte{0xff, 0xff}),
		"close with broken text":   clientFrame(fin|opClose, append([]byte{3, 0xe8}, 0xff, 0xfe)),
		"close 4409 with a story":  clientFrame(fin|opClose, append([]byte{0x11, 0x39}, strings.Repeat("s", 123)...)),
		"close, and then a frame":  append(clientFrame(fin|opClose, []byte{3, 0xe8}), clientFrame(fin|opText, []byte("{}"))...),
		"garbage":                  []byte("GET / HTTP/1.1\r\n\r\n"),
		"ten thousand empty texts": bytes.Repeat(clientFrame(fin|opText, nil), 10_000),
	} {
		b := s.bare(wire.RoleDaemon, "d3")
		b.bytes(bytes)
		s.log.until(t, name+" ends the session", func() bool { return len(s.relay.server.Sessions()) == 0 })
		b.hangUp()
	}
	s.stands()
}

// TestPingFlood sends thousands of pings, and reads what comes: the session lives, and its requests are answered.
func TestPingFlood(t *testing.T) {
	t.Parallel()
	s := besiege(t)
	b := s.bare(wire.RoleSite, "blog")
	b.bytes(bytes.Repeat(clientFrame(0x80|opPing, []byte(strings.Repeat("p", 125))), 10_000))
	b.bytes(clientFrame(0x80|opText, []byte(`{"type":"cancel","id":"q","jobIds":["none"]}`)))
	answer := b.until("the answer", func(x said, _ []byte) bool { return x.Re == "q" })
	assert.Contains(t, string(answer), `"cancelled":[false]`)
	b.hangUp()
	s.stands()
}

// TestUnknownFlood sends as many requests that nobody knows as the control lane has room to refuse.
func TestUnknownFlood(t *testing.T) {
	t.Parallel()
	s := besiege(t)
	b := s.bare(wire.RoleDaemon, "d3")
	for range 20 {
		b.bytes(bytes.Repeat(clientFrame(0x80|opText, []byte(`{"type":"nonsense","id":"q"}`)), 100))
	}
	answer := b.until("an answer", func(x said, _ []byte) bool { return x.Re == "q" })
	assert.Equal(t, wire.CodeBadRequest, code(answer))
	b.hangUp()
	s.stands()
}

// TestRandomFrames sends frames that were true and then damaged, in both roles, whole and in parts. Nothing of the relay's
// stays behind: no goroutine, no memory. It runs alone, because it counts those of the process.
func TestRandomFrames(t *testing.T) {
	s := besiege(t)
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	_, in, _ := s.site("shop")
	s.daemon("d1", echo)
	s.log.wait(t, 1, "d1", "connected", "")
	s.log.wait(t, 1, "shop", "connected", "")
	goroutines, heap := settled(), heapNow()
	frames := map[string][]badFrame{"d3": daemonFrames(), "blog": siteFrames()}
	roles := map[string]string{"d3": wire.RoleDaemon, "blog": wire.RoleSite}
	sent := 0
	for round := range 60 {
		name := []string{"d3", "blog"}[round%2]
		r := s.raw(roles[name], name, nil)
		for range 60 {
			list := frames[name]
			frame := damaged(random, list[random.IntN(len(list))].frame)
			var err error
			if random.IntN(4) == 0 {
				flags := byte(wire.PartFirst | wire.PartLast)
				r.parts(part(random.Uint32N(4), flags^byte(random.IntN(8)), uint32(len(frame)+random.IntN(2)), frame))
			} else {
				err = r.write(string(frame))
			}
			sent++
			if err != nil || len(r.closed) > 0 {
				break
			}
		}
		r.hangUp()
		next(s.world, r.closed)
	}
	s.log.until(t, "its sessions are gone", func() bool { return len(s.relay.server.Sessions()) == 2 })
	s.log.until(t, "its goroutines are gone", func() bool { return runtime.NumGoroutine() <= goroutines+32 })
	t.Logf("%d frames; goroutines %d to %d, heap %d to %d KiB", sent, goroutines, runtime.NumGoroutine(), heap>>10, heapNow()>>10)
	assert.Less(t, heapNow(), heap+16<<20)
	assert.Empty(t, in.results)
	require.Greater(t, sent, 200)
	s.stands()
}

// damaged changes a frame here and there.
func damaged(random *rand.Rand, frame string) []byte {
	b := []byte(frame)
	for range random.IntN(4) {
		if len(b) == 0 {
			break
		}
		at := random.IntN(len(b))
		switch random.IntN(4) {
		case 0:
			b[at] = byte(random.Uint32())
		case 1:
			b = b[:at]
		case 2:
			b = append(b[:at], b[min(len(b), at+1+random.IntN(8)):]...)
		case 3:
			b = append(b[:at:at], append([]byte(fmt.Sprint(random.Int64())), b[at:]...)...)
		}
	}
	return b[:min(len(b), wire.MaxTextBytes)]
}

// settled counts goroutines once their number stands still.
func settled() int {
	n := runtime.NumGoroutine()
	for range 20 {
		runtime.GC()
		n = min(n, runtime.NumGoroutine())
	}
	return n
}

func heapNow() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
