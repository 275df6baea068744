package storage

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"pushrelay/store"
	"pushrelay/store/disk"
)

// shownSites is how many sites the table has; the JSON has all.
const shownSites = 20

// report is the JSON of what is in a folder; docs/storage.md says what each member means.
type report struct {
	Path       string         `json:"path"`
	Format     uint64         `json:"format"`
	Epoch      string         `json:"epoch"`
	FileBytes  int64          `json:"file_bytes"`
	FreeBytes  int64          `json:"free_bytes"`
	Jobs       map[string]int `json:"jobs"`
	Notices    int            `json:"notices"`
	Tombstones int            `json:"tombstones"`
	Unreadable int            `json:"unreadable"`
	Bytes      int64          `json:"envelope_bytes"`
	Oldest     string         `json:"oldest,omitempty"`
	Written    string         `json:"written,omitempty"`
	Sites      []siteReport   `json:"sites"`
}

type siteReport struct {
	Site    string `json:"site"`
	Jobs    int    `json:"jobs"`
	Records int    `json:"records"`
	Bytes   int64  `json:"envelope_bytes"`
	Oldest  string `json:"oldest,omitempty"`
}

// states in the order of a life.
func states() []store.State {
	return []store.State{store.Queued, store.AwaitingPayload, store.Ready, store.Running, store.Done}
}

// reportOf puts the sites with the most bytes first.
func reportOf(found *disk.Report) *report {
	r := &report{
		Path: found.Path, Format: found.Format, Epoch: found.Epoch, FileBytes: found.Bytes, FreeBytes: found.Free,
		Jobs: map[string]int{}, Notices: found.Notices, Tombstones: found.Tombstones, Unreadable: found.Unreadable,
		Oldest: moment(found.Oldest), Written: moment(found.Written), Sites: []siteReport{},
	}
	for _, s := range states() {
		r.Jobs[s.String()] = found.Jobs[s]
	}
	for _, s := range found.Sites {
		r.Bytes += s.Bytes
		r.Sites = append(r.Sites, siteReport{Site: s.Site, Jobs: s.Jobs, Records: s.Records, Bytes: s.Bytes, Oldest: moment(s.Oldest)})
	}
	slices.SortFunc(r.Sites, func(a, b siteReport) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.Records, a.Records), cmp.Compare(a.Site, b.Site))
	})
	return r
}

func moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

func (r *report) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name, value string) { fmt.Fprintf(w, "%s\t%s\n", name, value) }
	row("file", r.Path)
	row("format", strconv.FormatUint(r.Format, 10))
	row("epoch", r.Epoch)
	row("size", size(r.FileBytes))
	row("free in it", size(r.FreeBytes))
	row("last written", cmp.Or(r.Written, "never"))
	row("oldest job", cmp.Or(r.Oldest, "none"))
	for _, s := range states() {
		row(s.String(), strconv.Itoa(r.Jobs[s.String()]))
	}
	row("notices", strconv.Itoa(r.Notices))
	row("tombstones", strconv.Itoa(r.Tombstones))
	row("unreadable", strconv.Itoa(r.Unreadable))
	row("sealed envelopes", size(r.Bytes))
	if err := w.Flush(); err != nil || len(r.Sites) == 0 {
		return err
	}
	fmt.Fprintln(out)
	w = tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "site\tjobs\trecords\tsealed envelopes\toldest job")
	for _, s := range r.Sites[:min(shownSites, len(r.Sites))] {
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\n", printable(s.Site), s.Jobs, s.Records, size(s.Bytes), cmp.Or(s.Oldest, "none"))
	}
	if more := len(r.Sites) - shownSites; more > 0 {
		fmt.Fprintf(w, "and %d more sites, which --json names\n", more)
	}
	return w.Flush()
}

// printable keeps a terminal from what an id may hold.
func printable(id string) string {
	quoted := strconv.QuoteToGraphic(id)
	if quoted[1:len(quoted)-1] == id {
		return id
	}
	return quoted
}

// size is a number of bytes for people, with the number itself when it is rounded.
func size(n int64) string {
	const kib, mib, gib = 1 << 10, 1 << 20, 1 << 30
	in := func(unit int64, name string) string {
		return fmt.Sprintf("%.1f %s (%d bytes)", float64(n)/float64(unit), name, n)
	}
	switch {
	case n >= gib:
		return in(gib, "GiB")
	case n >= mib:
		return in(mib, "MiB")
	case n >= kib:
		return in(kib, "KiB")
	}
	return fmt.Sprintf("%d bytes", n)
}
