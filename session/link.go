package session

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"pushrelay/wire"
)

// link carries frames over one connection, on either end: a reader, a writer, two lanes out, streams both ways, and the
// end. It knows nothing of who talks.
//
// Only the writer writes, and only the reader reads. Whatever decides an end calls end, which returns at once: the
// writer finishes what it is at, sends the close frame, and waits a moment for the peer's; tick bounds each step. No
// context and no deadline is put on the connection (see framing.go and socket.go).
//
// Locks: mu is a leaf. Budget and pool are called without it where they may call back, owner always.
type link struct {
	// Immutable.
	*engine
	sock   *socket
	ws     *websocket.Conn
	owner  linkOwner
	ctx    context.Context // for loaders; ends with the link
	cancel context.CancelFunc

	// Reader's.
	limit atomic.Int64 // bytes of a text message; the owner raises it

	framesIn, framesOut atomic.Int64

	mu       sync.Mutex
	wake     sync.Cond // the writer's; of mu
	state    linkState
	result   End
	queuedAt int64 // bytes that were queued when the end came
	until    int64 // when the present step of the end is over, since the connection began
	deaf     bool  // the reader is gone
	holding  bool  // only urgent frames pass: the handshake isn't over

	urgent       [][]byte // frames that nothing holds back
	control      [][]byte
	controlBytes int64
	pong         []byte // of the latest ping
	pongDue      bool
	pingDue      bool
	nextPing     int64
	out          outflow
	in           inflow
}

// linkOwner is a Session or a Conn. Its methods are called without locks.
type linkOwner interface {
	// received takes a frame, and held bytes of the budget with it. Called by the reader; must not block.
	received(h head, frame []byte, held int64)
	// malformed hears of a frame that isn't one. Called by the reader; must not block.
	malformed(e *wire.Error)
	// gone is the last call: both goroutines have ended, the connection is closed. It may block.
	gone(e End)
}

type linkState uint8

const (
	linkOpen    linkState = iota
	linkEnding            // decided; the close frame isn't sent yet
	linkClosing           // sent; the peer has a moment to answer
)

// newLink makes a link that start brings to life.
func newLink(e *engine, sock *socket, ws *websocket.Conn, owner linkOwner) *link {
	l := &link{engine: e, sock: sock, ws: ws, owner: owner}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.wake.L = &l.mu
	sock.pool = &e.larges
	l.limit.Store(wire.MaxTextBytes)
	ws.SetReadLimit(-1) // read applies its own, which can be answered before the close
	if !e.client {
		l.nextPing = sock.now() + int64(e.pingDelay())
	}
	return l
}

func (l *link) start() {
	go l.read()
	go l.write()
}

// push queues a frame on the control lane, or, when it is too long for a message, on the bulk lane.
func (l *link) push(frame []byte) {
	if len(frame) > wire.MaxTextBytes {
		l.pushLong(frame, false)
		return
	}
	l.mu.Lock()
	if l.state == linkClosing || l.state == linkEnding && l.result.drops() {
		l.mu.Unlock()
		return
	}
	over := l.controlBytes+int64(len(frame)) > l.controlLane
	if !over {
		l.control = append(l.control, frame)
		l.controlBytes += int64(len(frame))
	}
	l.mu.Unlock()
	if over {
		l.laneFull()
		return
	}
	l.wake.Signal()
}

// pushLong sends a control frame in parts. It counts for the control lane until it is sent, but for no more than half of
// it: else a frame as long as the lane could never be sent.
func (l *link) pushLong(frame []byte, first bool) {
	if len(frame) > wire.MaxFrameBytes {
		l.end(End{Reason: ReasonInternal, Text: closeText(ReasonInternal, "a frame was too long to be sent")})
		return
	}
	n := min(int64(len(frame)), l.controlLane/2)
	it := &outItem{first: first}
	it.done = func(err error) { l.sentLong(n, first, err) }
	it.setPieces([][]byte{frame})
	l.mu.Lock()
	if l.state != linkOpen {
		l.mu.Unlock()
		return
	}
	over := !first && l.controlBytes+n > l.controlLane
	if !over {
		l.controlBytes += n
	}
	switch {
	case over:
	case first:
		l.out.sending = append(l.out.sending, it)
	default:
		l.out.add(it)
	}
	l.mu.Unlock()
	if over {
		l.laneFull()
		return
	}
	l.pump(false)
	l.wake.Signal()
}

// sentLong hears that a long control frame is on its way. One that the peer didn't take ends the session: nothing is
// dropped silently.
func (l *link) sentLong(n int64, first bool, err error) {
	l.mu.Lock()
	l.controlBytes -= n
	if first {
		l.holding = false
	}
	l.mu.Unlock()
	l.wake.Signal()
	if err != nil && !isEnded(err) {
		l.lost(ReasonTooSlow, "a long frame was not taken")
	}
}

func (l *link) laneFull() {
	l.end(End{Reason: ReasonTooSlow, Text: closeText(ReasonTooSlow, "the control lane is full")})
}

// pushUrgent queues a frame that passes while the handshake holds everything back.
func (l *link) pushUrgent(frame []byte) {
	l.mu.Lock()
	if l.state == linkOpen {
		l.urgent = append(l.urgent, frame)
	}
	l.mu.Unlock()
	l.wake.Signal()
}

// welcome sends the frame that everything was held back for, and then lets the lanes go.
func (l *link) welcome(frame []byte) {
	if len(frame) > wire.MaxTextBytes {
		l.pushLong(frame, true)
		return
	}
	l.mu.Lock()
	if l.state == linkOpen {
		l.urgent = append(l.urgent, frame)
	}
	l.holding = false
	l.mu.Unlock()
	l.wake.Signal()
}

// end starts the end of the link and returns at once; the first end wins. last is sent before the close frame.
func (l *link) end(e End, last ...[]byte) bool {
	e.Text = cutText(e.Text)
	if e.Code == 0 {
		e.Code = e.Reason.Code()
	}
	l.mu.Lock()
	if l.state != linkOpen {
		l.mu.Unlock()
		return false
	}
	l.queuedAt = l.queued()
	l.state, l.result = linkEnding, e
	l.until = l.sock.now() + int64(finishFor)
	l.urgent = append(l.urgent, last...)
	if e.drops() || l.holding {
		l.control, l.controlBytes = nil, 0
	}
	d := l.dropBulk()
	l.mu.Unlock()
	l.settle(d)
	if e.Reason == ReasonCut {
		l.sock.cut()
	} else if l.sock.writing.Load() {
		l.sock.makeRoom()
	}
	l.wake.Broadcast()
	return true
}

// drops reports whether what is queued is lost with the end: there is nobody to read it, or it is what is too much.
func (e End) drops() bool {
	return e.Reason == ReasonTooSlow || e.Reason == ReasonPeer || e.Reason == ReasonCut
}

// sendsClose reports whether the peer is told, with a close frame.
func (e End) sendsClose() bool { return e.Reason != ReasonCut && e.Code != 0 }

// dropped is what is to be settled, without mu, when bulk is dropped.
type dropped struct {
	items   []*outItem
	loads   []*outItem // that wait for the budget, or load right now
	cancels []func() bool
	freed   int64
}

// dropBulk empties both directions of bulk. mu is held.
func (l *link) dropBulk() dropped {
	var d dropped
	for _, it := range l.out.queue[l.out.next:] {
		it.over = true
		d.items = append(d.items, it)
	}
	for _, it := range l.out.sending {
		it.over = true
		d.freed += it.held
		d.items = append(d.items, it)
	}
	d.loads = append(d.loads, l.out.loads...)
	l.out = outflow{loads: l.out.loads, loaded: l.out.loaded}
	for _, s := range l.in.streams {
		d.freed += s.held
		d.cancels = append(d.cancels, s.cancel)
	}
	l.in = inflow{lastPart: l.in.lastPart}
	return d
}

func (l *link) settle(d dropped) {
	for _, cancel := range d.cancels {
		if cancel != nil {
			cancel()
		}
	}
	l.budget.Release(d.freed)
	for _, it := range d.items {
		it.finished(ErrEnded)
	}
	for _, it := range d.loads {
		l.mu.Lock()
		cancel := it.cancel
		l.mu.Unlock()
		if cancel != nil && cancel() { // else it is on its way to find out by itself
			l.giveUp(it, ErrEnded)
		}
	}
}

// queued is what both lanes hold, in bytes. mu is held.
func (l *link) queued() int64 {
	n := l.controlBytes
	for _, it := range l.out.sending {
		if it.load != nil { // others count for the control lane
			n += int64(it.total - it.sent)
		}
	}
	return n
}

// tick does what is due: it is called about twice a second, by one goroutine, and never blocks.
func (l *link) tick() {
	stalled := l.sock.stalled(stallFor)
	l.mu.Lock()
	now := l.sock.now()
	switch l.state {
	case linkOpen:
		l.mu.Unlock()
		l.tickOpen(now, stalled)
	default:
		over := now >= l.until
		l.mu.Unlock()
		if over {
			l.sock.cut()
		}
	}
}

func (l *link) tickOpen(now int64, stalled bool) {
	switch {
	case l.sock.silent(l.idleAfter):
		l.lost(ReasonIdle, "silent for "+l.idleAfter.String())
	case stalled:
		l.lost(ReasonTooSlow, "a write did not move for "+stallFor.String())
	default:
		l.ping(now)
		l.cutLate(now)
		l.refuseLate(now)
	}
}

// lost ends a link whose peer doesn't seem to be there. A relay tries to say so; a client dials again instead.
func (l *link) lost(r Reason, text string) {
	if l.client {
		r = ReasonCut
	}
	l.end(End{Reason: r, Text: closeText(r, text)})
}

func (l *link) ping(now int64) {
	l.mu.Lock()
	due := l.nextPing > 0 && now >= l.nextPing
	if due {
		l.pingDue = true
		l.nextPing = now + int64(l.pingDelay())
	}
	l.mu.Unlock()
	if due {
		l.wake.Signal()
	}
}

// cutLate gives up what is sent too slowly: the session when the peer forgot to give credit, else the stream.
func (l *link) cutLate(now int64) {
	l.mu.Lock()
	starved, slow := l.out.late(now)
	l.mu.Unlock()
	if starved != nil {
		l.lost(ReasonTooSlow, "no credit for a stream in "+creditFor.String())
	}
	if slow != nil {
		l.withdraw(slow, wire.Unavailable(retryStream, "the frame's parts went too slowly"))
	}
}

// age is how long the link has been up.
func (l *link) age() time.Duration { return time.Since(l.sock.start) }
