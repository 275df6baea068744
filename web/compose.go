package web

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// join implements feed.
func (b *board) join(v *viewer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	v.hidden = true
	b.viewers[v] = struct{}{}
}

// leave implements feed.
func (b *board) leave(v *viewer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.viewers, v)
	if v.view != nil {
		b.shut(v.view)
	}
	b.leaveOff(v.seen.Job)
}

// changes implements feed.
func (b *board) changes() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changed
}

// compose implements feed.
func (b *board) compose(v *viewer, l look, u *update) bool {
	rows, m, job, known := b.composeBoard(v, l, u)
	any := rows || u.Site != nil || u.Chart != nil
	if known {
		if text, mark, changed := b.composeJob(v, m, job); changed {
			u.Job, v.told = text, mark
			any = true
		}
	}
	return any
}

// composeBoard fills in all but a job's details, and answers what it knows of these.
func (b *board) composeBoard(v *viewer, l look, u *update) (rows bool, m detailMark, job detailJSON, known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	v.hidden = l.Hidden
	if l.Job != v.seen.Job {
		b.study(l.Job)
		b.leaveOff(v.seen.Job)
	}
	if l.Hidden {
		return false, m, job, false
	}
	b.aim(v, l)
	rows = b.composeRows(v, l, u)
	if v.site != b.detail.version {
		u.Site, v.site = b.detail.text, b.detail.version
	}
	if v.plot != b.chart.version {
		u.Chart = b.tail.text
		if v.plot == 0 || b.chart.version != v.plot+1 {
			u.Chart = b.chart.text
		}
		v.plot = b.chart.version
	}
	if l.Job == "" {
		return rows, m, job, false
	}
	job, m, known = b.detailOf(l.Job)
	return rows, m, job, known
}

// aim opens the view that the viewer wants; mu is held.
func (b *board) aim(v *viewer, l look) {
	f := filter{states: statesOf(l.States), text: strings.ToLower(l.Text)}
	if v.view != nil && v.view.filter == f {
		return
	}
	if v.view != nil {
		b.shut(v.view)
	}
	v.view = b.open(f)
}

// composeRows fills in the window when anything in it changed; mu is held.
func (b *board) composeRows(v *viewer, l look, u *update) bool {
	from, window := v.view.window(l.From, l.Rows, l.Newest)
	v.window = window
	part := rowsPart{
		Total: len(v.view.rows), From: from, Order: make([]uint32, len(window)), Changed: []jsontext.Value{},
		Loaded: len(b.rows), Loading: !b.load.over, Full: b.load.full,
	}
	same := len(v.sent) == len(window) && v.from == from && v.sent != nil
	sent := make(map[uint32]uint64, len(window))
	for i, r := range window {
		part.Order[i] = r.handle
		version, had := v.sent[r.handle]
		if !had || version != r.version {
			part.Changed = append(part.Changed, r.json())
			same = false
		}
		sent[r.handle] = r.version
	}
	mark := loadMark{b.load.run, 0, part.Total, b.load.over, b.load.full}
	if !b.load.over {
		mark.rows = len(b.rows)
	}
	same = same && mark == v.load && v.seen.Newest == l.Newest
	v.sent, v.from, v.load = sent, from, mark
	if same {
		return false
	}
	u.Rows = &part
	return true
}
