//go:build e2e

package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"pushrelay/cmd/pushrelay/internal/setup"
	"pushrelay/session/daemon"
	"pushrelay/session/site"
	"pushrelay/wire"
	"pushrelay/wire/seal"
)

// pageToken is what operators of these tests enter.
const pageToken = "correct-horse-battery-staple"

// debugRelay is a relay with the debug page.
func debugRelay(t *testing.T, args ...string) *relay {
	t.Helper()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(pageToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return serveRelay(t, append([]string{"--debug", "--debug-token-file", token}, args...)...)
}

// open loads the page and logs in.
func (tb *tab) open(r *relay, hash string) {
	tb.t.Helper()
	tb.provoke("the server responded with a status of 401") // the page asks whether it is logged in
	tb.do(chromedp.Navigate(r.admin + "/debug/" + hash))
	tb.until("the form or the page", `document.body.dataset.view`)
	if eval[string](tb, `document.body.dataset.view`) == "login" {
		tb.login(pageToken)
	}
	tb.until("it is live", `document.querySelector('#status').dataset.kind === 'live'`)
}

func (tb *tab) login(token string) {
	tb.t.Helper()
	tb.do(chromedp.SetValue(chromedp.ID("token"), token), chromedp.Click(chromedp.CSS("#login button")))
}

// has waits until the text is on the page.
func (tb *tab) has(text string) {
	tb.t.Helper()
	tb.until("the text "+text, fmt.Sprintf(`document.body.innerText.includes(%q)`, text))
}

// row waits until a job's row is in a state and has the texts.
func (tb *tab) row(job, state string, texts ...string) {
	tb.t.Helper()
	ok := fmt.Sprintf(`[...document.querySelectorAll('.rows tr[data-state=%q]')].some((r) => r.querySelector('.job').innerText === %q`, state, job)
	for _, text := range texts {
		ok += fmt.Sprintf(` && r.innerText.includes(%q)`, text)
	}
	tb.until(fmt.Sprint("the row of ", job, " in ", state, texts), ok+")")
}

func (tb *tab) click(css string) {
	tb.t.Helper()
	tb.do(chromedp.Click(chromedp.CSS(css)))
}

// fill types a text over what a field has.
func (tb *tab) fill(css, text string) {
	tb.t.Helper()
	tb.click(css)
	eval[any](tb, fmt.Sprintf(`document.querySelector(%q).select()`, css))
	if text == "" {
		tb.press(kb.Delete)
		return
	}
	tb.press(text)
}

func (tb *tab) press(keys string) {
	tb.t.Helper()
	tb.do(chromedp.KeyEvent(keys))
}

// back is a site's process within this one. Its payloads and results wait for the test.
type back struct {
	*site.Site
	load, collect chan struct{}
	stop          func() // returns when it has
}

// backEnd connects a site of the example, until the test ends. With gates, each payload and each result waits for a value.
func (r *relay) backEnd(id string, gates bool, change func(*site.Config)) *back {
	r.t.Helper()
	b := &back{load: make(chan struct{}), collect: make(chan struct{})}
	if !gates {
		close(b.load)
		close(b.collect)
	}
	connected := make(chan struct{}, 64)
	cfg := site.Config{
		URL: r.url, SiteID: id, Keys: r.keys[id],
		OnResult: func(ctx context.Context, _ site.Result) error { return wait(ctx, b.collect) },
		OnEvent: func(e site.Event) {
			if e.Type == site.EventConnected {
				connected <- struct{}{}
			}
		},
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	if b.Site, err = site.New(cfg); err != nil {
		r.t.Fatal(err)
	}
	b.stop = r.runs(b.Run)
	<-connected
	return b
}

func wait(ctx context.Context, gate <-chan struct{}) error {
	select {
	case <-gate:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// runs runs a client until the test ends, or until what is answered is called.
func (r *relay) runs(f func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = f(ctx) // its relay may go away first
	}()
	stop = func() {
		cancel()
		<-ended
	}
	r.t.Cleanup(stop)
	return stop
}

// publish enqueues jobs of owner-a.
func (b *back) publish(t *testing.T, ids ...string) {
	t.Helper()
	b.publishKind(t, site.KindGenerate, ids...)
}

func (b *back) publishKind(t *testing.T, kind string, ids ...string) {
	t.Helper()
	payload, err := seal.GeneratePayload{Prompt: "text"}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	var jobs []site.Job
	for _, id := range ids {
		jobs = append(jobs, site.Job{
			ID: id, Kind: kind, Owner: "owner-a", Deadline: time.Now().Add(time.Hour),
			Load: func(ctx context.Context) ([]byte, error) { return payload, wait(ctx, b.load) },
		})
	}
	for _, a := range b.Submit(t.Context(), jobs...) {
		if a.Err != nil {
			t.Fatal(a.Err)
		}
	}
}

// runnerFunc runs jobs of a daemon of this process.
type runnerFunc func(ctx context.Context, job daemon.Job) (daemon.Answer, error)

func (f runnerFunc) Run(ctx context.Context, job daemon.Job) (daemon.Answer, error) {
	return f(ctx, job)
}

// worker connects a daemon of the example, until the test ends.
func (r *relay) worker(id string, run runnerFunc, change func(*daemon.Config)) {
	r.t.Helper()
	cfg := daemon.Config{
		URL: r.url, RunnerID: id, Keys: r.keys[id], StateDir: setup.StateDir(r.dir, id), Run: run,
		Capabilities: []wire.Capability{{
			Kind: site.KindGenerate, BackendID: "test", BackendClass: "process", Service: "test", Model: "test", OfferScope: "private",
		}},
	}
	if change != nil {
		change(&cfg)
	}
	d, err := daemon.New(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	r.runs(d.Run)
}

// stop halts a process until SIGCONT.
func (p *process) stop() {
	p.t.Helper()
	p.signal(syscall.SIGSTOP)
	until(p.t, "it stands still", func() bool {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
		return err == nil && strings.Contains(string(status), "State:\tT")
	})
}

// freePort answers an address that nobody listens on just now, for a relay that is started again at the same place.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// TestPageShowsALife takes one job of real clients through every state, and looks for each on the page.
func TestPageShowsALife(t *testing.T) {
	t.Parallel()
	r := debugRelay(t)
	b := r.backEnd("site-one", true, func(c *site.Config) { c.Name = "shop-backend" })
	deaf := r.daemon("runner-a1", "--exec", "cat")
	tb := openBrowser(t).tab()
	tb.open(r, "")
	tb.has("site-one")
	tb.click("#sites tbody a")
	tb.has("shop-backend")
	tb.has("1 of 3 connected")

	deaf.stop() // it can't answer what it is offered
	b.publish(t, "life-1")
	tb.row("life-1", "offered", r.keys["runner-a1"].KeyID()[:16])
	tb.row("life-1", "queued", "1 not answering")
	deaf.signal(syscall.SIGKILL)
	tb.row("life-1", "queued", "nobody who may run it is connected")
	tb.click(".rows .job a")
	tb.has("Start the daemon on a device of its owner")

	// A daemon that polls holds it where one that is pushed to would rush through.
	p := r.poller("runner-a2")
	g := p.claim()
	tb.row("life-1", "awaiting")
	b.load <- struct{}{}
	tb.row("life-1", "ready", r.keys["runner-a2"].KeyID()[:16])
	p.fetch(g)
	tb.row("life-1", "running")
	p.release(g)
	tb.row("life-1", "queued")

	go func() { b.load <- struct{}{} }()
	finish := make(chan struct{})
	r.worker("runner-a1", func(ctx context.Context, _ daemon.Job) (daemon.Answer, error) {
		return daemon.Answer{Text: "done"}, wait(ctx, finish)
	}, nil)
	tb.row("life-1", "running", r.keys["runner-a1"].KeyID()[:16])
	tb.until("its lease counts down", `/^\d+ s$/.test(document.querySelector('.rows [data-state=running] .lease').innerText)`)
	close(finish)
	tb.row("life-1", "done", "ok")
	b.collect <- struct{}{}
	tb.row("life-1", "collected")
	tb.until("its row fades", `document.querySelector('.rows tr[data-state=collected][data-fading]')`)
	tb.has("1 new, 1 done, 0 failed")
	tb.until("the charts have lines", `[...document.querySelectorAll('.chart')].slice(0, 2).every((c) => c.querySelector('.line').getAttribute('d'))`)
	tb.until("latencies", `/p50 [\d.]+ (ms|s|min)/.test(document.querySelector('.charts').innerText)`)

	tb.has("the site has its result")
	steps := eval[[]string](tb, `[...document.querySelectorAll('#history tbody th')].map((n) => n.innerText)`)
	if got, want := strings.Join(steps, " "), "queued offered grant ended queued again offered accepted sealed running grant ended queued again "+
		"offered accepted sealed running done collected"; got != want {
		t.Errorf("its steps are %q", got)
	}
	tb.has("the device did not answer in time")
	tb.press(kb.Escape)
	tb.until("its history closes", `document.querySelector('#history').hidden`)
	tb.until("its row goes", `!document.querySelector('.rows').innerText.includes('life-1')`)
	for _, id := range []string{"queued", "awaiting", "running"} {
		tb.until("no job is "+id, fmt.Sprintf(`document.querySelector('[data-chip=%s] b').innerText === '0'`, id))
	}
}
