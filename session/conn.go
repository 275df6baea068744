package session

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"pushrelay/wire"
)

// What a client lets be unanswered at once. The relay allows 64 requests and 16 MiB; some places are kept for small
// requests, so that a heartbeat never waits for bulk.
const (
	mostBulkRequests = wire.MaxRequests - 16
	mostInbox        = 8192    // pushes that wait for their handler,
	mostInboxBytes   = 2 << 20 // and those of their bytes that no budget counts
)

// Conn is one session on a client. Its methods may be called from any goroutine.
type Conn struct {
	// Immutable once the session is welcome.
	client    *Client
	link      *link
	id        string
	slots     *semaphore.Weighted // requests
	bulkSlots *semaphore.Weighted // among them those on the bulk lane
	bytes     *semaphore.Weighted // of unanswered requests

	nextID   atomic.Uint64
	replaced atomic.Bool   // another session has taken its place: its end means nothing
	goaway   chan goaway   // the latest, capacity 1
	notify   chan struct{} // something is in the inbox, capacity 1
	closed   chan struct{} // by gone
	done     chan struct{} // after Ended

	mu      sync.Mutex
	pending map[string]*call
	inbox   []arrival
	unpaid  int // bytes in inbox that no budget counts
	over    bool
	end     End
	refusal *wire.Error // the last error frame that named no request
}

// call is a request that waits for its answer.
type call struct {
	answer chan answer                   // capacity 1; of a Request
	then   func(reply []byte, err error) // of a Send
	bytes  int64
	bulk   bool
}

type answer struct {
	frame []byte
	err   error
}

// arrival is a frame for the handler.
type arrival struct {
	head  head
	frame []byte
	held  int64
}

func newConn(c *Client) *Conn {
	return &Conn{
		client:    c,
		slots:     semaphore.NewWeighted(wire.MaxRequests),
		bulkSlots: semaphore.NewWeighted(mostBulkRequests),
		bytes:     semaphore.NewWeighted(wire.MaxRequestBytes),
		goaway:    make(chan goaway, 1),
		notify:    make(chan struct{}, 1),
		closed:    make(chan struct{}),
		done:      make(chan struct{}),
		pending:   map[string]*call{},
	}
}

// SessionID is the relay's name of the session, for logs on both sides.
func (c *Conn) SessionID() string { return c.id }

// Done is closed when the session is gone and its handler was told so.
func (c *Conn) Done() <-chan struct{} { return c.done }

// End says how the session ended; it is zero while it lasts.
func (c *Conn) End() End {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.end
}

// Close ends the session in order with 1000 and returns at once; Run returns nil after it.
func (c *Conn) Close(reason string) {
	c.link.end(End{Reason: ReasonClosed, Text: reason})
}

// Request sends a request and waits for its reply. build appends the frame, with the id given, to dst. An error frame
// becomes a *wire.Error; ErrEnded says that the session is gone. When ctx ends first the request stays sent. It waits
// for a place while 64 requests or 16 MiB are unanswered.
func (c *Conn) Request(ctx context.Context, build func(dst []byte, id string) []byte) ([]byte, error) {
	id := c.newID()
	frame := build(nil, id)
	if len(frame) > wire.MaxTextBytes {
		return c.requestBulk(ctx, id, [][]byte{frame})
	}
	p, err := c.begin(ctx, id, int64(len(frame)), false)
	if err != nil {
		return nil, err
	}
	c.link.push(frame)
	return c.await(ctx, p)
}

// RequestBulk is Request for a frame given in pieces, on the bulk lane, in parts when it is longer than 32 KiB. The
// pieces must not be changed until it returns. When ctx ends before the frame was sent whole, it is withdrawn.
func (c *Conn) RequestBulk(ctx context.Context, build func(id string) [][]byte) ([]byte, error) {
	id := c.newID()
	return c.requestBulk(ctx, id, build(id))
}

func (c *Conn) requestBulk(ctx context.Context, id string, pieces [][]byte) ([]byte, error) {
	it := &outItem{}
	it.setPieces(pieces)
	if it.total > wire.MaxFrameBytes {
		return nil, wire.BadRequest("a frame has at most %d bytes", wire.MaxFrameBytes)
	}
	p, err := c.begin(ctx, id, int64(it.total), true)
	if err != nil {
		return nil, err
	}
	it.done = func(err error) {
		if err != nil {
			c.answered(id, answer{err: err})
		}
	}
	c.link.pushBulk(it)
	frame, err := c.await(ctx, p)
	if err != nil && ctx.Err() != nil {
		c.link.withdraw(it, ctx.Err())
	}
	return frame, err
}

func (c *Conn) newID() string { return strconv.FormatUint(c.nextID.Add(1), 36) }

// begin takes a place and registers the call.
func (c *Conn) begin(ctx context.Context, id string, bytes int64, bulk bool) (*call, error) {
	p := &call{answer: make(chan answer, 1), bytes: bytes, bulk: bulk}
	if err := c.places(ctx, p); err != nil {
		return nil, err
	}
	if !c.register(id, p) {
		return nil, ErrEnded
	}
	return p, nil
}

// register notes who waits for an answer; false: the session has ended, and p's places are free again.
func (c *Conn) register(id string, p *call) bool {
	c.mu.Lock()
	over := c.over
	if !over {
		c.pending[id] = p
	}
	c.mu.Unlock()
	if over {
		c.leave(p)
	}
	return !over
}

func (c *Conn) places(ctx context.Context, p *call) error {
	if p.bulk {
		if err := c.acquire(ctx, c.bulkSlots, 1); err != nil {
			return err
		}
	}
	if err := c.acquire(ctx, c.slots, 1); err != nil {
		if p.bulk {
			c.bulkSlots.Release(1)
		}
		return err
	}
	if err := c.acquire(ctx, c.bytes, p.bytes); err != nil {
		c.slots.Release(1)
		if p.bulk {
			c.bulkSlots.Release(1)
		}
		return err
	}
	return nil
}

// acquire waits for a place, for ctx or for the end of the session.
func (c *Conn) acquire(ctx context.Context, s *semaphore.Weighted, n int64) error {
	if s.TryAcquire(n) {
		return nil
	}
	both, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(c.link.ctx, cancel)
	defer stop()
	if s.Acquire(both, n) == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return ErrEnded
}

func (c *Conn) leave(p *call) {
	if p.bulk {
		c.bulkSlots.Release(1)
	}
	c.slots.Release(1)
	c.bytes.Release(p.bytes)
}

func (c *Conn) await(ctx context.Context, p *call) ([]byte, error) {
	select {
	case a := <-p.answer:
		return a.frame, a.err
	case <-ctx.Done():
		return nil, ctx.Err() // its place is free when the answer comes
	}
}

// answered hands an answer to who waits for it, and frees the place.
func (c *Conn) answered(id string, a answer) {
	c.mu.Lock()
	p := c.pending[id]
	delete(c.pending, id)
	c.mu.Unlock()
	if p == nil {
		return
	}
	c.leave(p)
	p.tell(a)
}

// received takes a frame from the reader: answers go to who waits for them at once, pushes to the inbox.
func (c *Conn) received(h head, frame []byte, held int64) {
	switch {
	case h.Type == wire.TypeReply:
		c.link.budget.Release(held)
		c.answered(h.Re, answer{frame: frame})
	case h.Type == wire.TypeError && h.Re != "":
		c.link.budget.Release(held)
		_, refusal, err := wire.ParseErrorFrame(frame)
		if err == nil {
			err = refusal
		}
		c.answered(h.Re, answer{err: err})
	case h.Type == wire.TypeError:
		c.link.budget.Release(held)
		c.refused(frame)
	case h.Type == wire.TypeGoaway:
		c.link.budget.Release(held)
		c.asked(frame)
	default:
		c.arrived(arrival{h, frame, held})
	}
}

func (c *Conn) malformed(e *wire.Error) { c.link.fail(ReasonBadFrame, e) }

func (c *Conn) arrived(a arrival) {
	c.mu.Lock()
	c.inbox = append(c.inbox, a)
	if a.held == 0 {
		c.unpaid += len(a.frame)
	}
	flood := len(c.inbox) > mostInbox || c.unpaid > mostInboxBytes
	c.mu.Unlock()
	if flood {
		c.link.end(End{Reason: ReasonTooSlow, Text: closeText(ReasonTooSlow, "the client's handler does not keep up")})
	}
	c.signal()
}

func (c *Conn) signal() {
	select {
	case c.notify <- struct{}{}:
	default:
	}
}

// take answers the next arrival; ok false: there is none now. over: there never will be.
func (c *Conn) take() (a arrival, ok, over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.inbox) == 0 {
		c.inbox = nil
		return a, false, c.over
	}
	a = c.inbox[0]
	c.inbox[0] = arrival{}
	c.inbox = c.inbox[1:]
	if a.held == 0 {
		c.unpaid -= len(a.frame)
	}
	return a, true, false
}

// refused notes an error frame that belongs to the session; the close that follows says the rest.
func (c *Conn) refused(frame []byte) {
	_, refusal, err := wire.ParseErrorFrame(frame)
	if err != nil {
		return
	}
	c.mu.Lock()
	c.refusal = refusal
	c.mu.Unlock()
	c.client.log.Debug().Str("session", c.id).Str("error", string(refusal.Code)).Str("message", refusal.Message).Msg("the relay says")
}

type goaway = wire.Goaway

func (c *Conn) asked(frame []byte) {
	g, err := wire.Decode[wire.Goaway](frame)
	if err != nil {
		return
	}
	select {
	case <-c.goaway:
	default:
	}
	select {
	case c.goaway <- g:
	default:
	}
}

// gone runs on the writer's goroutine, when the connection is closed.
func (c *Conn) gone(e End) {
	if e.Reason == ReasonPeer {
		e.Reason, _ = receivedEnd(e.Code, e.Text)
	}
	c.mu.Lock()
	c.over, c.end = true, e
	pending := c.pending
	c.pending = nil
	c.mu.Unlock()
	for _, p := range pending {
		c.leave(p)
		p.tell(answer{err: ErrEnded})
	}
	close(c.closed)
	c.signal()
}
