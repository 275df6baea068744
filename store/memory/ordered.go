package memory

import "slices"

// chunkSize bounds what one insertion or removal has to move.
const chunkSize = 128

// entry is one job in an ordered list, with the key that it stands under there.
type entry struct {
	key uint64
	j   *job
}

// ordered is a list of jobs by rising key: short sorted chunks, so that additions, removals and look-ups anywhere cost
// a binary search and one short move, however long the list is. The zero value is empty.
type ordered struct {
	chunks [][]entry
	n      int
}

// chunk answers the index of the first chunk that ends at or after key.
func (o *ordered) chunk(key uint64) int {
	lo, hi := 0, len(o.chunks)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		c := o.chunks[mid]
		if len(c) == 0 || c[len(c)-1].key < key {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// within answers the index of the first entry of c at or after key.
func within(c []entry, key uint64) int {
	lo, hi := 0, len(c)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if c[mid].key < key {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// insert adds j under a key that the list doesn't have yet.
func (o *ordered) insert(key uint64, j *job) {
	o.n++
	ci := o.chunk(key)
	if ci == len(o.chunks) { // after all others: fill the last chunk, then begin a new one
		if ci > 0 && len(o.chunks[ci-1]) < chunkSize {
			o.chunks[ci-1] = append(o.chunks[ci-1], entry{key, j})
			return
		}
		o.chunks = append(o.chunks, []entry{{key, j}})
		return
	}
	c := o.chunks[ci]
	if len(c) >= chunkSize {
		half := slices.Clone(c[chunkSize/2:])
		clear(c[chunkSize/2:])
		o.chunks[ci] = c[:chunkSize/2]
		o.chunks = slices.Insert(o.chunks, ci+1, half)
		if key > c[chunkSize/2-1].key {
			ci++
		}
		c = o.chunks[ci]
	}
	o.chunks[ci] = slices.Insert(c, within(c, key), entry{key, j})
}

// remove takes the entry of this key out; an unknown key changes nothing.
func (o *ordered) remove(key uint64) {
	ci := o.chunk(key)
	if ci == len(o.chunks) {
		return
	}
	c := o.chunks[ci]
	i := within(c, key)
	if i == len(c) || c[i].key != key {
		return
	}
	o.n--
	if i == 0 && len(c) > 1 { // the oldest mostly goes first
		c[0] = entry{}
		c = c[1:]
	} else {
		c = slices.Delete(c, i, i+1)
	}
	o.chunks[ci] = c
	if len(c) == 0 && len(o.chunks) > 1 { // the only chunk is kept, lists often go between none and one
		o.chunks = slices.Delete(o.chunks, ci, ci+1)
	}
}

// after answers the first job whose key is above the given one, and that key; nil at the end.
func (o *ordered) after(key uint64) (*job, uint64) {
	if o.n == 0 || key == ^uint64(0) {
		return nil, 0
	}
	ci := o.chunk(key + 1)
	if ci == len(o.chunks) {
		return nil, 0
	}
	c := o.chunks[ci]
	e := c[within(c, key+1)]
	return e.j, e.key
}

// first answers the job with the lowest key; nil when the list is empty.
func (o *ordered) first() *job {
	if o.n == 0 {
		return nil
	}
	return o.chunks[0][0].j
}
