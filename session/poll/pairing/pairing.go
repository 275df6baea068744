// Package pairing answers POST /byollm/pair (design, section 8): how a device and a relay come to know each other. Nobody
// signs these requests, and nothing here approves anything:
//
//	device                 relay                      human and control plane
//	  | start {device}       |                              |
//	  |--------------------->| a code, for 10 minutes       |
//	  | userCode, URL        |                              |
//	  |<---------------------|                              |
//	  |     (a person reads the code and types it at the URL)
//	  |                      | GET /pairings/CODE (admin)   |
//	  |                      |<-----------------------------|
//	  |                      | whose key it is              |
//	  |                      |----------------------------->|
//	  |                      |   a projection with the key  |
//	  | poll {deviceCode}    |<-----------------------------|
//	  |--------------------->|                              |
//	  | approved             |                              |
//	  |<---------------------|                              |
//
// A poll is answered from the projection that is in force: approved is what stands there. The direct form names owner and
// device, for devices that were approved before, and needs no code.
//
// Codes live in this process. They are good once, for 10 minutes, one for each key and 500 at once, of which the address with
// the most gives way to others; an unknown, a used and an expired one look alike, and cost the same work.
package pairing

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"pushrelay/wire"
)

const (
	codeFor   = 10 * time.Minute
	maxCodes  = 500
	pollEvery = 2 * time.Second
)

// Directory is who was approved: the projection in force.
type Directory interface {
	// Paired answers what a device that was approved is told; false when the projection doesn't have exactly this
	// identity under that key id, or has it as revoked.
	Paired(keyID string, id wire.PublicIdentity) (wire.PairPollResponse, bool)
	// Now is the relay's time.
	Now() time.Time
}

// Options set up pairing. Directory is required.
type Options struct {
	Directory Directory
	// VerificationURL is where a person approves a device by its code; empty: there is no pairing by code.
	VerificationURL string
	// ControlPlanePublic is the key that signs grants, raw Ed25519 in base64url; empty: there is none.
	ControlPlanePublic string
	Log                zerolog.Logger
}

// Pairing answers pairing requests. Make one with New.
type Pairing struct {
	// Immutable.
	opts   Options
	limits *limits

	mu       sync.Mutex
	byDevice map[[sha256.Size]byte]*code // by the hash of the device's code
	byUser   map[string]*code
	byKey    map[string]*code // by key id
	order    []*code          // as they expire; replaced and used ones among them
}

// code is one pairing under way. Immutable but for gone, which Pairing.mu guards.
type code struct {
	hash    [sha256.Size]byte
	pending Pending
	dialect wire.Dialect
	remote  string // that limits count by
	gone    bool
}

// Pending is what a user code stands for. All but KeyID and Key is what the device says of itself: untrusted text.
type Pending struct {
	UserCode     string
	KeyID        string
	Key          wire.PublicIdentity
	Label        string
	Platform     string
	Version      string
	Dialect      wire.Dialect
	Capabilities []wire.Capability
	ExpiresAt    time.Time
}

// New makes a Pairing without codes.
func New(opts Options) *Pairing {
	return &Pairing{
		opts: opts, limits: newLimits(), byDevice: map[[sha256.Size]byte]*code{}, byUser: map[string]*code{}, byKey: map[string]*code{},
	}
}

// Pair answers one request with the JSON of a 200; remote is what limits count by. Errors are *wire.Error. It doesn't block.
func (p *Pairing) Pair(_ context.Context, d wire.Dialect, body []byte, remote string) ([]byte, error) {
	if wait := p.limits.request(remote, time.Now()); wait > 0 {
		return nil, tooMany(wait)
	}
	r, err := wire.ParsePairRequest(d, body)
	if err != nil {
		return nil, err
	}
	if r.Direct != nil {
		return p.direct(d, r.Direct)
	}
	if p.opts.VerificationURL == "" {
		return nil, &wire.Error{
			Code: wire.CodeBadRequest, Status: http.StatusNotImplemented,
			Message: "this relay pairs no devices by code; whoever runs it approves them elsewhere",
		}
	}
	if r.Start != nil {
		return p.start(d, r.Start, remote)
	}
	return p.poll(d, r.Poll)
}

func tooMany(wait time.Duration) error {
	return wire.RateLimited(int((wait+time.Second-1)/time.Second), "too many pairing requests; ask again later")
}

// start makes a code. An older one of the same key isn't good any more.
func (p *Pairing) start(d wire.Dialect, r *wire.PairStartRequest, remote string) ([]byte, error) {
	if wait := p.limits.start(remote, time.Now()); wait > 0 {
		return nil, tooMany(wait)
	}
	keyID, err := verified(r.Device)
	if err != nil {
		return nil, err
	}
	now := p.opts.Directory.Now()
	deviceCode := rand.Text() + rand.Text() // 260 bits
	c := &code{hash: sha256.Sum256([]byte(deviceCode)), dialect: d, remote: remote, pending: Pending{
		KeyID: keyID, Key: r.Device, Label: r.Label, Platform: r.Platform, Version: r.Version, Dialect: d,
		Capabilities: r.Capabilities, ExpiresAt: now.Add(codeFor),
	}}
	if !p.add(c, now) {
		return nil, wire.RateLimited(60, "too many devices are being paired just now; try again in a minute")
	}
	p.opts.Log.Info().Str("event", "pairing-started").Str("key", keyID).Str("label", r.Label).Msg("a device asks to be paired")
	return wire.Encode(wire.PairStartResponse{
		DeviceCode: deviceCode, UserCode: c.pending.UserCode, VerificationURL: p.opts.VerificationURL,
		ExpiresAt: c.pending.ExpiresAt.UnixMilli(), PollIntervalMs: pollEvery.Milliseconds(),
	})
}

func verified(id wire.PublicIdentity) (keyID string, err error) {
	if id.Verify() != nil {
		return "", wire.BadRequest("pair.device doesn't verify: its encryption key must be signed by its identity")
	}
	return id.KeyID()
}

func (p *Pairing) add(c *code, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expire(now)
	if old := p.byKey[c.pending.KeyID]; old != nil {
		p.drop(old)
	}
	if len(p.byDevice) >= maxCodes && !p.displace(c.remote) {
		return false
	}
	for c.pending.UserCode == "" || p.byUser[c.pending.UserCode] != nil {
		c.pending.UserCode = newUserCode()
	}
	p.byDevice[c.hash], p.byUser[c.pending.UserCode], p.byKey[c.pending.KeyID] = c, c, c
	p.order = append(p.order, c)
	return true
}

// displace drops the oldest code of the address that has the most, when that is more than the given one will have; mu is
// held. So few addresses can't keep everybody else from pairing.
func (p *Pairing) displace(remote string) bool {
	has := make(map[string]int, len(p.byDevice))
	for _, c := range p.byDevice {
		has[c.remote]++
	}
	most := remote
	for addr, n := range has {
		if n > has[most] {
			most = addr
		}
	}
	if has[most] <= has[remote]+1 {
		return false
	}
	i := slices.IndexFunc(p.order, func(c *code) bool { return !c.gone && c.remote == most })
	p.drop(p.order[i]) // each code that isn't gone is in order
	return true
}

// expire drops what is over; mu is held.
func (p *Pairing) expire(now time.Time) {
	n := 0
	for _, c := range p.order {
		if !c.gone && now.Before(c.pending.ExpiresAt) {
			break
		}
		p.drop(c)
		n++
	}
	clear(p.order[:n])
	p.order = p.order[n:]
	if len(p.order) > 2*maxCodes { // one that is good stands before many that were replaced
		kept := make([]*code, 0, maxCodes)
		for _, c := range p.order {
			if !c.gone {
				kept = append(kept, c)
			}
		}
		p.order = kept
	}
}

func (p *Pairing) drop(c *code) {
	if c.gone {
		return
	}
	c.gone = true
	delete(p.byDevice, c.hash)
	delete(p.byUser, c.pending.UserCode)
	delete(p.byKey, c.pending.KeyID)
}

// Statuses of an answer.
const (
	statusPending  = "pending"
	statusExpired  = "expired" // or never was, or was used
	statusApproved = "approved"
)

// poll looks a device up by its code. What the look-up costs doesn't depend on whether there is such a code.
func (p *Pairing) poll(d wire.Dialect, r *wire.PairPollRequest) ([]byte, error) {
	hash := sha256.Sum256([]byte(r.DeviceCode))
	now := p.opts.Directory.Now()
	answer := wire.PairPollResponse{Status: statusExpired}
	var who Pending
	p.mu.Lock()
	p.expire(now)
	c := p.byDevice[hash]
	if c != nil && c.dialect == d {
		who = c.pending
		answer.Status = statusPending
	}
	approved, ok := p.opts.Directory.Paired(who.KeyID, who.Key)
	if ok && answer.Status == statusPending {
		p.drop(c)
		answer = approved
	}
	p.mu.Unlock()
	if ok {
		p.opts.Log.Info().Str("event", "paired").Str("key", who.KeyID).Str("runner", answer.RunnerID).Msg("a device was paired")
	}
	return p.encode(d, answer)
}

// direct answers a device that was approved before. Whether it, its key or its owner is what isn't known isn't told.
func (p *Pairing) direct(d wire.Dialect, r *wire.PairDirectRequest) ([]byte, error) {
	keyID, err := verified(r.Device)
	if err != nil {
		return nil, err
	}
	answer, ok := p.opts.Directory.Paired(keyID, r.Device)
	if !ok || answer.Owner != r.Owner {
		return nil, wire.Errorf(wire.CodeNotFound, "this owner has no such device here; approve it first")
	}
	return p.encode(d, answer)
}

func (p *Pairing) encode(d wire.Dialect, answer wire.PairPollResponse) ([]byte, error) {
	if answer.RunnerID != "" {
		answer.Status = statusApproved
		if d.SignedGrants() {
			answer.ControlPlanePublic = p.opts.ControlPlanePublic
		}
	}
	return wire.Encode(answer)
}

// Lookup answers what a user code stands for, however it is written; false for an unknown, a used and an expired one. It
// approves nothing.
func (p *Pairing) Lookup(userCode string) (Pending, bool) {
	written := normalUserCode(userCode)
	now := p.opts.Directory.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expire(now)
	c := p.byUser[written]
	if c == nil {
		return Pending{}, false
	}
	return c.pending, true
}
