package hub

import (
	"context"
	"sync"
	"sync/atomic"
)

// task is something that takes turns: a daemon, a site or a route.
type task interface{ work(ctx context.Context) }

// pool runs tasks in the order of their marks. Workers come with the load, up to limit, and go when it does; a few stay.
type pool struct {
	ctx   context.Context //nolint:containedctx // of Run: it ends when the hub does
	limit int
	keep  int

	mu      sync.Mutex
	more    *sync.Cond
	line    []task
	first   int
	idle    int
	workers int
	closed  bool
	wg      sync.WaitGroup
}

func newPool(limit int) *pool {
	p := &pool{limit: limit, keep: min(limit, 4)}
	p.more = sync.NewCond(&p.mu)
	return p
}

// start lets tasks run; those submitted before wait for it.
func (p *pool) start(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ctx = ctx
	for range min(len(p.line)-p.first, p.limit) {
		p.spawn()
	}
}

func (p *pool) submit(t task) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.line = append(p.line, t)
	switch {
	case p.ctx == nil:
	case p.idle > 0:
		p.idle-- // it is spoken for
		p.more.Signal()
	case p.workers < p.limit:
		p.spawn()
	}
}

func (p *pool) spawn() {
	p.workers++
	p.wg.Go(p.run)
}

func (p *pool) run() {
	for {
		t, ok := p.next()
		if !ok {
			return
		}
		t.work(p.ctx)
	}
}

func (p *pool) next() (task, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.first == len(p.line) {
		p.line, p.first = p.line[:0], 0
		if p.closed || p.idle >= p.keep {
			p.workers--
			return nil, false
		}
		p.idle++
		p.more.Wait()
	}
	if p.closed {
		p.workers--
		return nil, false
	}
	t := p.line[p.first]
	p.line[p.first] = nil
	p.first++
	if p.first > 1024 && p.first*2 > len(p.line) {
		p.line = append(p.line[:0], p.line[p.first:]...)
		p.first = 0
	}
	return t, true
}

// close lets the running tasks end, forgets the others and waits.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	p.more.Broadcast()
	p.mu.Unlock()
	p.wg.Wait()
}

// turn puts a task in line at most once, and once more when it was marked while it worked: no mark is missed, and no two
// workers have one task.
type turn struct{ state atomic.Int32 }

const (
	turnIdle int32 = iota
	turnQueued
	turnRunning
	turnAgain
)

func (t *turn) mark(p *pool, k task) {
	for {
		switch s := t.state.Load(); s {
		case turnIdle:
			if t.state.CompareAndSwap(s, turnQueued) {
				p.submit(k)
				return
			}
		case turnRunning:
			if t.state.CompareAndSwap(s, turnAgain) {
				return
			}
		default:
			return
		}
	}
}

func (t *turn) begin() { t.state.Store(turnRunning) }

func (t *turn) end(p *pool, k task) {
	if t.state.CompareAndSwap(turnRunning, turnIdle) {
		return
	}
	t.state.Store(turnQueued)
	p.submit(k)
}
