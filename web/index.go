package web

import (
	"context"
	"strings"
	"sync"
	"time"

	"pushrelay/hub"
)

// maxListed sites are sent to a viewer; a filter finds the others.
const maxListed = 200

// index is the list of sites, read while somebody looks at it.
type index struct {
	src source

	mu      sync.Mutex
	sites   []siteLine
	version uint64
	changed chan struct{}
}

// siteLine is a site in the list.
type siteLine struct {
	Site     string         `json:"id"`
	Known    bool           `json:"known"`
	Present  bool           `json:"present"`
	Sessions int            `json:"sessions"`
	Counts   map[string]int `json:"counts"`
	Bytes    int64          `json:"bytes"`
	Notices  int            `json:"notices"`
}

// sitesJSON is the list as the page gets it.
type sitesJSON struct {
	Total int        `json:"total"` // that pass the filter
	List  []siteLine `json:"list"`
}

func newIndex(src source) *index { return &index{src: src, changed: make(chan struct{})} }

// run reads the list again and again until ctx ends.
func (x *index) run(ctx context.Context) {
	for wait := time.Duration(0); sleep(ctx, wait); {
		began := time.Now()
		if all, err := x.src.Sites(ctx); err == nil {
			x.take(all)
		}
		wait = max(detailEvery, detailShare*time.Since(began))
	}
}

func (x *index) take(all []hub.SiteSummary) {
	lines := make([]siteLine, len(all))
	for i := range all {
		s := &all[i]
		lines[i] = siteLine{s.Site, s.Known, s.Present, s.Sessions, countsOf(s), s.Bytes, s.Notices}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.sites = lines
	x.version++
	close(x.changed)
	x.changed = make(chan struct{})
}

func (x *index) join(*viewer)  {}
func (x *index) leave(*viewer) {}

func (x *index) changes() <-chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.changed
}

// compose implements feed.
func (x *index) compose(v *viewer, l look, u *update) bool {
	if l.Hidden {
		return false
	}
	x.mu.Lock()
	sites, version := x.sites, x.version // replaced, never changed
	x.mu.Unlock()
	if version == 0 || v.site == version && v.seen.Text == l.Text {
		return false
	}
	v.site = version
	text := strings.ToLower(l.Text)
	out := sitesJSON{List: []siteLine{}}
	for _, s := range sites {
		if !has(s.Site, text) {
			continue
		}
		if out.Total++; len(out.List) < maxListed {
			out.List = append(out.List, s)
		}
	}
	u.Sites = encode(out)
	return true
}
