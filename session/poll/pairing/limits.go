package pairing

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Limits of unsigned requests: of one address, and of all.
const (
	addrRequests = 10 // a second; a device polls every 2 s
	addrBurst    = 60
	addrStarts   = 1.0 / 20
	startBurst   = 20
	allRequests  = 500
	allStarts    = 20 // a second; each is a line in the log
	allBurst     = 100
	maxAddrs     = 4096 // remembered at once
)

// limits counts requests by address. Addresses beyond maxAddrs share what is left for all.
type limits struct {
	all *addrLimits

	mu     sync.Mutex
	by     map[string]*addrLimits
	rest   *addrLimits
	looked time.Time // for idle ones
}

// addrLimits are one address's, or all addresses'.
type addrLimits struct{ requests, starts *rate.Limiter }

func newAddrLimits() *addrLimits {
	return &addrLimits{rate.NewLimiter(addrRequests, addrBurst), rate.NewLimiter(addrStarts, startBurst)}
}

// idle reports whether forgetting it changes nothing.
func (a *addrLimits) idle(now time.Time) bool {
	return a.requests.TokensAt(now) >= addrBurst && a.starts.TokensAt(now) >= startBurst
}

func newLimits() *limits {
	return &limits{all: &addrLimits{rate.NewLimiter(allRequests, allRequests), rate.NewLimiter(allStarts, allBurst)}, by: map[string]*addrLimits{}, rest: newAddrLimits()}
}

// request answers how long to wait before a request of the address; 0 when it may go on.
func (l *limits) request(addr string, now time.Time) time.Duration {
	if wait := take(l.of(addr, now).requests, now); wait > 0 {
		return wait
	}
	return take(l.all.requests, now)
}

// start answers how long to wait before the address may begin another pairing.
func (l *limits) start(addr string, now time.Time) time.Duration {
	if wait := take(l.of(addr, now).starts, now); wait > 0 {
		return wait
	}
	return take(l.all.starts, now)
}

func take(r *rate.Limiter, now time.Time) time.Duration {
	res := r.ReserveN(now, 1)
	wait := res.DelayFrom(now)
	if wait > 0 {
		res.CancelAt(now)
	}
	return wait
}

func (l *limits) of(addr string, now time.Time) *addrLimits {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.by[addr]; a != nil {
		return a
	}
	if len(l.by) >= maxAddrs && now.Sub(l.looked) >= time.Second {
		l.looked = now
		for key, a := range l.by {
			if a.idle(now) {
				delete(l.by, key)
			}
		}
	}
	if len(l.by) >= maxAddrs {
		return l.rest
	}
	a := newAddrLimits()
	l.by[addr] = a
	return a
}
