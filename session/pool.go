package session

import "sync"

// pool runs work that may block on the store, so that readers never do. Goroutines are started as work comes and a few
// stay parked for the next: there is neither one for each message nor one for each session.
type pool struct {
	most   int // goroutines at once
	parked int // how many stay

	mu      sync.Mutex
	idle    []chan func()
	running int
	queue   []func()
	next    int
	closed  bool
	wg      sync.WaitGroup
}

func newPool(most, parked int) *pool { return &pool{most: most, parked: parked} }

// run queues f and returns at once. Work that is queued is always run, also while the pool closes.
func (p *pool) run(f func()) {
	p.mu.Lock()
	if n := len(p.idle); n > 0 {
		w := p.idle[n-1]
		p.idle[n-1] = nil
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		w <- f // buffered: its goroutine is parked
		return
	}
	if p.running >= p.most {
		p.queue = append(p.queue, f)
		p.mu.Unlock()
		return
	}
	p.running++
	p.wg.Add(1)
	p.mu.Unlock()
	go p.work(f)
}

func (p *pool) work(f func()) {
	defer p.wg.Done()
	var w chan func()
	for f != nil {
		f()
		var parked bool
		if f, parked = p.take(&w); parked {
			f = <-w // closed by close
		}
	}
}

// take answers what to do next, or parks the worker, or (nil, false) tells it to go.
func (p *pool) take(w *chan func()) (f func(), parked bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next < len(p.queue) {
		f = p.queue[p.next]
		p.queue[p.next] = nil
		p.next++
		if p.next == len(p.queue) {
			p.queue, p.next = p.queue[:0], 0
		}
		return f, false
	}
	if p.closed || len(p.idle) >= p.parked {
		p.running--
		return nil, false
	}
	if *w == nil {
		*w = make(chan func(), 1)
	}
	p.idle = append(p.idle, *w)
	return nil, true
}

// close lets the parked goroutines go and waits for all work.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	for _, w := range p.idle {
		close(w)
	}
	p.running -= len(p.idle)
	p.idle = nil
	p.mu.Unlock()
	p.wg.Wait()
}
