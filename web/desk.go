package web

import (
	"context"
	"sync"
)

const (
	// maxBoards sites are looked at at once, by maxViewers pages.
	maxBoards  = 16
	maxViewers = 256
)

// desk keeps what is looked at: a board for each such site, and the list of sites. What nobody looks at any more ends.
type desk struct {
	// Immutable.
	src source
	rec *recorder
	all *room

	mu      sync.Mutex
	ctx     context.Context // of all; nil before the page runs
	work    sync.WaitGroup
	open    map[string]*opened // by site; "" is the list
	viewers int
}

// opened is a feed at work.
type opened struct {
	feed  feed
	users int
	stop  context.CancelFunc
}

func newDesk(src source, rec *recorder) *desk {
	return &desk{src: src, rec: rec, all: newRoom(maxRows), open: map[string]*opened{}}
}

// start lets feeds be opened until ctx ends.
func (d *desk) start(ctx context.Context) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ctx = ctx
}

// end waits for all feeds and viewers; the context of start must have ended.
func (d *desk) end() {
	d.mu.Lock()
	d.ctx = nil
	d.mu.Unlock()
	d.work.Wait()
}

// enter answers the feed of a site, or of the list for "", and a context that ends with the page's; call leave in the end.
// False when the page doesn't run or too many look.
func (d *desk) enter(site string) (f feed, ctx context.Context, leave func(), ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ctx == nil || d.ctx.Err() != nil || d.viewers >= maxViewers {
		return nil, nil, nil, false
	}
	o := d.open[site]
	if o == nil {
		boards := len(d.open)
		if d.open[""] != nil {
			boards--
		}
		if site != "" && boards >= maxBoards {
			return nil, nil, nil, false
		}
		o = d.begin(site)
		d.open[site] = o
	}
	o.users++
	d.viewers++
	d.work.Add(1)
	return o.feed, d.ctx, func() { d.leave(site, o) }, true
}

// begin puts a feed to work; mu is held.
func (d *desk) begin(site string) *opened {
	ctx, stop := context.WithCancel(d.ctx)
	if site == "" {
		x := newIndex(d.src)
		d.work.Go(func() { x.run(ctx) })
		return &opened{feed: x, stop: stop}
	}
	b := newBoard(site, d.src, d.rec, d.all)
	d.rec.attend(b) // before the first read, so that nothing falls between
	d.work.Go(func() { b.read(ctx) })
	d.work.Go(func() {
		b.run(ctx)
		d.rec.dismiss(b)
		b.close()
	})
	return &opened{feed: b, stop: stop}
}

func (d *desk) leave(site string, o *opened) {
	defer d.work.Done()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.viewers--
	if o.users--; o.users == 0 {
		o.stop()
		delete(d.open, site)
	}
}
