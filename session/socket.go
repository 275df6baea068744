package session

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// socket is the byte stream under one WebSocket connection. The library reads through it; only the link writes.
//
// It counts, stamps when bytes arrive (any byte is life), and watches that writes move. No deadline is ever set on the
// connection: after one expired, TLS can't go on, and a slow peer is not a dead one.
type socket struct {
	rwc   io.ReadWriteCloser
	raw   net.Conn  // the lowest layer that is known, nil when none is
	tcp   *tcpTuner // nil when raw isn't TCP or this system can't tell
	start time.Time

	// Reader's.
	early    []byte     // bytes that the HTTP server had read ahead
	pool     *sync.Pool // of *[]byte, to read ahead with; nil: never
	ahead    []byte     // read and not asked for yet, in borrowed
	borrowed *[]byte
	more     bool // the last read filled its buffer

	in, out  atomic.Int64
	heard    atomic.Int64 // when a byte last arrived, since start
	moved    atomic.Int64 // when a write last progressed, since start
	acked    atomic.Uint64
	writing  atomic.Bool
	readFail atomic.Bool // reading ended because the connection did, not because of what it carried
}

// readAheadMost is how long a read may be to be worth more than what it asks for.
const readAheadMost = 16 << 10

// writeChunk is what is written at once where the system can't tell how far a write has come.
const writeChunk = 16 << 10

func newSocket(rwc io.ReadWriteCloser, raw net.Conn) *socket {
	s := &socket{rwc: rwc, raw: lowest(raw), start: time.Now()}
	s.tcp = newTCPTuner(s.raw)
	s.tcp.keepUnsentShort()
	return s
}

// lowest looks under TLS, which would wait when it is closed.
func lowest(c net.Conn) net.Conn {
	for {
		t, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return c
		}
		c = t.NetConn()
	}
}

func (s *socket) now() int64 { return int64(time.Since(s.start)) }

// Read is the library's.
func (s *socket) Read(p []byte) (int, error) {
	if len(s.early) > 0 {
		n := copy(p, s.early)
		if s.early = s.early[n:]; len(s.early) == 0 {
			s.early = nil
		}
		s.in.Add(int64(n))
		s.heard.Store(s.now())
		return n, nil
	}
	if len(s.ahead) > 0 {
		n := copy(p, s.ahead)
		s.took(n)
		return n, nil
	}
	if s.more && s.pool != nil && len(p) < readAheadMost {
		s.borrowed = s.pool.Get().(*[]byte)
		n, err := s.receive(*s.borrowed)
		if n > 0 {
			err = nil // it comes again, behind what was read
		}
		s.ahead = (*s.borrowed)[:n]
		n = copy(p, s.ahead)
		s.took(n)
		return n, err
	}
	return s.receive(p)
}

// receive reads what has arrived. When that fills p there is likely to be more, and the next read may be a long one: what
// belongs to later frames is kept in a borrowed buffer until it was read. So a busy session takes few system calls, and
// an idle one holds nothing.
func (s *socket) receive(p []byte) (int, error) {
	n, err := s.rwc.Read(p)
	s.more = n == len(p)
	if n > 0 {
		s.in.Add(int64(n))
		s.heard.Store(s.now())
	}
	if err != nil {
		s.readFail.Store(true)
	}
	return n, err
}

// took drops n bytes that were read ahead, and gives the buffer back behind the last.
func (s *socket) took(n int) {
	if s.ahead = s.ahead[n:]; len(s.ahead) == 0 {
		s.ahead = nil
		s.pool.Put(s.borrowed)
		s.borrowed = nil
	}
}

// Write drops what the library would send on its own account; see framing.go.
func (s *socket) Write(p []byte) (int, error) { return len(p), nil }

// Close does nothing: the link says when.
func (s *socket) Close() error { return nil }

// send writes all of p. It blocks as long as the peer is slow; cut ends that.
func (s *socket) send(p []byte) error {
	s.moved.Store(s.now())
	s.writing.Store(true)
	defer s.writing.Store(false)
	for len(p) > 0 {
		chunk := p
		if !s.tcp.tells() && len(chunk) > writeChunk {
			chunk = chunk[:writeChunk]
		}
		n, err := s.rwc.Write(chunk)
		s.out.Add(int64(n))
		if err != nil {
			return err
		}
		p = p[n:]
		s.moved.Store(s.now())
	}
	return nil
}

// stalled reports whether a write is under way that hasn't moved for so long. Called by one goroutine, now and then.
func (s *socket) stalled(limit time.Duration) bool {
	if !s.writing.Load() {
		return false
	}
	if acked, ok := s.tcp.acked(); ok && s.acked.Swap(acked) != acked {
		s.moved.Store(s.now())
	}
	return s.now()-s.moved.Load() >= int64(limit)
}

// silent reports whether nothing arrived for so long.
func (s *socket) silent(limit time.Duration) bool { return s.now()-s.heard.Load() >= int64(limit) }

// makeRoom lets the system buffer what is being written, so that a peer that doesn't read now finds its close frame
// when it does.
func (s *socket) makeRoom() { s.tcp.makeRoom() }

// cut ends both directions at once, never blocks, and may be called by anybody.
func (s *socket) cut() {
	if s.raw != nil {
		_ = s.raw.Close()
		return
	}
	go func() { _ = s.rwc.Close() }() // unknown kinds may wait
}

// close ends the connection in order; with TLS it may wait for a write of its own, which cut ends.
func (s *socket) close() { _ = s.rwc.Close() }
