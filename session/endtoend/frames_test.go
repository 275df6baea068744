package endtoend

import (
	"bytes"
	"encoding/binary"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"pushrelay/wire"
)

// Opcodes of RFC 6455, section 11.8.
const (
	opText   = 1
	opBinary = 2
	opClose  = 8
	opPing   = 9
	opPong   = 10
)

// wsFrame is one WebSocket frame as it stood on the wire; payload is unmasked, and empty for bulk.
type wsFrame struct {
	op      byte
	payload []byte
	raw     []byte
}

// wsReader finds WebSocket frames in a stream of bytes that begins with an HTTP head.
type wsReader struct {
	upgraded bool
	buf      []byte
}

// feed takes the next bytes, and answers the frames that are complete with them; head is the HTTP head once it is complete.
func (r *wsReader) feed(p []byte) (head []byte, frames []wsFrame) {
	r.buf = append(r.buf, p...)
	if !r.upgraded {
		end := bytes.Index(r.buf, []byte("\r\n\r\n"))
		if end < 0 {
			return nil, nil
		}
		head = append(head, r.buf[:end+4]...)
		r.buf, r.upgraded = append([]byte(nil), r.buf[end+4:]...), true
	}
	for {
		f, n := parseFrame(r.buf)
		if n == 0 {
			return head, frames
		}
		frames = append(frames, f)
		r.buf = append([]byte(nil), r.buf[n:]...)
	}
}

// parseFrame reads the frame at the beginning of b; n is 0 while it isn't complete.
func parseFrame(b []byte) (f wsFrame, n int) {
	if len(b) < 2 {
		return f, 0
	}
	size, at := int(b[1]&0x7f), 2
	switch size {
	case 126:
		if len(b) < 4 {
			return f, 0
		}
		size, at = int(binary.BigEndian.Uint16(b[2:])), 4
	case 127:
		if len(b) < 10 {
			return f, 0
		}
		size, at = int(binary.BigEndian.Uint64(b[2:])), 10
	}
	var key [4]byte
	masked := b[1]&0x80 != 0
	if masked {
		if len(b) < at+4 {
			return f, 0
		}
		at += copy(key[:], b[at:])
	}
	if len(b) < at+size {
		return f, 0
	}
	f = wsFrame{op: b[0] & 0xf, raw: bytes.Clone(b[:at+size])}
	if f.op == opBinary {
		return f, at + size // nobody looks into bulk
	}
	f.payload = bytes.Clone(b[at : at+size])
	if masked {
		for i := range f.payload {
			f.payload[i] ^= key[i%4]
		}
	}
	return f, at + size
}

// tap is a connection whose frames somebody watches. The system's options can be set through it.
type tap struct {
	net.Conn
	watch func(sent bool, f wsFrame)

	mu      sync.Mutex
	in, out wsReader
}

// NetConn answers what is below.
func (c *tap) NetConn() net.Conn { return c.Conn }

// Read watches what arrived.
func (c *tap) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.saw(&c.in, false, p[:n])
	return n, err
}

// Write watches what is about to be sent.
func (c *tap) Write(p []byte) (int, error) {
	c.saw(&c.out, true, p)
	return c.Conn.Write(p)
}

func (c *tap) saw(r *wsReader, sent bool, p []byte) {
	c.mu.Lock()
	_, frames := r.feed(p)
	c.mu.Unlock()
	for _, f := range frames {
		c.watch(sent, f)
	}
}

// clock measures from what asks to what answers, by a key of its own.
type clock struct {
	mu    sync.Mutex
	asked map[string]time.Time
	took  []time.Duration
}

func (c *clock) ask(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked == nil {
		c.asked = map[string]time.Time{}
	}
	c.asked[key] = time.Now()
}

func (c *clock) answer(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at, ok := c.asked[key]; ok {
		c.took = append(c.took, time.Since(at))
		delete(c.asked, key)
	}
}

// within checks that at least so many were measured, and none took longer, nor waits for longer.
func (c *clock) within(t *testing.T, what string, least int, limit time.Duration) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	worst := time.Duration(0)
	for _, d := range c.took {
		worst = max(worst, d)
	}
	for _, at := range c.asked {
		worst = max(worst, time.Since(at))
	}
	t.Logf("%s: %d measured, at most %v", what, len(c.took), worst.Round(time.Millisecond))
	assert.GreaterOrEqual(t, len(c.took), least, what)
	assert.LessOrEqual(t, worst, limit, what)
}

// said is what tests must know of a text frame.
type said struct {
	Type wire.FrameType `json:"type"`
	ID   string         `json:"id"`
	Re   string         `json:"re"`
}

func saying(f wsFrame) said {
	if f.op != opText {
		return said{}
	}
	s, err := wire.Decode[said](f.payload)
	if err != nil {
		return said{}
	}
	return s
}
