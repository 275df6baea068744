package submit

import (
	"fmt"
	"io"
	"strings"
	"sync"

	"pushrelay/cmd/pushrelay/internal/app"
)

const barWidth = 24

// progress is one line at the bottom of a terminal; without one it writes nothing.
type progress struct {
	w io.Writer // nil: none

	mu    sync.Mutex
	drawn bool
}

func newProgress(w io.Writer, wanted bool) *progress {
	if !wanted || !app.IsTerminal(w) {
		w = nil
	}
	return &progress{w: w}
}

// draw shows counts. While the input isn't at its end the total isn't known, and there is no bar.
func (p *progress) draw(ok, failed, open int, whole bool) {
	if p.w == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drawn = true
	_, _ = io.WriteString(p.w, "\r\x1b[K"+barText(ok, failed, open, whole))
}

func barText(ok, failed, open int, whole bool) string {
	done, total := ok+failed, ok+failed+open
	text := fmt.Sprintf("%d of %d", done, total)
	if !whole {
		text += "+"
	} else if total > 0 {
		full := barWidth * done / total
		text = "[" + strings.Repeat("#", full) + strings.Repeat("-", barWidth-full) + "] " + text
	}
	if failed > 0 {
		text += fmt.Sprintf(", %d failed", failed)
	}
	return text
}

// clear takes the line away, before anything else is written.
func (p *progress) clear() {
	if p.w == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.drawn {
		_, _ = io.WriteString(p.w, "\r\x1b[K")
		p.drawn = false
	}
}
