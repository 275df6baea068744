package site

// ring remembers the last keys put into it.
type ring[K comparable] struct {
	has   map[K]struct{}
	order []K
	next  int
}

func newRing[K comparable](size int) ring[K] {
	return ring[K]{has: make(map[K]struct{}), order: make([]K, 0, size)}
}

func (r *ring[K]) seen(k K) bool {
	_, ok := r.has[k]
	return ok
}

func (r *ring[K]) add(k K) {
	if r.seen(k) {
		return
	}
	r.has[k] = struct{}{}
	if len(r.order) < cap(r.order) {
		r.order = append(r.order, k)
		return
	}
	delete(r.has, r.order[r.next])
	r.order[r.next] = k
	r.next = (r.next + 1) % len(r.order)
}
