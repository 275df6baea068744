package projection

import (
	"bytes"
	"sync"
	"sync/atomic"
)

// Current is a projection in force with its generation, which rises with each change.
type Current struct {
	*Projection
	Generation uint64
}

// Holder keeps the projection in force. Reads never block; replacements are ordered.
type Holder struct {
	current atomic.Pointer[Current]

	mu   sync.Mutex // orders replacements, guards the rest
	subs map[chan struct{}]struct{}
}

// NewHolder starts with p in force as generation 1; nil means Empty.
func NewHolder(p *Projection) *Holder {
	if p == nil {
		p = Empty()
	}
	h := &Holder{subs: map[chan struct{}]struct{}{}}
	h.current.Store(&Current{Projection: p, Generation: 1})
	return h
}

// Current answers what is in force now. It never answers nil and never blocks.
func (h *Holder) Current() *Current { return h.current.Load() }

// Replace puts p in force whole and tells subscribers. A version must rise; the same text again changes nothing and is
// no error. An *Error keeps the old one.
func (h *Holder) Replace(p *Projection) (changed bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	old := h.current.Load()
	if p == nil {
		return false, refuse("", "there is none")
	}
	if bytes.Equal(old.raw, p.raw) {
		return false, nil
	}
	if old.hasVersion {
		switch {
		case !p.hasVersion:
			return false, refuse("/version", "it is missing, and version %d is in force; set a higher one", old.version)
		case p.version <= old.version:
			return false, refuse("/version", "%d doesn't rise above %d, which is in force; set a higher one", p.version, old.version)
		}
	}
	h.current.Store(&Current{Projection: p, Generation: old.Generation + 1})
	for ch := range h.subs {
		select {
		case ch <- struct{}{}:
		default: // it is told already
		}
	}
	return true, nil
}

// Subscribe answers a channel that gets a value after each change (several may show as one) and a func that ends it.
func (h *Holder) Subscribe() (changed <-chan struct{}, cancel func()) {
	ch := make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.subs[ch] = struct{}{}
	return ch, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.subs, ch)
	}
}
