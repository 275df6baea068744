package memory

// due is a time at which something of one job or one session is to happen. It stands in at most one heap.
type due struct {
	at  int64 // epoch ns
	seq uint64
	pos int // index in the heap plus 1; 0: in none
	j   *job
	s   *session
}

// dues is a heap of due times, earliest first; every entry knows its place, so that a change costs O(log n). It has four
// children to a node and the times beside the entries: a change reads few cache lines, and none of jobs that wait.
type dues []slot

// slot is an entry with what the heap is ordered by.
type slot struct {
	at  int64
	seq uint64
	d   *due
}

// fanout is the number of children of a node.
const fanout = 4

func (a *slot) before(b *slot) bool { return a.at < b.at || a.at == b.at && a.seq < b.seq }

// set puts d at the given time, whether it stood in the heap before or not.
func (h *dues) set(d *due, at int64) {
	e := slot{at, d.seq, d}
	switch {
	case d.pos == 0:
		d.at = at
		*h = append(*h, e)
		h.up(len(*h)-1, e)
	case d.at < at:
		d.at = at
		h.down(d.pos-1, e)
	case d.at > at:
		d.at = at
		h.up(d.pos-1, e)
	}
}

// remove takes d out; nothing happens when it isn't in.
func (h *dues) remove(d *due) {
	if d.pos == 0 {
		return
	}
	s := *h
	i, last := d.pos-1, len(s)-1
	moved := s[last]
	s[last] = slot{}
	*h = s[:last]
	d.pos = 0
	if i < last {
		h.up(i, moved)
		h.down(moved.d.pos-1, moved)
	}
}

// top answers the earliest; nil when there is none.
func (h dues) top() *due {
	if len(h) == 0 {
		return nil
	}
	return h[0].d
}

// put writes an entry to a place.
func (h dues) put(i int, e slot) {
	h[i] = e
	e.d.pos = i + 1
}

// up finds the place of an entry that may belong nearer to the top than i.
func (h dues) up(i int, e slot) {
	for i > 0 {
		p := (i - 1) / fanout
		if !e.before(&h[p]) {
			break
		}
		h.put(i, h[p])
		i = p
	}
	h.put(i, e)
}

// down finds the place of an entry that may belong farther from the top than i.
func (h dues) down(i int, e slot) {
	for {
		first := fanout*i + 1
		if first >= len(h) {
			break
		}
		c := first
		for k := first + 1; k < min(first+fanout, len(h)); k++ {
			if h[k].before(&h[c]) {
				c = k
			}
		}
		if !h[c].before(&e) {
			break
		}
		h.put(i, h[c])
		i = c
	}
	h.put(i, e)
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
