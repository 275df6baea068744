package web

import (
	"strings"
	"time"

	"pushrelay/hub"
)

// filter is what a viewer wants to see. The zero value is everything, oldest first.
type filter struct {
	states uint16 // bits by hub.JobState; 0 is all
	text   string // in lower case, within an id, a kind, an owner or a runner
	newest bool   // newest first; of the window only
}

// passes reports whether a row is wanted.
func (f *filter) passes(r *row) bool {
	if f.states != 0 && f.states&(1<<r.State) == 0 {
		return false
	}
	return f.text == "" || has(r.Job, f.text) || has(r.Owner, f.text) || has(r.Kind, f.text) || has(r.Runner, f.text) ||
		has(r.DeviceKeyID, f.text)
}

func has(s, part string) bool { return strings.Contains(strings.ToLower(s), part) }

// view is the rows that pass a filter, in order. All who have the same filter share it.
type view struct {
	filter  filter
	users   int
	rows    []*row
	version uint64    // of the board when rows were found
	next    time.Time // not to be found anew before
}

// costShare is how much longer than finding a view's rows the pause behind it is, so that boards with very many rows don't
// take the processor from the relay.
const costShare = 10

// open answers the view of a filter; mu is held.
func (b *board) open(f filter) *view {
	f.newest = false
	v := b.views[f]
	if v == nil {
		v = &view{filter: f}
		b.views[f] = v
		b.find(v, time.Now())
	}
	v.users++
	return v
}

// shut is called once for each open; mu is held.
func (b *board) shut(v *view) {
	if v.users--; v.users == 0 {
		delete(b.views, v.filter)
	}
}

// renewFor bounds how long rows are found at one time; the views that are left are looked at again with the next tick.
const renewFor = 50 * time.Millisecond

// renew finds the rows of the views that changed and whose pause is over; mu is held.
func (b *board) renew(now time.Time) {
	for _, v := range b.views { // in another order each time
		if v.version == b.version || now.Before(v.next) {
			continue
		}
		b.find(v, time.Now())
		if time.Since(now) > renewFor {
			return
		}
	}
}

// find goes over all rows; mu is held.
func (b *board) find(v *view, now time.Time) {
	clear(v.rows)
	v.rows = v.rows[:0]
	for _, r := range b.order {
		if !r.dead && v.filter.passes(r) {
			v.rows = append(v.rows, r)
		}
	}
	v.version = b.version
	v.next = now.Add(costShare * time.Since(now))
}

// window answers the rows from..from+n of a view, in its viewer's order; from is moved so that it is within.
func (v *view) window(from, n int, newest bool) (at int, rows []*row) {
	total := len(v.rows)
	at = max(0, min(from, total-n))
	rows = make([]*row, 0, min(n, total))
	for i := at; i < total && i < at+n; i++ {
		if newest {
			rows = append(rows, v.rows[total-1-i])
		} else {
			rows = append(rows, v.rows[i])
		}
	}
	return at, rows
}

// statesOf turns words into a filter's bits; unknown words are left out.
func statesOf(words []string) (bits uint16) {
	for _, s := range hub.JobStates() {
		for _, w := range words {
			if w == s.String() {
				bits |= 1 << s
			}
		}
	}
	return bits
}
