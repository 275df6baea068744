package session

import (
	"runtime"

	"pushrelay/wire"
)

// write is the writer: it frames what is ready, and writes it at once. It is the last to go: when the reader and all
// loads are done, it tells the owner.
func (l *link) write() {
	for {
		r := l.next()
		if r.closed {
			l.sock.makeRoom()
		}
		err := l.sock.send(r.bytes)
		*r.buf = r.bytes[:0]
		l.outs.Put(r.buf)
		if r.finished != nil {
			l.budget.Release(r.finished.held)
			r.finished.finished(nil)
			l.pump(false)
		}
		if err != nil {
			l.end(End{Reason: ReasonCut})
			break
		}
		if r.closed {
			l.farewell()
			break
		}
	}
	l.cancel()
	l.sock.close() // with TLS this writes; tick bounds it
	l.mu.Lock()
	for !l.deaf || len(l.out.loads) > 0 {
		l.wake.Wait()
	}
	e := l.result
	l.mu.Unlock()
	_ = l.ws.CloseNow() // gives the library's buffers back; the connection is closed
	l.owner.gone(e)
}

// round is what the writer sends in one go.
type round struct {
	buf      *[]byte // to be given back
	bytes    []byte
	finished *outItem // its last part is among them
	closed   bool     // nothing comes after them
}

// next waits until something is ready and frames it: all of the control lane that is ready, up to 64 KiB, then one
// message of bulk. So a control frame never waits for more than one part. While it waits it holds no buffer. On a busy
// machine a writer that was woken lets others go first, who often have more for the same write.
func (l *link) next() round {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.anything() {
		for !l.anything() {
			l.wake.Wait()
		}
		l.mu.Unlock()
		runtime.Gosched()
		l.mu.Lock()
	}
	r := round{buf: l.outs.Get().(*[]byte)}
	r.bytes = l.composeControl((*r.buf)[:0])
	switch {
	case l.state == linkEnding && len(l.control) == 0:
		if l.result.sendsClose() {
			r.bytes = appendClose(r.bytes, l.client, l.result.Code, l.result.Text)
		}
		r.closed = true
	case l.state == linkOpen && len(r.bytes) < writeRound:
		r.bytes, r.finished = l.composeBulk(r.bytes)
	}
	return r
}

// anything reports whether the writer has something to do.
func (l *link) anything() bool {
	return l.state != linkOpen || l.pingDue || l.pongDue || len(l.urgent) > 0 || l.in.credits() || !l.holding && len(l.control) > 0 ||
		len(l.out.aborts) > 0 || l.out.anySendable(l.holding)
}

func (l *link) composeControl(dst []byte) []byte {
	if l.pingDue {
		dst = appendMessage(dst, opPing, l.client)
		l.pingDue = false
	}
	if l.pongDue {
		dst = appendMessage(dst, opPong, l.client, l.pong)
		l.pongDue = false
	}
	for _, f := range l.urgent {
		dst = l.appendText(dst, f)
	}
	l.urgent = nil
	for _, s := range l.in.streams {
		if s.due > 0 {
			dst = l.appendText(dst, wire.AppendCredit(nil, s.id, s.due))
			s.due = 0
		}
	}
	if l.holding {
		return dst
	}
	n := 0
	for n < len(l.control) && len(dst) < writeRound {
		dst = l.appendText(dst, l.control[n])
		l.controlBytes -= int64(len(l.control[n]))
		l.control[n] = nil
		n++
	}
	if l.control = l.control[n:]; len(l.control) == 0 {
		l.control = nil // idle sessions keep nothing
	}
	return dst
}

func (l *link) appendText(dst, frame []byte) []byte {
	l.framesOut.Add(1)
	return appendMessage(dst, opText, l.client, frame)
}

func (l *link) composeBulk(dst []byte) (_ []byte, finished *outItem) {
	for _, id := range l.out.aborts {
		h := wire.AppendPartHeader(nil, wire.PartHeader{Stream: id, Flags: wire.PartAbort}, 0)
		dst = appendMessage(dst, opBinary, l.client, h)
	}
	l.out.aborts = nil
	it := l.out.pick(l.holding)
	if it == nil {
		return dst, nil
	}
	dst, last := l.out.appendTurn(dst, it, l.client, l.sock.now())
	if !last {
		return dst, nil
	}
	l.framesOut.Add(1)
	l.out.remove(it)
	return dst, it
}

// farewell waits for the peer's close frame, or for tick to lose patience.
func (l *link) farewell() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = linkClosing
	l.until = l.sock.now() + int64(farewellFor)
	for !l.deaf && l.result.sendsClose() {
		l.wake.Wait()
	}
}
