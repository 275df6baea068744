package site

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"pushrelay/session"
	"pushrelay/session/internal/ask"
	"pushrelay/wire"
)

// conn is what a site needs of a session; *session.Conn has it.
type conn interface {
	Request(ctx context.Context, build func(dst []byte, id string) []byte) ([]byte, error)
	RequestBulk(ctx context.Context, build func(id string) [][]byte) ([]byte, error)
	SessionID() string
}

// link is one session, from its welcome to its end.
type link struct {
	conn    conn
	ctx     context.Context // ends with the session, or when a newer one took its place
	cancel  context.CancelFunc
	enqueue chan struct{} // there may be jobs to enqueue
	collect chan struct{} // there may be grants to collect
	seals   chan struct{} // a place for each that may be under way
	// Guarded by Site.mu.
	sealing map[wire.Grant]struct{} // seal requests being worked on
}

// Site keeps one session with the relay up, publishes jobs and hands results on. Make one with New, and call Run once.
type Site struct {
	// Immutable.
	cfg     Config
	log     zerolog.Logger
	client  *session.Client
	calls   context.Context // of all callbacks
	endCall context.CancelFunc
	started atomic.Bool
	places  chan struct{} // for callbacks
	over    chan struct{} // closed when Run is over
	work    sync.WaitGroup

	strangers atomic.Bool // it was said that jobs of others were declined

	// Guarded by mu.
	mu       sync.Mutex
	link     *link // nil while there is no session
	epoch    string
	seq      uint64
	jobs     map[string]*entry
	unsent   []*entry // in order; may hold entries that are over
	busy     map[wire.Grant]struct{}
	queued   int // bytes of results that wait for their callback
	handled  ring[any]
	toTell   []wire.Grant // handled, not collected yet
	telling  int          // of them under way
	changed  chan struct{}
	stopping bool
}

// New checks the configuration.
func New(cfg Config) (*Site, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	s := &Site{
		cfg: cfg, log: cfg.Log, jobs: map[string]*entry{}, busy: map[wire.Grant]struct{}{},
		handled: newRing[any](maxRemembered), changed: make(chan struct{}), over: make(chan struct{}), places: make(chan struct{}, cfg.Handlers),
	}
	s.calls, s.endCall = context.WithCancel(context.Background())
	client, err := session.NewClient(session.ClientConfig{
		URL: cfg.URL, Caller: cfg.SiteID, Role: wire.RoleSite, Sign: cfg.Keys.SignRequest, Body: s.hello,
		Handler: handler{s}, Log: cfg.Log, Transport: cfg.Transport, CAFile: cfg.CAFile, Budget: cfg.Budget,
	})
	if err != nil {
		return nil, err
	}
	s.client = client
	return s, nil
}

func (s *Site) hello(b *wire.HelloBody) {
	b.ProtocolVersion = string(s.cfg.Dialect)
	b.Client = s.cfg.clientInfo()
}

// Run keeps a session up until ctx ends (nil) or the relay ended it for good. Callbacks are over when it returns; what
// they handled is collected, when the relay answers within a second.
func (s *Site) Run(ctx context.Context) error {
	if !s.started.CompareAndSwap(false, true) {
		return errors.New("site: Run was called twice; make a new Site")
	}
	inner, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	flushed := make(chan struct{})
	quit := context.AfterFunc(ctx, func() {
		defer close(flushed)
		s.flush()
		end()
	})
	s.work.Go(func() { s.sweep(inner) })
	err := s.client.Run(inner)
	stopped := !quit()
	if stopped {
		<-flushed
	}
	s.mu.Lock()
	s.stopping = true
	s.touch()
	s.mu.Unlock()
	end()
	s.endCall()
	s.work.Wait()
	close(s.over)
	if stopped {
		return nil
	}
	return err
}

// flush waits for running callbacks and for the relay to know what they handled, at most for a second.
func (s *Site) flush() {
	ctx, cancel := context.WithTimeout(context.Background(), politeStop)
	defer cancel()
	s.mu.Lock()
	s.stopping = true
	s.touch()
	s.mu.Unlock()
	for {
		s.mu.Lock()
		idle := s.link == nil || len(s.busy) == 0 && len(s.toTell) == 0 && s.telling == 0
		changed := s.changed
		s.mu.Unlock()
		if idle {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// sweep forgets, once a minute, what is long over: first payloads, then jobs.
func (s *Site) sweep(ctx context.Context) {
	ticker := time.NewTicker(time.Minute)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			s.expire(now)
		}
	}
}

func (s *Site) expire(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, e := range s.jobs {
		deadline := time.UnixMilli(e.deadlineAt)
		if now.After(deadline.Add(forgetPayload)) && e.payload != nil {
			e.payload, e.sealed = []byte{}, nil
		}
		if now.After(deadline.Add(forgetJob)) {
			delete(s.jobs, id)
		}
	}
}

// handler is a Site as the client's handler, so that its methods aren't part of the package's face.
type handler struct{ s *Site }

// Welcome begins a session.
func (h handler) Welcome(ctx context.Context, c *session.Conn, w wire.Welcome) {
	h.s.welcome(ctx, c, w)
}

// Push acts on one frame of the relay.
func (h handler) Push(_ context.Context, c *session.Conn, head wire.Head, frame []byte) {
	h.s.push(c, head, frame)
}

// Ended ends a session.
func (h handler) Ended(c *session.Conn, end session.End) { h.s.ended(c, end) }

func (s *Site) welcome(ctx context.Context, c conn, w wire.Welcome) {
	l := &link{
		conn: c, enqueue: make(chan struct{}, 1), collect: make(chan struct{}, 1),
		seals: make(chan struct{}, parallelSeals), sealing: map[wire.Grant]struct{}{},
	}
	l.ctx, l.cancel = context.WithCancel(ctx)
	s.mu.Lock()
	old := s.link
	s.link = l
	forgot := s.epoch != "" && s.epoch != w.Epoch
	s.epoch = w.Epoch
	dropped := s.again(forgot)
	s.touch()
	s.mu.Unlock()
	if old != nil {
		old.cancel()
	}
	s.log.Info().Str("session", ask.Printable(c.SessionID())).Int64("skewMs", w.SkewMs).Bool("relayForgot", forgot).Msg("connected")
	s.event(EventConnected, "", "", c.SessionID())
	for _, id := range dropped {
		s.noticed(Notice{JobID: id, Why: WhyCancelled})
	}
	s.work.Go(func() { s.enqueuer(l) })
	s.work.Go(func() { s.collector(l) })
	poke(l.enqueue)
	poke(l.collect)
}

// again lists what must be enqueued on a new session, in order: what was never answered and, when the relay lost its
// memory, everything that isn't over. Jobs that were cancelled are over then; they are answered. mu is held.
func (s *Site) again(forgot bool) (dropped []string) {
	s.unsent = s.unsent[:0]
	for id, e := range s.jobs {
		if forgot && e.withdrawn {
			delete(s.jobs, id)
			e.settle(Submitted{JobID: id, Err: ErrWithdrawn})
			dropped = append(dropped, id)
			continue
		}
		if forgot {
			e.known = false
		}
		e.sender = nil
		if !e.known {
			s.unsent = append(s.unsent, e)
		}
	}
	slices.SortFunc(s.unsent, func(a, b *entry) int { return compare(a.seq, b.seq) })
	return dropped
}

func (s *Site) ended(c conn, end session.End) {
	s.mu.Lock()
	l := s.link
	if l == nil || l.conn != c {
		s.mu.Unlock()
		return // replaced already
	}
	s.link = nil
	s.touch()
	s.mu.Unlock()
	l.cancel()
	s.log.Info().Str("session", ask.Printable(c.SessionID())).Str("reason", string(end.Reason)).Msg("disconnected")
	s.event(EventDisconnected, "", "", string(end.Reason))
}

// push acts on one frame. A relay may send anything: what can't be read is logged and dropped.
func (s *Site) push(c conn, head wire.Head, frame []byte) {
	s.mu.Lock()
	l := s.link
	s.mu.Unlock()
	if l == nil || l.conn != c {
		return // of a session that was replaced
	}
	var err error
	switch head.Type {
	case wire.TypeSealRequest:
		err = s.sealRequest(l, frame)
	case wire.TypeResults:
		err = s.results(frame)
	case wire.TypeNotices:
		err = s.notices(frame)
	case wire.TypeRequeued:
		err = s.requeued(frame)
	default:
		err = errors.New("site: a push of a type that this version doesn't know")
	}
	if err != nil {
		s.log.Warn().Str("error", ask.Saying(err)).Str("type", ask.Printable(string(head.Type))).Msg("a frame of the relay was dropped")
	}
}

// touch wakes who waits for a change. mu is held.
func (s *Site) touch() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// linked waits for a session, other than one that is known to be over.
func (s *Site) linked(ctx context.Context, over *link) (*link, error) {
	for {
		s.mu.Lock()
		l, changed, stopping := s.link, s.changed, s.stopping
		s.mu.Unlock()
		if stopping {
			return nil, ErrStopped
		}
		if l != nil && l != over && l.ctx.Err() == nil {
			return l, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// poke wakes a goroutine that looks again by itself.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
