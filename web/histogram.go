package web

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"time"
)

const (
	// finest is the resolution: everything shorter is one slot. coarsest bounds what is told apart.
	finestBits   = 6  // 64 us
	coarsestBits = 40 // about 12 days
	// parts divide each doubling, so that a slot is at most a fifth wider than its neighbour.
	partBits = 2
	slots    = (coarsestBits-finestBits)<<partBits + 1
)

// histogram counts durations in slots that widen with them: those that have any, in order. The durations of a few seconds are
// in a few slots, and most sites' in none. The zero value is empty.
type histogram []slotCount

type slotCount struct {
	slot uint8
	n    uint32
}

// slotBytes is what a slot of a histogram costs.
const slotBytes = 8

// slotOf answers where a duration is counted.
func slotOf(d time.Duration) int {
	us := uint64(max(d.Microseconds(), 0)) //nolint:gosec // not negative
	if us < 1<<finestBits {
		return 0
	}
	exp := bits.Len64(us) - 1
	if exp >= coarsestBits {
		return slots - 1
	}
	part := us >> (exp - partBits) & (1<<partBits - 1)
	return (exp-finestBits)<<partBits + int(part) + 1 //nolint:gosec // below 4
}

// upper answers the end of a slot, in microseconds.
func upper(slot int) float64 {
	if slot == 0 {
		return 1 << finestBits
	}
	exp, part := (slot-1)>>partBits+finestBits, (slot-1)&(1<<partBits-1)
	return math.Ldexp(1+float64(part+1)/(1<<partBits), exp)
}

func (h *histogram) add(d time.Duration) { h.count(uint8(slotOf(d)), 1) } //nolint:gosec // slots are fewer

func (h *histogram) count(slot uint8, n uint32) {
	at, there := slices.BinarySearchFunc(*h, slot, func(c slotCount, slot uint8) int { return cmp.Compare(c.slot, slot) })
	if !there {
		*h = slices.Insert(*h, at, slotCount{slot: slot})
	}
	(*h)[at].n += n
}

func (h *histogram) merge(o histogram) {
	for _, c := range o {
		h.count(c.slot, c.n)
	}
}

// quantile answers the time within which a share of the durations was, rounded up to its slot's end; 0 when there are none.
func (h histogram) quantile(share float64) time.Duration {
	total := uint64(0)
	for _, c := range h {
		total += uint64(c.n)
	}
	left := uint64(math.Ceil(share * float64(total)))
	for _, c := range h {
		if left <= uint64(c.n) {
			return time.Duration(upper(int(c.slot))) * time.Microsecond
		}
		left -= uint64(c.n)
	}
	return 0
}
