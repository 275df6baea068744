package poll

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"pushrelay/session"
	"pushrelay/wire"
)

// Options set up the planes. Hub and Budget are required.
type Options struct {
	Hub    Hub
	Budget *session.Budget
	// Pairing answers POST /byollm/pair; nil: 501 bad-request.
	Pairing Pairing
	Limits  session.Limits // of which only TrustedProxies counts here

	// HoldClaim, HoldFetch and HoldPending are how long a request may wait for what it asks for; 0: it is answered at
	// once. Public clients give a request up after 30 s.
	HoldClaim, HoldFetch, HoldPending time.Duration
	// MaxHeld is how many requests wait at once, 128 of one caller's at most; those beyond are answered at once. 0: 50,000.
	MaxHeld int

	Log      zerolog.Logger
	Observer Observer // nil counts nothing
}

// Hub is what decides on requests; the hub of the same relay. Errors are *wire.Error.
type Hub interface {
	session.Directory
	// Now is the relay's time, by which requests are fresh.
	Now() time.Time

	PollHeartbeat(ctx context.Context, c session.Call, r *wire.HeartbeatRequest) (*wire.HeartbeatResponse, error)
	// PollClaim waits for up to hold while nothing can be claimed, and ends early with ctx, which is the client's.
	PollClaim(ctx context.Context, c session.Call, r *wire.ClaimRequest, hold time.Duration) (session.Answer, error)
	// PollFetch waits likewise while the payload isn't sealed.
	PollFetch(ctx context.Context, c session.Call, r *wire.FetchRequest, hold time.Duration) (session.Answer, error)
	// PollResult gets an envelope whose bytes the store may keep.
	PollResult(ctx context.Context, c session.Call, r *wire.ResultRequest) (session.Answer, error)
	PollRelease(ctx context.Context, c session.Call, r *wire.ReleaseRequest) (*wire.ReleaseResponse, error)

	PollEnqueue(ctx context.Context, c session.Call, r *wire.EnqueueRequest) (*wire.EnqueueResponse, error)
	// PollPayload gets an envelope whose bytes the store may keep.
	PollPayload(ctx context.Context, c session.Call, r *wire.PayloadRequest) (*wire.StateResponse, error)
	PollCancel(ctx context.Context, c session.Call, r *wire.CancelRequest) (*wire.CancelResponse, error)
	// PollPending waits for up to hold while there is nothing to seal and no new result.
	PollPending(ctx context.Context, c session.Call, hold time.Duration) (session.Answer, error)
	PollResults(ctx context.Context, c session.Call) (session.Answer, error)
}

// Pairing answers pairing requests, which nobody signs.
type Pairing interface {
	// Pair answers one request of that dialect with the JSON of a 200. body is valid up to its protocolVersion and
	// must not be kept; remote is the client's address as trusted proxies tell it. An error is a *wire.Error.
	Pair(ctx context.Context, d wire.Dialect, body []byte, remote string) ([]byte, error)
}

// Observer counts. Its words are of closed sets (Endpoints, Outcomes), fit for metric labels; it must not block.
type Observer interface {
	// Polled counts a request that is over.
	Polled(endpoint, outcome string, took time.Duration)
	// Waits counts up and down the requests that are held, or would be if there were nothing to answer.
	Waits(endpoint string, change int)
}

// Planes serves the polling planes; it is an http.Handler for every path that no session has.
type Planes struct {
	// Immutable.
	opts      Options
	endpoints map[string]*endpoint // by path
	bodies    *bodies
	refusals  *refusals

	draining atomic.Bool
	underWay underWay
}

// New makes the planes.
func New(opts Options) (*Planes, error) {
	if opts.Hub == nil || opts.Budget == nil {
		return nil, errors.New("poll: a hub and a budget are required")
	}
	if opts.MaxHeld <= 0 {
		opts.MaxHeld = 50_000
	}
	if opts.Observer == nil {
		opts.Observer = deaf{}
	}
	p := &Planes{
		opts: opts, endpoints: map[string]*endpoint{}, bodies: newBodies(opts.Budget), refusals: newRefusals(opts.Log),
	}
	for _, e := range table() {
		p.endpoints[e.path] = e
	}
	return p, nil
}

// Drain answers what would be new work with 503 from now on. What is under way goes on: heartbeats, payloads, results.
func (p *Planes) Drain() {
	p.draining.Store(true)
	p.underWay.drain()
}

// Answered waits, after Drain, until what was under way then is answered, or ctx ends: thousands of requests that are let go
// at once take a moment.
func (p *Planes) Answered(ctx context.Context) error { return p.underWay.await(ctx) }

// hold lets work wait for up to so long, unless too many wait, or too many of this caller's.
func (p *Planes) hold(q *request, most time.Duration, work func(hold time.Duration) (session.Answer, error)) (session.Answer, error) {
	if most <= 0 {
		return work(0)
	}
	p.opts.Observer.Waits(q.name(), 1)
	defer p.opts.Observer.Waits(q.name(), -1)
	if c := (heldCaller{q.e.role, q.Caller}); p.underWay.hold(c, p.opts.MaxHeld) {
		defer p.underWay.release(c)
	} else {
		most = 0
	}
	return work(most)
}

// endpoint is one path of the planes.
type endpoint struct {
	path, method string
	name         string // for metrics and the log
	signed       string // the name that is signed, of which a site's has its prefix; empty: nobody signs
	role         string
	work         func(ctx context.Context, p *Planes, r *request) (session.Answer, error)
	fresh        bool // takes on work, so that a drain refuses it
}

func table() []*endpoint {
	daemon := func(name string, fresh bool, work func(context.Context, *Planes, *request) (session.Answer, error)) *endpoint {
		return &endpoint{
			path: "/byollm/" + name, method: http.MethodPost, name: name, signed: name, role: wire.RoleDaemon, work: work, fresh: fresh,
		}
	}
	site := func(name, method string, fresh bool, work func(context.Context, *Planes, *request) (session.Answer, error)) *endpoint {
		return &endpoint{
			path: "/relay/site/" + name, method: method, name: name, signed: name, role: wire.RoleSite, work: work, fresh: fresh,
		}
	}
	unsigned := daemon("pair", true, pair)
	unsigned.signed = ""
	return []*endpoint{
		daemon("claim", true, claim),
		daemon("fetch", false, fetch),
		daemon("heartbeat", false, heartbeat),
		daemon("result", false, result),
		daemon("release", false, release),
		unsigned,
		site("enqueue", http.MethodPost, false, enqueue),
		site("payload", http.MethodPost, false, payload),
		site("cancel", http.MethodPost, false, cancel),
		site("pending", http.MethodGet, true, pending),
		site("results", http.MethodGet, false, results),
	}
}

// Endpoints answers the words of all endpoints, so that every series exists from the start. "unknown" is all other paths.
func Endpoints() []string {
	out := []string{unknownEndpoint}
	for _, e := range table() {
		out = append(out, e.name)
	}
	return out
}

const unknownEndpoint = "unknown"

type deaf struct{}

func (deaf) Polled(string, string, time.Duration) {}
func (deaf) Waits(string, int)                    {}
