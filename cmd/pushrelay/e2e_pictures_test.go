//go:build e2e && pictures

package main

import (
	"bytes"
	"cmp"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// TestPictures takes the documentation's pictures of the debug page, of the demonstration after PICTURES_AFTER.
func TestPictures(t *testing.T) {
	after, err := time.ParseDuration(cmp.Or(os.Getenv("PICTURES_AFTER"), "4m30s"))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", t.TempDir())
	p := start(t, "", "demo", "--keep")
	fields := strings.Fields(p.await(p.out, "Watch them at"))
	r := &relay{process: p, admin: strings.TrimSuffix(fields[slices.Index(fields, "at")+1], "/debug/")}
	<-time.After(after)

	tb := openBrowser(t).tab()
	tb.provoke("status of 401")
	tb.size(1280, 900, false, false)
	tb.do(chromedp.Navigate(r.admin + "/debug/#site=site-one"))
	tb.has("Token of this relay")
	tb.login(fields[len(fields)-1])
	save := func(name string) {
		t.Helper()
		keepPicture(t, filepath.Join("..", "..", "docs", name), tb.picture())
	}
	// Each minute has a busy time; then a queue has built up.
	tb.until("a queue", `Number(document.querySelector('[data-chip=queued] b').innerText) >= 12 && document.querySelector('.rows tr[data-state=running]') && document.querySelector('.rows .why').innerText`)
	save("debug-page.png")
	tb.size(390, 844, true, false)
	tb.until("it is drawn", `document.querySelectorAll('.rows tr[data-state]').length > 4`)
	save("debug-page-phone.png")
	tb.size(1280, 800, false, true)
	// A job that a device gave back waits for a while, and has a history.
	tb.until("one that was given back", `(() => {
		const row = [...document.querySelectorAll('.rows tr[data-state=queued]')].find((r) => r.innerText.includes('gave it back') && parseInt(r.querySelector('.deadline').innerText) > 10);
		row?.querySelector('a').click();
		return row;
	})()`)
	tb.until("a history", `document.querySelectorAll('#history tbody tr').length && document.querySelector('#history .facts')`)
	save("debug-page-dark.png")
	p.signal(syscall.SIGINT)
	p.exit()
}

// keepPicture keeps a picture with 256 colours: a page has few, and files stay small. Shades that look alike share one, so that
// those of thin lines have theirs too.
func keepPicture(t *testing.T, path string, raw []byte) {
	t.Helper()
	full, err := png.Decode(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	seen, bounds := map[color.RGBA]int{}, full.Bounds()
	at := func(x, y int) color.RGBA { return color.RGBAModel.Convert(full.At(x, y)).(color.RGBA) }
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			seen[at(x, y)]++
		}
	}
	most := make([]color.RGBA, 0, len(seen))
	for c := range seen {
		most = append(most, c)
	}
	slices.SortFunc(most, func(a, b color.RGBA) int { return cmp.Compare(seen[b], seen[a]) })
	apart := func(a, b uint8) int { return max(int(a)-int(b), int(b)-int(a)) }
	var palette color.Palette
	for _, c := range most {
		alike := slices.ContainsFunc(palette, func(p color.Color) bool {
			q := p.(color.RGBA)
			return apart(c.R, q.R)+apart(c.G, q.G)+apart(c.B, q.B) < 24
		})
		if (len(palette) < 24 || !alike) && len(palette) < 256 {
			palette = append(palette, c)
		}
	}
	small, index := image.NewPaletted(bounds, palette), map[color.RGBA]uint8{}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			c := at(x, y)
			i, ok := index[c]
			if !ok {
				i = uint8(palette.Index(c))
				index[c] = i
			}
			small.SetColorIndex(x, y, i)
		}
	}
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, small); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %d KiB", path, out.Len()>>10)
}
