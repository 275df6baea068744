package session

import (
	"context"
	"crypto/rand"
	"errors"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// ServerConfig sets up a Server. Opener, Directory and PublicURLs are required; zero values mean the defaults.
type ServerConfig struct {
	Opener     Opener
	Directory  Directory
	PublicURLs []string // what clients dial; a hello must name one of them
	Origins    []string // allowed Origin headers, scheme://host[:port]; a request without one is always allowed
	Version    string   // of the relay, told in welcome
	Log        zerolog.Logger
	Observer   Observer // nil counts nothing
	Budget     *Budget  // nil means one of 256 MiB
	Limits     Limits

	PingMin, PingMax time.Duration    // 20 to 25 s
	IdleAfter        time.Duration    // 60 s
	HandshakeFor     time.Duration    // 10 s
	Now              func() time.Time // wall clock of serverTime; nil means time.Now
}

// Observer counts. All its arguments but the numbers are words of closed sets, fit for metric labels. Its methods are
// called from many goroutines and must not block.
type Observer interface {
	// Opened counts a session that was welcome.
	Opened(role string)
	// Ended counts the end of any connection that was upgraded.
	Ended(role string, reason Reason, s Summary)
	// Refused counts what never became a session, or a frame that was refused: one of the Refused constants.
	Refused(what string)
}

// Summary is what the one log line of an end says, for metrics.
type Summary struct {
	Admitted          bool // it had been welcome
	Duration          time.Duration
	BytesIn, BytesOut int64
	Queued            int64 // bytes that were queued when the end came
}

// Server accepts and keeps the relay's sessions.
type Server struct {
	// Immutable.
	cfg       ServerConfig
	origins   []string
	observer  Observer
	log       zerolog.Logger
	engine    *engine
	admission *admission
	stopTick  context.CancelFunc
	ticking   sync.WaitGroup

	mu       sync.Mutex
	empty    sync.Cond // of mu
	sessions map[*Session]struct{}
	closing  bool
}

const (
	mostWorkers   = 1024 // at once, over all sessions
	parkedWorkers = 64
	tickEvery     = 500 * time.Millisecond
)

// NewServer checks cfg and starts what all sessions share; Close stops it.
func NewServer(cfg ServerConfig) (*Server, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	srv := &Server{cfg: cfg, observer: cfg.Observer, log: cfg.Log, sessions: map[*Session]struct{}{}}
	srv.empty.L = &srv.mu
	for _, o := range cfg.Origins {
		n := normalOrigin(o)
		if n == "" {
			return nil, errors.New("session: an allowed origin must be scheme://host: " + o)
		}
		srv.origins = append(srv.origins, n)
	}
	srv.engine = newEngine(cfg.Budget, newPool(mostWorkers, parkedWorkers))
	srv.engine.idleAfter, srv.engine.pingMin, srv.engine.pingMax = cfg.IdleAfter, cfg.PingMin, cfg.PingMax
	srv.engine.random = mathrand.Float64
	srv.admission = newAdmission(cfg.Limits, mathrand.Float64)
	ctx, cancel := context.WithCancel(context.Background())
	srv.stopTick = cancel
	srv.ticking.Go(func() { srv.tick(ctx) })
	return srv, nil
}

func (cfg *ServerConfig) complete() error {
	if cfg.Opener == nil || cfg.Directory == nil || len(cfg.PublicURLs) == 0 {
		return errors.New("session: a server needs an opener, a directory and its public URLs")
	}
	orDefault(&cfg.PingMin, 20*time.Second)
	orDefault(&cfg.PingMax, max(cfg.PingMin, 25*time.Second))
	orDefault(&cfg.IdleAfter, 60*time.Second)
	orDefault(&cfg.HandshakeFor, 10*time.Second)
	if cfg.PingMin > cfg.PingMax || 2*cfg.PingMax > cfg.IdleAfter {
		return errors.New("session: two pings must fit into the idle time")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Observer == nil {
		cfg.Observer = nobody{}
	}
	if cfg.Budget == nil {
		cfg.Budget = NewBudget(DefaultBudget)
	}
	cfg.Limits = cfg.Limits.withDefaults()
	return nil
}

func orDefault(d *time.Duration, otherwise time.Duration) {
	if *d <= 0 {
		*d = otherwise
	}
}

func (srv *Server) nowMs() int64 { return srv.cfg.Now().UnixMilli() }

func newSession(srv *Server, role string) *Session {
	s := &Session{srv: srv, id: rand.Text(), role: role, nonce: newNonce(), deadline: srv.cfg.HandshakeFor}
	s.quiet.L = &s.mu
	return s
}

// begin registers a session and lets it live.
func (srv *Server) begin(s *Session) {
	srv.mu.Lock()
	closing := srv.closing
	srv.sessions[s] = struct{}{}
	srv.mu.Unlock()
	s.link.start()
	s.greet()
	if closing {
		s.End(ReasonGoingAway, "")
	}
}

// over is the last thing that happens to a session; its connection is closed and no handler runs.
func (srv *Server) over(s *Session, e End) {
	if s.peer != nil {
		s.peer.Closed(e)
	}
	srv.admission.leave(&s.taken)
	l := s.link
	sum := Summary{
		Admitted: s.admitted.Load(), Duration: l.age(), BytesIn: l.sock.in.Load(), BytesOut: l.sock.out.Load(), Queued: l.queuedAt,
	}
	srv.logEnd(s, e, sum)
	srv.observer.Ended(s.role, e.Reason, sum)
	srv.mu.Lock()
	delete(srv.sessions, s)
	if len(srv.sessions) == 0 {
		srv.empty.Broadcast()
	}
	srv.mu.Unlock()
}

// logEnd writes the one line of an end. Text that a peer sent is cut, and escaped by the logger.
func (srv *Server) logEnd(s *Session, e End, sum Summary) {
	srv.log.Info().Str("session", s.id).Str("role", s.role).Str("caller", s.claimed).Str("remote", s.remote).
		Int("code", int(e.Code)).Str("reason", string(e.Reason)).Str("text", e.Text).Bool("admitted", sum.Admitted).
		Dur("duration_ms", sum.Duration).Int64("bytes_in", sum.BytesIn).Int64("bytes_out", sum.BytesOut).
		Int64("queue_bytes", sum.Queued).Msg("session ended")
}

// tick drives the times of all sessions: one timer for the process, none for each.
func (srv *Server) tick(ctx context.Context) {
	t := time.NewTicker(tickEvery)
	defer t.Stop()
	var all []*Session
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		all = srv.snapshot(all[:0])
		for i, s := range all {
			s.tick()
			all[i] = nil
		}
	}
}

func (srv *Server) snapshot(into []*Session) []*Session {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	for s := range srv.sessions {
		into = append(into, s)
	}
	return into
}

// Sessions is a snapshot of the admitted sessions, in no order.
func (srv *Server) Sessions() []*Session {
	all := srv.snapshot(nil)
	n := 0
	for _, s := range all {
		if s.admitted.Load() {
			all[n] = s
			n++
		}
	}
	return all[:n]
}

// nobody observes nothing.
type nobody struct{}

func (nobody) Opened(string)                 {}
func (nobody) Ended(string, Reason, Summary) {}
func (nobody) Refused(string)                {}
