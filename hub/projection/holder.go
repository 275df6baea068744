package projection

import (
	"bytes"
	"sync"
	"sync/atomic"
	"time"
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
	left map[string]departed // devices that are in no projection any more, by key id
}

// departed is a device that left, and when.
type departed struct {
	device *Device
	at     time.Time
}

// A result may wait for its site as long as results are kept, and its site verifies it by its device's keys. So these
// are remembered for longer than that, and for no more devices than memory can take.
const (
	departedFor = 48 * time.Hour
	maxDeparted = 100_000
)

// NewHolder starts with p in force as generation 1; nil means Empty.
func NewHolder(p *Projection) *Holder {
	if p == nil {
		p = Empty()
	}
	h := &Holder{subs: map[chan struct{}]struct{}{}, left: map[string]departed{}}
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
	h.remember(old.Projection, p, time.Now())
	h.current.Store(&Current{Projection: p, Generation: old.Generation + 1})
	for ch := range h.subs {
		select {
		case ch <- struct{}{}:
		default: // it is told already
		}
	}
	return true, nil
}

// Device answers the device with that key id from the projection in force, or as it last was in one, for two days after
// it left. Only for who did what is done: whether a device may do anything is asked of Current.
func (h *Holder) Device(keyID string) (*Device, bool) {
	if d, ok := h.Current().DeviceByKeyID(keyID); ok {
		return d, true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	d, ok := h.left[keyID]
	return d.device, ok
}

// remember keeps the devices that next doesn't have; mu is held.
func (h *Holder) remember(old, next *Projection, now time.Time) {
	for id, d := range h.left {
		if _, back := next.DeviceByKeyID(id); back || now.Sub(d.at) > departedFor {
			delete(h.left, id)
		}
	}
	old.EachDevice(func(d *Device) {
		if _, stays := next.DeviceByKeyID(d.KeyID); !stays && len(h.left) < maxDeparted {
			h.left[d.KeyID] = departed{d, now}
		}
	})
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
