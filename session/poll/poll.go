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
	Pairing  Pairing
	Limits   session.Limits // of which only TrustedProxies counts here
	Log      zerolog.Logger
	Observer Observer // nil counts nothing
}

// Hub is what decides on requests; the hub of the same relay. Errors are *wire.Error.
type Hub interface {
	session.Directory
	// Now is the relay's time, by which requests are fresh.
	Now() time.Time

	PollHeartbeat(ctx context.Context, c session.Call, r *wire.HeartbeatRequest) (*wire.HeartbeatResponse, error)
	PollRelease(ctx context.Context, c session.Call, r *wire.ReleaseRequest) (*wire.ReleaseResponse, error)
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
}

// Planes serves the polling planes; it is an http.Handler for every path that no session has.
type Planes struct {
	// Immutable.
	opts      Options
	endpoints map[string]*endpoint // by path
	bodies    *bodies
	refusals  *refusals

	draining atomic.Bool
}

// New makes the planes.
func New(opts Options) (*Planes, error) {
	if opts.Hub == nil || opts.Budget == nil {
		return nil, errors.New("poll: a hub and a budget are required")
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
func (p *Planes) Drain() { p.draining.Store(true) }

// endpoint is one path of the planes.
type endpoint struct {
	path, method string
	name         string // for metrics and the log
	signed       string // the name that is signed, of which a site's has its prefix; empty: nobody signs
	role         string
	work         func(ctx context.Context, p *Planes, r *request) (reply, error)
	fresh        bool // takes on work, so that a drain refuses it
}

func table() []*endpoint {
	daemon := func(name string, fresh bool, work func(context.Context, *Planes, *request) (reply, error)) *endpoint {
		return &endpoint{
			path: "/byollm/" + name, method: http.MethodPost, name: name, signed: name, role: wire.RoleDaemon, work: work, fresh: fresh,
		}
	}
	unsigned := daemon("pair", true, pair)
	unsigned.signed = ""
	return []*endpoint{
		daemon("heartbeat", false, heartbeat),
		daemon("release", false, release),
		unsigned,
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
