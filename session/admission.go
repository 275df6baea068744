package session

import (
	"math"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Limits bound what strangers and peers can take. Zero values mean the defaults.
type Limits struct {
	MaxSessions               int            // 50,000
	MaxUnauthenticated        int            // 1,000
	MaxUnauthenticatedPerAddr int            // 64; an IPv6 address counts by its /64
	AcceptPerSecond           float64        // 500
	TrustedProxies            []netip.Prefix // whose X-Forwarded-For is believed
}

func (l Limits) withDefaults() Limits {
	if l.MaxSessions <= 0 {
		l.MaxSessions = 50_000
	}
	if l.MaxUnauthenticated <= 0 {
		l.MaxUnauthenticated = 1_000
	}
	if l.MaxUnauthenticatedPerAddr <= 0 {
		l.MaxUnauthenticatedPerAddr = 64
	}
	if l.AcceptPerSecond <= 0 {
		l.AcceptPerSecond = 500
	}
	return l
}

// admission decides, before any expensive work, whether there is room for one more connection.
type admission struct {
	limits Limits
	accept *rate.Limiter
	random func() float64

	mu        sync.Mutex
	refusing  bool
	sessions  int
	strangers int            // not authenticated yet
	byAddr    map[string]int // strangers
	turned    float64        // turned away of late, halved each second: how many may come back together
	turnedAt  time.Time
}

func newAdmission(l Limits, random func() float64) *admission {
	burst := int(math.Ceil(l.AcceptPerSecond))
	return &admission{
		limits: l, accept: rate.NewLimiter(rate.Limit(l.AcceptPerSecond), burst), random: random, byAddr: map[string]int{},
	}
}

// enter takes a place for one connection; what is empty when there was one.
func (a *admission) enter(addr string) (what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.refusing:
		return RefusedDraining
	case a.sessions >= a.limits.MaxSessions:
		return RefusedSessions
	case a.strangers >= a.limits.MaxUnauthenticated:
		return RefusedStrangers
	case a.byAddr[addr] >= a.limits.MaxUnauthenticatedPerAddr:
		return RefusedAddr
	case !a.accept.Allow():
		return RefusedRate
	}
	a.sessions++
	a.strangers++
	a.byAddr[addr]++
	return ""
}

// known frees a stranger's place: it has authenticated, or is gone.
func (a *admission) known(s *Session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.knownLocked(&s.taken)
}

func (a *admission) knownLocked(addr *string) {
	if *addr == "" {
		return
	}
	a.strangers--
	if a.byAddr[*addr]--; a.byAddr[*addr] <= 0 {
		delete(a.byAddr, *addr)
	}
	*addr = ""
}

// leave frees a connection's place; addr is emptied.
func (a *admission) leave(addr *string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.knownLocked(addr)
	a.sessions--
}

func (a *admission) refuse() {
	a.mu.Lock()
	a.refusing = true
	a.mu.Unlock()
}

const (
	leastRetry = 1.0 // seconds
	mostRetry  = 30.0
)

// retryAfter names a time to come back, in seconds: the more were turned away of late, the wider they are spread, so
// that they come back no faster than they are accepted.
func (a *admission) retryAfter(now time.Time) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.turned = a.turned*math.Pow(0.5, now.Sub(a.turnedAt).Seconds()) + 1
	a.turnedAt = now
	window := min(mostRetry, leastRetry+2*a.turned/a.limits.AcceptPerSecond)
	return int(math.Ceil(leastRetry + a.random()*(window-leastRetry)))
}

// clientAddr is the address that counts for a request: the peer's, or behind trusted proxies the right-most hop of
// X-Forwarded-For that isn't trusted. What a client wrote itself stands further left and is never looked at.
func (l *Limits) clientAddr(r *http.Request) netip.Addr {
	addr := parseAddr(r.RemoteAddr)
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(hops) - 1; i >= 0 && l.trusted(addr); i-- {
		hop := parseAddr(strings.TrimSpace(hops[i]))
		if !hop.IsValid() {
			break // nothing left of it can be believed
		}
		addr = hop
	}
	return addr
}

// ClientKey is what caps count a request's client by: the address that clientAddr finds, an IPv6 one by its /64.
func (l *Limits) ClientKey(r *http.Request) string { return addrKey(l.clientAddr(r)) }

func (l *Limits) trusted(addr netip.Addr) bool {
	for _, p := range l.TrustedProxies {
		if addr.IsValid() && p.Contains(addr) {
			return true
		}
	}
	return false
}

// parseAddr reads an address with or without port; IPv4 in IPv6 counts as IPv4.
func parseAddr(s string) netip.Addr {
	if host, _, err := net.SplitHostPort(s); err == nil {
		s = host
	}
	addr, err := netip.ParseAddr(strings.Trim(s, "[]"))
	if err != nil {
		return netip.Addr{}
	}
	return addr.Unmap().WithZone("")
}

// addrKey is what caps count by: an IPv6 address by its /64, which is what one subscriber has.
func addrKey(addr netip.Addr) string {
	if addr.Is6() {
		if p, err := addr.Prefix(64); err == nil {
			return p.String()
		}
	}
	if !addr.IsValid() {
		return "unknown"
	}
	return addr.String()
}
