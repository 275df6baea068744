package session

import (
	"pushrelay/wire"
)

// pushBulk queues a frame on the bulk lane; too many of them end the session. When the lane is idle and there is room,
// load runs on the caller.
func (l *link) pushBulk(it *outItem) {
	l.mu.Lock()
	if l.state != linkOpen {
		l.mu.Unlock()
		it.finished(ErrEnded)
		return
	}
	if l.out.waiting() >= maxBulkItems {
		l.mu.Unlock()
		l.end(End{Reason: ReasonTooSlow, Text: closeText(ReasonTooSlow, "the bulk lane is full")})
		it.finished(ErrEnded)
		return
	}
	idle := l.out.idle()
	l.out.add(it)
	l.mu.Unlock()
	l.pump(idle)
}

// pump prepares as many frames as there is room for.
func (l *link) pump(inline bool) {
	for {
		l.mu.Lock()
		if l.state != linkOpen {
			l.mu.Unlock()
			return
		}
		it := l.out.nextToLoad()
		l.mu.Unlock()
		if it == nil {
			return
		}
		l.prepare(it, inline)
	}
}

// prepare reserves memory for a frame and loads it. How long a frame is isn't known before it was loaded, so the
// greatest length is reserved and the rest given back. When there is no room for that, the frame may be loaded on one
// of few turns to learn its length: a small one is sent, so that those who stall can't hold up everybody's small
// frames; a large one is dropped, and loaded again when it is its turn in the budget.
func (l *link) prepare(it *outItem, inline bool) {
	switch {
	case it.load == nil:
		l.ready(it)
	case it.size > 0:
		l.await(it, l.budget.Reserve(it.size, func() {
			it.held = min(it.size, l.budget.Size())
			l.workers.run(func() { l.loadItem(it) })
		}))
	case l.budget.TryReserve(wire.MaxFrameBytes):
		it.held = wire.MaxFrameBytes
		if inline {
			l.loadItem(it)
		} else {
			l.workers.run(func() { l.loadItem(it) })
		}
	default:
		l.await(it, l.budget.guesses.Reserve(1, func() {
			it.guess = true
			l.workers.run(func() { l.loadItem(it) })
		}))
	}
}

// await notes how to stop waiting. A session that ended meanwhile stops at once.
func (l *link) await(it *outItem, cancel func() bool) {
	l.mu.Lock()
	it.cancel = cancel
	ended := l.state != linkOpen
	l.mu.Unlock()
	if ended && cancel() {
		l.giveUp(it, ErrEnded)
	}
}

func (l *link) loadItem(it *outItem) {
	var pieces [][]byte
	err := ErrEnded
	if l.ctx.Err() == nil && l.open() {
		pieces, err = it.load(l.ctx)
	}
	it.setPieces(pieces)
	switch {
	case err != nil:
	case it.total == 0:
		err = errUnwanted
	case it.total > wire.MaxFrameBytes:
		err = errTooLong
	}
	if err != nil {
		l.giveUp(it, err)
		return
	}
	if !l.fit(it) {
		it.size, it.pieces = int64(it.total), nil
		l.prepare(it, false)
		return
	}
	l.ready(it)
}

// fit makes the item hold exactly what was loaded; false: there is no room, and it holds nothing.
func (l *link) fit(it *outItem) bool {
	n := int64(it.total)
	if it.guess {
		it.guess = false
		fits := n <= wire.InitialCredit && l.budget.charge(n) || l.budget.TryReserve(n)
		l.budget.guesses.Release(1)
		if fits {
			it.held = n
		}
		return fits
	}
	if n > it.held && !l.budget.TryReserve(n-it.held) { // it grew since it was measured
		n = 0
	}
	l.budget.Release(max(0, it.held-n))
	it.held = n
	return n > 0
}

// ready hands a loaded item to the writer.
func (l *link) ready(it *outItem) {
	l.mu.Lock()
	if l.state != linkOpen {
		l.mu.Unlock()
		l.giveUp(it, ErrEnded)
		return
	}
	it.cancel = nil
	l.out.started(it, it.held)
	l.mu.Unlock()
	l.wake.Signal()
}

// giveUp ends an item that was being prepared.
func (l *link) giveUp(it *outItem, err error) {
	l.release(it)
	it.finished(err)
	l.mu.Lock()
	it.over, it.cancel = true, nil
	l.out.loadOver(it)
	l.mu.Unlock()
	l.wake.Broadcast() // the writer may wait for the last one to leave
	l.pump(false)
}

// release gives back what an item holds.
func (l *link) release(it *outItem) {
	if it.guess {
		it.guess = false
		l.budget.guesses.Release(1)
	}
	held := it.held
	it.held = 0
	l.budget.Release(held)
}

// withdraw stops an item; false: it is over, or on its way as a whole.
func (l *link) withdraw(it *outItem, err error) bool {
	l.mu.Lock()
	if !l.out.remove(it) {
		l.mu.Unlock()
		return false
	}
	if it.stream != 0 {
		l.out.aborts = append(l.out.aborts, it.stream)
	}
	l.mu.Unlock()
	l.release(it)
	it.finished(err)
	l.wake.Signal()
	l.pump(false)
	return true
}

func (l *link) open() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state == linkOpen
}

// credit lets a stream go on.
func (l *link) credit(stream uint32, n int) {
	l.mu.Lock()
	if it := l.out.find(stream); it != nil {
		if it.credit == 0 {
			it.since = l.sock.now() // its clock stood
		}
		it.credit = min(it.credit+n, it.total-it.sent)
	}
	l.mu.Unlock()
	l.wake.Signal()
}

// refusedStream hears that the peer won't take a stream.
func (l *link) refusedStream(stream uint32, e *wire.Error) {
	l.mu.Lock()
	it := l.out.find(stream)
	l.mu.Unlock()
	if it != nil {
		l.withdraw(it, e)
	}
}
