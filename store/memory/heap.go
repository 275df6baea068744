package memory

// due is a time at which something of one job or one session is to happen. It stands in at most one heap.
type due struct {
	at  int64 // epoch ns
	seq uint64
	pos int // index in the heap plus 1; 0: in none
	j   *job
	s   *session
}

// dues is a heap of due times, earliest first; every entry knows its place, so that a change costs O(log n).
type dues []*due

func (a *due) before(b *due) bool { return a.at < b.at || a.at == b.at && a.seq < b.seq }

// set puts d at the given time, whether it stood in the heap before or not.
func (h *dues) set(d *due, at int64) {
	if d.pos == 0 {
		d.at = at
		*h = append(*h, d)
		d.pos = len(*h)
		h.up(d)
		return
	}
	if d.at == at {
		return
	}
	d.at = at
	h.up(d)
	h.down(d)
}

// remove takes d out; nothing happens when it isn't in.
func (h *dues) remove(d *due) {
	if d.pos == 0 {
		return
	}
	s := *h
	i, last := d.pos-1, len(s)-1
	moved := s[last]
	s[last] = nil
	*h = s[:last]
	d.pos = 0
	if i < last {
		s[i] = moved
		moved.pos = i + 1
		h.up(moved)
		h.down(moved)
	}
}

// top answers the earliest; nil when there is none.
func (h dues) top() *due {
	if len(h) == 0 {
		return nil
	}
	return h[0]
}

func (h dues) up(d *due) {
	i := d.pos - 1
	for i > 0 {
		p := (i - 1) / 2
		if !d.before(h[p]) {
			break
		}
		h[i] = h[p]
		h[i].pos = i + 1
		i = p
	}
	h[i] = d
	d.pos = i + 1
}

func (h dues) down(d *due) {
	i := d.pos - 1
	for {
		c := 2*i + 1
		if c >= len(h) {
			break
		}
		if c+1 < len(h) && h[c+1].before(h[c]) {
			c++
		}
		if !h[c].before(d) {
			break
		}
		h[i] = h[c]
		h[i].pos = i + 1
		i = c
	}
	h[i] = d
	d.pos = i + 1
}

// ranked orders the turns of a claim: the one served longest ago first, then as the claim named them.
type ranked interface {
	turn() (served uint64, order int)
}

func sooner[T ranked](a, b T) bool {
	as, ao := a.turn()
	bs, bo := b.turn()
	return as < bs || as == bs && ao < bo
}

// heapify makes h a heap of turns in O(n).
func heapify[T ranked](h []T) {
	for i := len(h)/2 - 1; i >= 0; i-- {
		sink(h, i)
	}
}

// sink moves h[i] down to its place.
func sink[T ranked](h []T, i int) {
	for {
		c := 2*i + 1
		if c >= len(h) {
			return
		}
		if c+1 < len(h) && sooner(h[c+1], h[c]) {
			c++
		}
		if !sooner(h[c], h[i]) {
			return
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
}

// behead takes the first off a heap of turns.
func behead[T ranked](h []T) []T {
	var zero T
	last := len(h) - 1
	h[0], h[last] = h[last], zero
	h = h[:last]
	if last > 0 {
		sink(h, 0)
	}
	return h
}
