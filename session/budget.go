package session

import (
	"sync"

	"pushrelay/wire"
)

// Budget bounds the bytes of bulk frames that a process holds, in both directions and over all sessions. Waiters are
// served in the order in which they came, so that a large frame isn't starved by small ones. No method blocks.
//
// A frame's first 64 KiB can't be refused politely: the protocol lets a peer send them before it is told anything. They
// are charged without waiting and may use an overdraft of a quarter of the budget; beyond it streams are refused.
type Budget struct {
	size    int64   // immutable
	guesses *Budget // turns to load a frame without a reservation, see link.prepare; nil in itself

	mu      sync.Mutex
	used    int64
	peak    int64
	waiting []*reservation // from next on, in order
	next    int
}

// reservation waits for bytes. It is over when granted is nil.
type reservation struct {
	bytes   int64
	granted func()
}

// DefaultBudget is a relay's, in bytes (design, section 5).
const DefaultBudget = 256 << 20

// maxGuesses is how many frames of unknown length may load at once when the budget is short.
const maxGuesses = 4

// NewBudget makes a budget of so many bytes; it holds at least one frame of the greatest length.
func NewBudget(bytes int64) *Budget {
	return &Budget{size: max(bytes, wire.MaxFrameBytes), guesses: &Budget{size: maxGuesses}}
}

// Used answers the bytes held now; Peak the most that ever were.
func (b *Budget) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// Peak answers the most bytes that were held at one time.
func (b *Budget) Peak() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.peak
}

// Size answers the budget's bytes.
func (b *Budget) Size() int64 { return b.size }

// TryReserve takes n bytes if they are free and nobody waits for them.
func (b *Budget) TryReserve(n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waits() || b.used+n > b.size {
		return false
	}
	b.take(n)
	return true
}

// Reserve takes n bytes, at most the budget's size, as soon as they are free, and then calls granted once: at once, or
// later on the goroutine that gave bytes back. granted must not block. cancel reports whether it came before that.
func (b *Budget) Reserve(n int64, granted func()) (cancel func() bool) {
	n = min(n, b.size)
	b.mu.Lock()
	if !b.waits() && b.used+n <= b.size {
		b.take(n)
		b.mu.Unlock()
		granted()
		return func() bool { return false }
	}
	r := &reservation{bytes: n, granted: granted}
	b.waiting = append(b.waiting, r)
	b.mu.Unlock()
	return func() bool { return b.cancel(r) }
}

func (b *Budget) cancel(r *reservation) bool {
	b.mu.Lock()
	if r.granted == nil {
		b.mu.Unlock()
		return false
	}
	r.granted = nil
	ready := b.serve() // r may have stood before others that fit
	b.mu.Unlock()
	callAll(ready)
	return true
}

// Release gives n bytes back.
func (b *Budget) Release(n int64) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	b.used -= n
	ready := b.serve()
	b.mu.Unlock()
	callAll(ready)
}

// charge takes n bytes that are here already, from the overdraft if need be; false: that is used up as well.
func (b *Budget) charge(n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used+n > b.size+b.size/4 {
		return false
	}
	b.take(n)
	return true
}

func (b *Budget) take(n int64) {
	b.used += n
	b.peak = max(b.peak, b.used)
}

func (b *Budget) waits() bool { return b.next < len(b.waiting) }

// serve takes bytes for those who are first in line, and answers whom to call once mu is released.
func (b *Budget) serve() (ready []func()) {
	for b.waits() {
		r := b.waiting[b.next]
		if r.granted != nil {
			if b.used+r.bytes > b.size {
				return ready
			}
			b.take(r.bytes)
			ready = append(ready, r.granted)
			r.granted = nil
		}
		b.waiting[b.next] = nil
		b.next++
	}
	b.waiting, b.next = b.waiting[:0], 0
	return ready
}

func callAll(fs []func()) {
	for _, f := range fs {
		f()
	}
}
