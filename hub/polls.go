package hub

import (
	"context"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"pushrelay/hub/projection"
	"pushrelay/store"
	"pushrelay/wire"
)

// polls is what the hub remembers between the requests of clients that poll. All of it may be lost: it costs a question
// to the store, or one more poll.
type polls struct {
	// applied is the generation of the projection that is applied, or being applied.
	applied atomic.Uint64

	seed maphash.Seed

	mu      sync.Mutex
	runners map[string]*polledRunner
	empty   chan struct{}           // closed when leases is; nil: nobody waits for that
	leases  map[string]string       // unfinished grants that polls took and accepted here: the site, by lease
	fetches map[string][]*fetchWait // by lease
	waiting map[*fetchWait]struct{} // all of fetches
}

// polledRunner is a runner that polls here. Guarded by the mu of polls.
type polledRunner struct {
	told    uint64 // generation of the projection whose sites its last heartbeat was told; 0: it may know them from elsewhere
	seen    time.Time
	used    time.Time
	cools   map[store.Route]*coolness // of its last claim; whoever claims for it has them meanwhile
	claims  []signedClaim             // that are still fresh
	results int                       // requests that report results, under way
	idle    chan struct{}             // closed when there are none any more; nil: nobody waits for that
}

// signedClaim is a claim that was served, by its signature's hash.
type signedClaim struct {
	hash uint64
	at   time.Time
}

// Claims are remembered for as long as they are fresh, wherever in its time the caller's clock is, and no more than a daemon
// could want to send in that time.
const (
	claimFresh  = 2 * wire.MaxSkewMs * time.Millisecond
	claimTwice  = time.Second // within it, claims of one millisecond are what they seem to be
	maxReplayed = 2048
)

// fetchWait is a request that waits for a payload.
type fetchWait struct{ moved chan struct{} }

// runnerIdle is how long a runner that stopped polling is remembered.
const runnerIdle = 10 * time.Minute

func (p *polls) init(generation uint64) {
	p.applied.Store(generation)
	p.seed = maphash.MakeSeed()
	p.runners, p.leases = map[string]*polledRunner{}, map[string]string{}
	p.fetches, p.waiting = map[string][]*fetchWait{}, map[*fetchWait]struct{}{}
}

// runner answers the record of a runner, made if need be; mu is held.
func (p *polls) runner(id string) *polledRunner {
	r := p.runners[id]
	if r == nil {
		r = &polledRunner{}
		p.runners[id] = r
	}
	r.used = time.Now()
	return r
}

// tell notes that a heartbeat told the runner its sites, and reports whether the store should hear of the runner again.
func (p *polls) tell(runner string, generation uint64) (stale bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.runner(runner)
	r.told = generation
	stale = since(r.seen) > 10*time.Second
	if stale {
		r.seen = time.Now()
	}
	return stale
}

// told answers the generation that a claim of the runner may count on. A runner whose heartbeats this replica hasn't seen
// was told by another one.
func (p *polls) told(runner string) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.runners[runner]; r != nil && r.told != 0 {
		return r.told
	}
	return p.applied.Load()
}

// cools takes what the runner's questions about routes came to, for a claim; cooled keeps it for the next.
func (p *polls) cools(runner string) map[store.Route]*coolness {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.runner(runner)
	out := r.cools
	r.cools = nil
	return out
}

func (p *polls) cooled(runner string, cools map[store.Route]*coolness) {
	if len(cools) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.runner(runner).cools = cools
}

// replayed notes a claim, and reports whether the same one was served before. A daemon that asks several times within a
// millisecond signs the same, so only what comes later is a replay.
func (p *polls) replayed(runner, signature string) bool {
	c := signedClaim{maphash.String(p.seed, signature), time.Now()}
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.runner(runner)
	old := 0
	for old < len(r.claims) && (since(r.claims[old].at) > claimFresh || len(r.claims)-old >= maxReplayed) {
		old++
	}
	r.claims = slices.Delete(r.claims, 0, old)
	if i := slices.IndexFunc(r.claims, func(o signedClaim) bool { return o.hash == c.hash }); i >= 0 {
		return c.at.Sub(r.claims[i].at) > claimTwice
	}
	r.claims = append(r.claims, c)
	return false
}

// forgive lets the runner's next claim through: if it doesn't ask here for its sites, it asks elsewhere.
func (p *polls) forgive(runner string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.runners[runner]; r != nil {
		r.told = 0
	}
}

// follow carries over who was told nothing else than what the next projection says.
func (p *polls) follow(old, cur *projection.Current) {
	p.applied.Store(cur.Generation)
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, r := range p.runners {
		dev, ok := cur.DeviceByRunner(id)
		switch {
		case !ok:
			if r.results == 0 {
				delete(p.runners, id)
			}
		case r.told == old.Generation && old.SameFor(cur.Projection, dev.Owner):
			r.told = cur.Generation
		}
	}
}

// tidy forgets runners that are gone and lets those that wait look again. missed says that events were lost, and with them the ends of grants.
func (p *polls) tidy(missed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, r := range p.runners {
		if r.results == 0 && since(r.used) > runnerIdle {
			delete(p.runners, id)
		}
	}
	if missed {
		clear(p.leases)
	}
	for w := range p.waiting {
		w.wake()
	}
}

// reporting notes that a result of the runner is under way; over ends that.
func (p *polls) reporting(runner string) (over func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.runner(runner)
	r.results++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if r.results--; r.results == 0 && r.idle != nil {
			close(r.idle)
			r.idle = nil
		}
	}
}

// reported waits until no result of the runner is under way, or ctx ends: a daemon that finished a job asks for the next
// one while it still reports.
func (p *polls) reported(ctx context.Context, runner string) {
	p.mu.Lock()
	r := p.runner(runner)
	if r.results == 0 {
		p.mu.Unlock()
		return
	}
	if r.idle == nil {
		r.idle = make(chan struct{})
	}
	idle := r.idle
	p.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

// took notes grants that a poll's client has.
func (p *polls) took(lease, site string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leases[lease] = site
}

// siteOf answers the site of a grant that a poll took here, or "".
func (p *polls) siteOf(lease string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.leases[lease]
}

func (p *polls) view() PollingView {
	p.mu.Lock()
	defer p.mu.Unlock()
	return PollingView{Runners: len(p.runners), HeldFetches: len(p.waiting), Grants: len(p.leases)}
}

// AwaitPolls waits until no grant that a poll took here is unfinished, or ctx ends: a daemon that polls doesn't send its
// result a second time, so a relay that drains stays for it.
func (h *Hub) AwaitPolls(ctx context.Context) error {
	h.polls.mu.Lock()
	if len(h.polls.leases) == 0 {
		h.polls.mu.Unlock()
		return nil
	}
	if h.polls.empty == nil {
		h.polls.empty = make(chan struct{})
	}
	empty := h.polls.empty
	h.polls.mu.Unlock()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ended is told that a grant ended or is done.
func (p *polls) ended(lease string) {
	p.mu.Lock()
	delete(p.leases, lease)
	if len(p.leases) == 0 && p.empty != nil {
		close(p.empty)
		p.empty = nil
	}
	p.mu.Unlock()
	p.wake(lease)
}

// wait registers a request that waits for a payload, until over is called.
func (p *polls) wait(lease string) (w *fetchWait, over func()) {
	w = &fetchWait{moved: make(chan struct{}, 1)}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fetches[lease] = append(p.fetches[lease], w)
	p.waiting[w] = struct{}{}
	return w, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.waiting, w)
		list := p.fetches[lease]
		for i, o := range list {
			if o == w {
				list = append(list[:i:i], list[i+1:]...)
				break
			}
		}
		if len(list) == 0 {
			delete(p.fetches, lease)
		} else {
			p.fetches[lease] = list
		}
	}
}

func (w *fetchWait) wake() {
	select {
	case w.moved <- struct{}{}:
	default: // it is awake
	}
}

// wake lets requests look again that wait for the payload of a grant.
func (p *polls) wake(lease string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.fetches[lease] {
		w.wake()
	}
}

// wakeFetches lets all of them look again.
func (p *polls) wakeFetches() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.waiting {
		w.wake()
	}
}
