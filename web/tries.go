package web

import (
	"container/list"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// triesAtOnce wrong tokens may come from one address, then one each triesEvery.
	triesAtOnce = 5
	triesEvery  = 12 * time.Second
	// othersAtOnce and othersEvery bound the wrong tokens of all addresses but this machine's own.
	othersAtOnce = 30
	othersEvery  = 2 * time.Second
	// guessers are remembered; of more, the one that tried longest ago is forgotten.
	guessers = 1024
)

// tries bounds how often tokens are guessed. A right token counts as little as a wrong one while there are too many:
// otherwise guessing would go on. So that nobody locks an operator out by guessing, a browser that logged in before has a
// bound of its own, and so has this machine.
type tries struct {
	now func() time.Time

	mu     sync.Mutex
	byWho  map[who]*list.Element
	recent list.List // of *guesser, the latest first
	others *rate.Limiter
}

// who is whose tries are counted together: a browser that logged in before, by its number, or else an address.
type who struct {
	browser string
	addr    netip.Prefix
}

type guesser struct {
	who
	limit *rate.Limiter
}

func newTries(now func() time.Time) *tries {
	return &tries{now: now, byWho: map[who]*list.Element{}, others: rate.NewLimiter(rate.Every(othersEvery), othersAtOnce)}
}

// network is what shares a bound: an address, or an IPv6 network of one household.
func network(remote string) netip.Prefix {
	ap, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{}
	}
	addr := ap.Addr().Unmap().WithZone("")
	bits := 32
	if addr.Is6() {
		bits = 64
	}
	p, err := addr.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return p
}

// try runs judge, which answers whether a token was right, unless too many wrong ones came; then wait is how long to leave
// it alone. browser is the number of one that logged in before, or empty.
func (t *tries) try(remote, browser string, judge func() bool) (right bool, wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w, now := who{browser: browser}, t.now()
	if browser == "" {
		w.addr = network(remote)
	}
	limits := []*rate.Limiter{t.of(w)}
	if browser == "" && !w.addr.Addr().IsLoopback() {
		limits = append(limits, t.others)
	}
	for _, l := range limits {
		if missing := 1 - l.TokensAt(now); missing > 0 {
			wait = max(wait, time.Duration(missing/float64(l.Limit())*float64(time.Second)))
		}
	}
	if wait > 0 {
		return false, wait
	}
	if judge() {
		return true, 0
	}
	for _, l := range limits {
		l.AllowN(now, 1)
	}
	return false, 0
}

// of answers a guesser's bound; mu is held.
func (t *tries) of(w who) *rate.Limiter {
	at := t.byWho[w]
	if at == nil {
		if t.recent.Len() >= guessers {
			old, _ := t.recent.Remove(t.recent.Back()).(*guesser)
			delete(t.byWho, old.who)
		}
		at = t.recent.PushFront(&guesser{w, rate.NewLimiter(rate.Every(triesEvery), triesAtOnce)})
		t.byWho[w] = at
	}
	t.recent.MoveToFront(at)
	g, _ := at.Value.(*guesser)
	return g.limit
}
