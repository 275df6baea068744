//go:build e2e

package main

import (
	"context"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/page"

	"pushrelay/cmd/pushrelay/internal/setup"
	"pushrelay/session/daemon"
)

// project changes the relay's projection, and waits until it is in force.
func (r *relay) project(change func(doc map[string]any)) {
	r.t.Helper()
	var doc map[string]any
	if err := json.Unmarshal([]byte(readFile(r.t, setup.ProjectionFile(r.dir))), &doc); err != nil {
		r.t.Fatal(err)
	}
	change(doc)
	raw, err := json.Marshal(doc)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(setup.ProjectionFile(r.dir), raw, 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// TestPageTellsWhy brings jobs into everything that may hold them up, and looks for the reason of each on the page.
func TestPageTellsWhy(t *testing.T) {
	t.Parallel()
	r := debugRelay(t)
	b := r.backEnd("site-one", false, nil)
	tb := openBrowser(t).tab()
	tb.open(r, "#site=site-one")
	tb.has("No jobs here now.")

	b.publish(t, "first")
	tb.row("first", "queued", "nobody who may run it is connected")
	tb.has("No device that may run this site’s jobs is connected.")

	busy, finish := make(chan struct{}, 1), make(chan struct{})
	r.worker("runner-a1", func(ctx context.Context, j daemon.Job) (daemon.Answer, error) {
		if j.Grant.JobID == "first" {
			return daemon.Answer{}, daemon.ErrUnavailable
		}
		busy <- struct{}{}
		return daemon.Answer{}, wait(context.WithoutCancel(ctx), finish)
	}, func(c *daemon.Config) { c.Slots = 1 })
	tb.row("first", "queued", "devices: ", "1 refused it", "1 away")
	b.publishKind(t, "other.kind", "strange")
	tb.row("strange", "queued", "1 without this kind")
	b.publish(t, "holds")
	<-busy
	tb.row("holds", "running")
	b.publish(t, "waits")
	tb.row("waits", "queued", "1 busy")
	tb.click(".rows tr[data-state=queued] a")
	tb.until("what to do", `document.querySelector('#history .reasons [data-code=refused-by-all] .todo')?.innerText.includes('logs')`)
	tb.click("#history .close")

	if _, err := b.Cancel(t.Context(), "holds", "waits"); err != nil {
		t.Fatal(err)
	}
	tb.row("waits", "dropped", "its site cancelled it")
	tb.row("holds", "running", "cancel")
	close(finish)

	consents := func(change func(consent map[string]any) bool) func(map[string]any) {
		return func(doc map[string]any) {
			var kept []any
			for _, c := range doc["consents"].([]any) {
				if consent := c.(map[string]any); consent["siteId"] != "site-one" || change(consent) {
					kept = append(kept, c)
				}
			}
			doc["consents"] = kept
		}
	}
	whole := readFile(t, setup.ProjectionFile(r.dir))
	r.project(consents(func(c map[string]any) bool { c["paused"] = true; return true }))
	tb.row("first", "queued", "its owner paused this site")
	r.project(consents(func(map[string]any) bool { return false }))
	tb.row("first", "queued", "no route: its owner has no consent for this site")
	r.project(func(doc map[string]any) {
		doc["revoked"] = []any{map[string]any{"owner": "owner-a", "siteId": "site-one"}}
	})
	tb.row("first", "queued", "no route: its owner revoked this site")
	r.project(func(doc map[string]any) {
		doc["sites"] = []any{}
		doc["consents"], doc["revoked"] = []any{}, []any{}
	})
	tb.row("first", "queued", "no route: the projection has no such site")
	tb.has("The projection doesn’t know this site")
	if err := os.WriteFile(setup.ProjectionFile(r.dir), []byte(whole), 0o600); err != nil {
		t.Fatal(err)
	}
	b.stop()
	tb.row("first", "queued", "no session of the site is open")
	tb.has("No session of the site is open: nothing of it is handed out.")
}

// A viewer's clock may be wrong by hours: ages and count-downs are the relay's.
func TestPageByTheRelaysClock(t *testing.T) {
	t.Parallel()
	r := debugRelay(t)
	r.backEnd("site-one", false, nil).publish(t, "j") // with a deadline in an hour
	br := openBrowser(t)
	for _, wrong := range []string{"5 * 3600e3", "-30 * 3600e3"} {
		tb := br.tab()
		command(tb, page.Enable, page.EnableParams{})
		command(tb, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: strings.ReplaceAll(`{
			const right = Date;
			window.Date = class extends right {
				constructor(...a) { a.length ? super(...a) : super(right.now() + WRONG); }
				static now() { return right.now() + WRONG; }
			};
		}`, "WRONG", "("+wrong+")")})
		tb.open(r, "#site=site-one")
		tb.row("j", "queued")
		got := eval[[]string](tb, `['since', 'deadline'].map((c) => document.querySelector('.rows tr[data-state] .' + c).innerText)`)
		// Minutes may have passed since it was published, but not hours.
		if !regexp.MustCompile(`^(\d+ s|\d:\d\d)$`).MatchString(got[0]) || !regexp.MustCompile(`^(5\d:\d\d|1 h 00)$`).MatchString(got[1]) {
			t.Errorf("with a clock wrong by %s it is %q in its state, and %q are left", wrong, got[0], got[1])
		}
		tb.click(".rows .job a")
		tb.until("its history too", `/\((5\d min|1 h)/.test(document.querySelector('#history .facts')?.innerText)`)
	}
}
