package session

import (
	"slices"

	"pushrelay/wire"
)

// outflow is a link's bulk lane: frames that are loaded as their turn comes, and those that are being sent.
// All fields are guarded by the link's mu.
type outflow struct {
	queue   []*outItem // from next on; not loaded yet
	next    int
	loads   []*outItem // being loaded, or waiting for the budget
	sending []*outItem // loaded; with those that load at most MaxStreams
	turn    int        // whose turn it is in sending
	loaded  int64      // bytes that sending holds and loading may bring
	aborts  []uint32   // streams to tell the peer that we gave up
	last    uint32     // the stream id that was given last
}

// outItem is one frame of the bulk lane.
type outItem struct {
	load  Loader          // nil when the pieces were there from the beginning
	done  func(err error) // may be nil; called once, without locks: sent (nil), or it never will be whole
	first bool            // a welcome: it is sent while everything else is held back

	// Owned by whoever prepares, loads or sends it; handed on under the link's mu.
	pieces [][]byte
	total  int
	size   int64 // what to reserve, once that is known
	held   int64 // of the budget
	guess  bool  // it loads on one of the turns that need no reservation

	// Guarded by the link's mu.
	weight int64       // its part of outflow.loaded
	cancel func() bool // of the reservation
	over   bool        // given up, sent, or the session ended
	stream uint32      // 0 until the first part was sent
	sent   int
	piece  int // where in pieces the rest begins
	offset int
	credit int
	since  int64 // when it last had credit or moved, in nanoseconds since the connection began
}

func (it *outItem) setPieces(pieces [][]byte) {
	it.pieces, it.total = pieces, 0
	for _, p := range pieces {
		it.total += len(p)
	}
}

func (it *outItem) finished(err error) {
	if it.done != nil {
		it.done(err)
	}
}

// whole reports whether the frame travels as one text message.
func (it *outItem) whole() bool { return it.total <= wire.MaxTextBytes }

func (it *outItem) sendable() bool { return it.whole() || it.stream == 0 || it.credit > 0 }

func (o *outflow) waiting() int { return len(o.queue) - o.next }

func (o *outflow) idle() bool { return o.waiting() == 0 && len(o.loads) == 0 && len(o.sending) == 0 }

func (o *outflow) add(it *outItem) {
	if o.next > 0 && len(o.queue) == cap(o.queue) {
		o.queue = o.queue[:copy(o.queue, o.queue[o.next:])]
		o.next = 0
	}
	o.queue = append(o.queue, it)
}

// nextToLoad takes the first in the queue when there is room to load it.
func (o *outflow) nextToLoad() *outItem {
	if o.waiting() == 0 || len(o.loads)+len(o.sending) >= wire.MaxStreams {
		return nil
	}
	it := o.queue[o.next]
	it.weight = it.size
	if it.size == 0 && it.load != nil {
		it.weight = wire.MaxFrameBytes
	}
	if o.loaded > 0 && o.loaded+it.weight > maxLoaded {
		return nil
	}
	o.queue[o.next] = nil
	if o.next++; o.next == len(o.queue) {
		o.queue, o.next = nil, 0 // idle sessions keep nothing
	}
	o.loaded += it.weight
	o.loads = append(o.loads, it)
	return it
}

// started moves a loaded item to those that are sent.
func (o *outflow) started(it *outItem, weight int64) {
	o.loadOver(it)
	o.loaded += weight
	it.weight = weight
	o.sending = append(o.sending, it)
}

// loadOver takes an item out of those that load.
func (o *outflow) loadOver(it *outItem) {
	o.loaded -= it.weight
	o.loads = without(o.loads, it)
}

// remove takes an item out that waits or is being sent; false: it does neither any more.
func (o *outflow) remove(it *outItem) bool {
	if it.over {
		return false
	}
	for i, s := range o.sending {
		if s == it {
			o.sending = without(o.sending, it)
			if o.turn > i {
				o.turn--
			}
			o.loaded -= it.weight
			it.over = true
			return true
		}
	}
	for i := o.next; i < len(o.queue); i++ {
		if o.queue[i] == it {
			o.queue = slices.Delete(o.queue, i, i+1)
			it.over = true
			return true
		}
	}
	return false
}

// without answers list without it; nothing is kept of an empty one.
func without(list []*outItem, it *outItem) []*outItem {
	if i := slices.Index(list, it); i >= 0 {
		list = slices.Delete(list, i, i+1)
	}
	if len(list) == 0 {
		return nil
	}
	return list
}

func (o *outflow) find(stream uint32) *outItem {
	for _, it := range o.sending {
		if it.stream == stream && stream != 0 {
			return it
		}
	}
	return nil
}

// anySendable reports whether pick would find one.
func (o *outflow) anySendable(onlyFirst bool) bool {
	for _, it := range o.sending {
		if it.sendable() && (it.first || !onlyFirst) {
			return true
		}
	}
	return false
}

// pick answers whose turn it is to send a message, round robin; onlyFirst: everything but a welcome is held back.
func (o *outflow) pick(onlyFirst bool) *outItem {
	for i := range o.sending {
		at := (o.turn + i) % len(o.sending)
		if it := o.sending[at]; it.sendable() && (it.first || !onlyFirst) {
			o.turn = at + 1
			return it
		}
	}
	return nil
}

// appendTurn appends one message of it, and reports whether the frame is complete with it.
func (o *outflow) appendTurn(dst []byte, it *outItem, masked bool, now int64) ([]byte, bool) {
	if it.whole() {
		return appendMessage(dst, opText, masked, it.pieces...), true
	}
	h := wire.PartHeader{}
	if it.stream == 0 {
		if o.last++; o.last == 0 {
			o.last++
		}
		it.stream, it.credit = o.last, wire.InitialCredit
		h.Flags |= wire.PartFirst
	}
	h.Stream = it.stream
	n := min(it.credit, wire.MaxPartBytes, it.total-it.sent)
	if it.sent+n == it.total {
		h.Flags |= wire.PartLast
	}
	var room [wire.PartHeaderBytes + 4]byte
	var few [6][]byte
	pieces := append(few[:0], wire.AppendPartHeader(room[:0], h, uint32(it.total)))
	dst = appendMessage(dst, opBinary, masked, it.advance(pieces, n)...)
	it.sent += n
	it.credit -= n
	it.since = now
	return dst, h.Last()
}

// advance appends the next n bytes' slices to pieces.
func (it *outItem) advance(pieces [][]byte, n int) [][]byte {
	for n > 0 {
		p := it.pieces[it.piece][it.offset:]
		if len(p) > n {
			pieces = append(pieces, p[:n])
			it.offset += n
			return pieces
		}
		pieces = append(pieces, p)
		n -= len(p)
		it.piece++
		it.offset = 0
	}
	return pieces
}

// late answers a stream that waits for credit for too long, and one that has credit and didn't move in its time. As in
// inflow.late, the streams of a session share its link.
func (o *outflow) late(now int64) (starved, slow *outItem) {
	limit := int64(stallFor) * int64(max(1, len(o.sending)))
	for _, it := range o.sending {
		switch {
		case it.stream == 0:
		case it.credit == 0 && now-it.since >= int64(creditFor):
			starved = it
		case it.credit > 0 && now-it.since >= limit:
			slow = it
		}
	}
	return starved, slow
}
