//go:build e2e

package main

import (
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

// watchStatus has the page remember when its status changed, as [kind, epoch ms].
const watchStatus = `(() => {
  const node = document.querySelector('#status');
  window.statuses = [];
  new MutationObserver(() => window.statuses.push([node.dataset.kind, Date.now(), node.innerText])).observe(node, {attributes: true, childList: true, subtree: true, characterData: true});
})()`

// staleWithin checks that the page said within five seconds of a moment that it is stale.
func (tb *tab) staleWithin(since time.Time) {
	tb.t.Helper()
	tb.until("it says that it is stale", `window.statuses.some(([kind, , text]) => kind === 'stale' && /stale since \d\d:\d\d:\d\d/.test(text))`)
	at := time.UnixMilli(int64(eval[float64](tb, `window.statuses.find(([kind]) => kind === 'stale')[1]`)))
	if took := at.Sub(since); took > 5*time.Second {
		tb.t.Errorf("it took %v to say that it is stale", took)
	} else {
		tb.t.Logf("stale after %v", took)
	}
}

// A relay that is killed and started again: the page says at once that it is stale, and has everything afresh afterwards,
// without another login.
func TestPageOverARestart(t *testing.T) {
	listen, admin, data := freePort(t), freePort(t), t.TempDir()
	args := []string{"--listen", listen, "--admin-listen", admin, "--store", "disk", "--data", data}
	r := debugRelay(t, args...)
	b := r.backEnd("site-one", false, nil)
	b.publish(t, "before-1", "before-2")
	tb := openBrowser(t).tab()
	tb.provoke("net::ERR_CONNECTION_REFUSED", "WebSocket connection to")
	tb.open(r, "#site=site-one")
	tb.row("before-1", "queued")
	eval[any](tb, watchStatus)

	began := time.Now()
	r.signal(syscall.SIGKILL)
	r.exit()
	tb.staleWithin(began)
	if before := eval[string](tb, `document.querySelector('.rows').innerText`); !strings.Contains(before, "before-2") {
		t.Error("what was shown isn't shown any more")
	}
	age := eval[string](tb, `document.querySelector('.rows .since').innerText`)

	again := start(t, "", append(r.cmd.Args[1:len(r.cmd.Args):len(r.cmd.Args)], "--log-level", "info")...)
	again.await(again.err, `"event":"listening"`)
	tb.until("it is live again", `document.querySelector('#status').dataset.kind === 'live'`)
	tb.row("before-2", "queued")
	b.publish(t, "after")
	tb.row("after", "queued")
	if now := eval[string](tb, `document.querySelector('#status').innerText`); now != "live" {
		t.Errorf("it says %q; a row's age was %s when it was cut", now, age)
	}
	again.signal(syscall.SIGINT)
	again.exit()
	tb.until("a relay that goes away is told apart from one that is there", `document.querySelector('#status').dataset.kind === 'stale'`)
}

// A relay that stands still says nothing and closes nothing.
func TestPageOverSilence(t *testing.T) {
	r := debugRelay(t)
	r.backEnd("site-one", false, nil).publish(t, "j")
	tb := openBrowser(t).tab()
	tb.provoke("WebSocket connection to", "net::ERR_")
	tb.open(r, "#site=site-one")
	tb.row("j", "queued")
	eval[any](tb, watchStatus)
	began := time.Now()
	r.stop()
	tb.staleWithin(began)
	r.signal(syscall.SIGCONT)
	tb.until("it is live again", `document.querySelector('#status').dataset.kind === 'live'`)
}

// A page that nobody sees is sent nothing but signs of life, whatever happens, and one snapshot when it is seen again.
func TestPageThatNobodySees(t *testing.T) {
	t.Parallel()
	const jobs = 10_000
	r := debugRelay(t)
	b := r.backEnd("site-one", false, nil)
	b.publish(t, "first")
	tb := openBrowser(t).tab()
	tb.open(r, "#site=site-one")
	tb.row("first", "queued")

	var frames, bytes atomic.Int64
	if err := chromedp.Listen(tb.ctx, func(event any) {
		if e, ok := event.(*network.EventWebSocketFrameReceived); ok {
			frames.Add(1)
			bytes.Add(int64(len(e.Response.PayloadData)))
		}
	}); err != nil {
		t.Fatal(err)
	}
	command(tb, network.Enable, network.EnableParams{})
	tb.window("minimized")
	tb.until("it is hidden", `document.visibilityState === 'hidden'`)
	until(t, "it is sent beats only", func() bool { // what was under way has arrived
		was, at := bytes.Load(), frames.Load()
		for frames.Load() == at {
			<-time.After(10 * time.Millisecond)
		}
		return bytes.Load()-was < 200
	})
	before, begin, began := frames.Load(), bytes.Load(), time.Now()
	ids := make([]string, jobs)
	for i := range ids {
		ids[i] = fmt.Sprintf("unseen-%05d", i)
	}
	b.publish(t, ids...)
	b.publish(t, "last")
	got, size, took := frames.Load()-before, bytes.Load()-begin, time.Since(began)
	t.Logf("%d frames, %d bytes in %v for %d jobs", got, size, took, jobs)
	if float64(got) > took.Seconds()+2 || size > 200*(got+1) {
		t.Errorf("%d frames and %d bytes were sent to a page that nobody sees", got, size)
	}
	if n := eval[int](tb, `document.querySelectorAll('.rows tr[data-state]').length`); n != 1 {
		t.Errorf("%d rows were drawn meanwhile", n)
	}
	tb.window("normal")
	tb.until("all are there", `document.querySelector('.jobs .note').innerText === '10 002 jobs'`)
	tb.until("with their rows", `document.querySelectorAll('.rows tr[data-state]').length > 20`)
}
