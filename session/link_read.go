package session

import (
	"errors"
	"io"

	"github.com/coder/websocket"

	"pushrelay/wire"
)

// read is the reader. It never waits for anything but bytes: pings are answered while a store takes its time. After
// the end it goes on, and drops what it reads, until the peer has closed too: closing a connection with unread bytes
// would take the close frame back from the peer.
func (l *link) read() {
	err := l.readAll()
	var closed websocket.CloseError
	switch {
	case errors.As(err, &closed):
		l.end(End{Reason: ReasonPeer, Code: closed.Code, Text: closed.Reason})
	case l.sock.readFail.Load():
		l.end(End{Reason: ReasonCut})
		l.sock.cut() // also when another end is under way: there is nobody to tell
	default: // the library refuses what isn't WebSocket
		l.fail(ReasonBadFrame, wire.BadRequest("this is not a WebSocket frame that may come here"))
		l.drain()
	}
	l.mu.Lock()
	l.deaf = true
	l.mu.Unlock()
	l.wake.Broadcast()
}

func (l *link) readAll() error {
	for {
		typ, r, err := l.ws.Reader(l.background)
		if err != nil {
			return err
		}
		if err := l.readMessage(typ, r); err != nil {
			return err
		}
	}
}

// readMessage reads one message into a borrowed buffer, which is as large as what has arrived asks for.
func (l *link) readMessage(typ websocket.MessageType, r io.Reader) error {
	limit := int(l.limit.Load())
	if typ == websocket.MessageBinary {
		limit = wire.PartHeaderBytes + 4 + wire.MaxPartBytes
	}
	small := l.smalls.Get().(*[]byte)
	defer l.smalls.Put(small)
	msg := *small
	n, err := fill(r, msg)
	if err == nil { // it is longer
		large := l.larges.Get().(*[]byte)
		defer l.larges.Put(large)
		msg = *large
		var m int
		m, err = fill(r, msg[copy(msg, (*small)[:n]):])
		n += m
	}
	switch {
	case n > limit:
		l.fail(ReasonTooLarge, wire.BadRequest("a message may have at most %d bytes here", limit))
		_, err = io.Copy(io.Discard, r) // the peer finds our close frame behind its own bytes
		return err
	case !errors.Is(err, io.EOF):
		return err
	}
	if !l.open() {
		return nil
	}
	if typ == websocket.MessageBinary {
		l.part(msg[:n])
	} else {
		l.frame(append(make([]byte, 0, n), msg[:n]...), 0)
	}
	return nil
}

// fill reads until b is full (nil) or the message ends (io.EOF).
func fill(r io.Reader, b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var m int
		m, err = r.Read(b[n:])
		n += m
	}
	return n, err
}

// drain reads what still comes, until the peer closes or tick cuts.
func (l *link) drain() {
	_, _ = io.Copy(io.Discard, l.sock.rwc)
}

// frame takes one whole frame; held bytes of the budget come with it.
func (l *link) frame(frame []byte, held int64) {
	l.framesIn.Add(1)
	h, err := l.head(frame)
	if err != nil {
		l.budget.Release(held)
		l.owner.malformed(wire.AsError(err))
		return
	}
	switch {
	case h.Type == wire.TypeCredit:
		l.budget.Release(held)
		c, err := wire.Decode[wire.Credit](frame)
		if err != nil {
			l.owner.malformed(wire.AsError(err))
			return
		}
		l.credit(c.Stream, c.Bytes)
	case h.Type == wire.TypeError && h.Stream != 0:
		l.budget.Release(held)
		_, refusal, err := wire.ParseErrorFrame(frame)
		if err != nil {
			l.owner.malformed(wire.AsError(err))
			return
		}
		l.refusedStream(h.Stream, refusal)
	default:
		l.owner.received(h, frame, held)
	}
}

// head reads what the transport must know. A relay doesn't read frames that would cost it many times their bytes.
func (l *link) head(frame []byte) (head, error) {
	if !l.client && len(frame) > wire.MaxTextBytes && crowded(frame) {
		return head{}, wire.BadRequest("an object or a list in a frame has at most %d entries", mostEntries)
	}
	return l.scan(frame)
}

// part takes one binary message.
func (l *link) part(msg []byte) {
	l.mu.Lock()
	if l.holding {
		l.mu.Unlock()
		l.owner.malformed(wire.BadRequest("parts may come after the handshake only"))
		return
	}
	ev, err := l.in.part(l.budget, l.sock.now(), msg)
	if err == nil {
		l.grantCredit()
	}
	l.mu.Unlock()
	switch {
	case errors.Is(err, wire.ErrPartTooLarge):
		l.fail(ReasonTooLarge, wire.BadRequest("a part has at most %d bytes, a frame %d", wire.MaxPartBytes, wire.MaxFrameBytes))
		return
	case err != nil:
		l.fail(ReasonBadFrame, wire.BadRequest("%s", err.Error()))
		return
	}
	if ev.cancel != nil {
		ev.cancel()
	}
	l.budget.Release(ev.freed)
	if ev.over != 0 {
		l.refuseStream(ev.over, "there is no memory for this frame now")
	}
	l.reserveNext()
	if ev.frame != nil {
		l.frame(ev.frame, ev.held)
	}
}

// reserveNext asks the budget for the streams whose turn it is in this session.
func (l *link) reserveNext() {
	for {
		l.mu.Lock()
		s := l.in.wanting(l.sock.now())
		l.mu.Unlock()
		if s == nil {
			return
		}
		cancel := l.budget.Reserve(s.rest(), func() { l.reserved(s) })
		l.mu.Lock()
		waits := s.state == reserving
		gone := l.in.find(s.id) != s
		if waits {
			s.cancel = cancel
		}
		l.mu.Unlock()
		if waits && gone {
			cancel()
		}
	}
}

// reserved hears that s has its memory.
func (l *link) reserved(s *inStream) {
	l.mu.Lock()
	ok := l.in.reservedNow(s, l.sock.now())
	if ok {
		l.grantCredit()
	}
	l.mu.Unlock()
	if !ok {
		l.budget.Release(s.rest())
		return
	}
	l.wake.Signal()
}

// grantCredit gives credit, which the writer sends. mu is held.
func (l *link) grantCredit() {
	if l.in.grants(l.sock.now()) {
		l.wake.Signal()
	}
}

// refuseLate gives up what tick finds late.
func (l *link) refuseLate(now int64) {
	for {
		l.mu.Lock()
		s, why := l.in.late(now)
		if s == nil {
			l.mu.Unlock()
			return
		}
		ev := l.in.remove(s)
		l.in.refuse(s.id, false)
		l.mu.Unlock()
		if ev.cancel != nil {
			ev.cancel()
		}
		l.budget.Release(ev.freed)
		l.refuseStream(s.id, why)
		l.reserveNext()
	}
}

// refuseStream tells the peer to stop sending a stream: an error frame without re that names it. Its sender aborts it,
// and may send the frame again later.
func (l *link) refuseStream(stream uint32, why string) {
	frame := wire.AppendErrorFrame(nil, "", wire.Unavailable(retryStream, why))
	frame = appendStream(frame[:len(frame)-1], stream)
	l.push(frame)
}

// fail ends the link for what the peer sent; a relay says why in an error frame, too.
func (l *link) fail(r Reason, e *wire.Error) bool {
	if l.client {
		return l.end(End{Reason: r, Text: closeText(r, e.Message)})
	}
	return l.end(End{Reason: r, Text: closeText(r, e.Message)}, wire.AppendErrorFrame(nil, "", e))
}

// pinged notes a ping to answer; of several that come before the writer is ready, the latest is answered (RFC 6455,
// section 5.5.3), so a flood of them costs nothing.
func (l *link) pinged(payload []byte) {
	l.mu.Lock()
	l.pong = append(l.pong[:0], payload...)
	l.pongDue = true
	l.mu.Unlock()
	l.wake.Signal()
}
