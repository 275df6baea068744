package web

import (
	"context"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"pushrelay/wire"
)

const (
	// maxWindow rows are sent at most.
	maxWindow = 200
	// maxFilterBytes bounds the text of a filter.
	maxFilterBytes = 256
)

// look is what a viewer looks at: the whole of it each time, so that nothing drifts.
type look struct {
	From   int      `json:"from"`
	Rows   int      `json:"rows"`
	States []string `json:"states"`
	Text   string   `json:"text"`
	Newest bool     `json:"newest"`
	Job    string   `json:"job"`    // whose history is read
	Hidden bool     `json:"hidden"` // nobody sees the page: nothing is sent
}

// parseLook reads a viewer's message and keeps it within bounds.
func parseLook(raw []byte) (look, error) {
	var l look
	if err := json.Unmarshal(raw, &l, jsontext.AllowInvalidUTF8(true)); err != nil {
		return look{}, err
	}
	l.From = max(l.From, 0)
	l.Rows = min(max(l.Rows, 0), maxWindow)
	if len(l.Text) > maxFilterBytes {
		l.Text = l.Text[:maxFilterBytes]
	}
	if len(l.Job) > wire.MaxIDBytes {
		l.Job = ""
	}
	return l, nil
}

// viewer is one open page.
type viewer struct {
	asked chan struct{} // holds one when want changed

	mu   sync.Mutex
	want look // guarded by mu

	// The stream's own.
	seen look
	sent map[uint32]uint64 // versions of the rows in the window, by handle
	from int
	told detailMark
	site uint64
	plot uint64
	all  int
	load loadMark

	// Guarded by the board's mu.
	view   *view
	window []*row
	hidden bool
}

// loadMark tells whether the state of a board's first read changed.
type loadMark struct {
	run, rows, total int
	over, full       bool
}

func newViewer() *viewer {
	return &viewer{asked: make(chan struct{}, 1), want: look{Hidden: true}, seen: look{Hidden: true}}
}

// ask replaces what the viewer looks at.
func (v *viewer) ask(l look) {
	v.mu.Lock()
	v.want = l
	v.mu.Unlock()
	select {
	case v.asked <- struct{}{}:
	default: // it is told already
	}
}

func (v *viewer) wants() look {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.want
}

// forget lets the next update be a fresh one.
func (v *viewer) forget() {
	v.sent, v.told, v.site, v.plot, v.all, v.load = nil, detailMark{}, 0, 0, 0, loadMark{}
}

// feed is what viewers are shown: one site's board, or the list of sites.
type feed interface {
	// join and leave frame a viewer's time.
	join(v *viewer)
	leave(v *viewer)
	// changes answers a channel that is closed at the next change.
	changes() <-chan struct{}
	// compose fills in what changed for the viewer since it was last composed for; false when nothing did.
	compose(v *viewer, l look, u *update) bool
}

// pace and beat: at most ten updates a second, at least one message.
const (
	pace = 100 * time.Millisecond
	beat = time.Second
	// slow is how long a message may take before the viewer counts as slow and gets everything afresh.
	slow = time.Second
)

// show sends updates until ctx ends or send fails. What is sent is made when it can be sent, from what is true then: a
// viewer that is slow has no backlog, and holds up nobody.
func (v *viewer) show(ctx context.Context, f feed, now func() time.Time, send func(update) error) error {
	f.join(v)
	defer f.leave(v)
	last, fresh := time.Time{}, true
	for {
		changed := f.changes()
		u := update{Type: "update", Now: now().UnixMilli()}
		l := v.wants()
		if v.seen.Hidden && !l.Hidden {
			fresh = true
		}
		if fresh {
			v.forget()
			u.Fresh = true
		}
		any := f.compose(v, l, &u)
		v.seen = l
		if any || time.Since(last) >= beat {
			u.Fresh = u.Fresh && any
			last = time.Now()
			if err := send(u); err != nil {
				return err
			}
			fresh = fresh && !any || time.Since(last) > slow
		}
		if err := v.rest(ctx, changed, last); err != nil {
			return err
		}
	}
}

// rest waits for something to tell, or until it is time for a beat; then until the next message may be sent.
func (v *viewer) rest(ctx context.Context, changed <-chan struct{}, last time.Time) error {
	if v.seen.Hidden {
		changed = nil
	}
	t := time.NewTimer(beat - time.Since(last))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-changed:
	case <-v.asked:
	case <-t.C:
	}
	t.Reset(pace - time.Since(last))
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
	}
	return nil
}
