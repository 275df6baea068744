//go:build e2e

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"pushrelay/cmd/pushrelay/internal/setup"
	"pushrelay/session/daemon"
	"pushrelay/session/site"
	"pushrelay/wire/seal"
)

// TestPageWithHostileNames gives the page everything that a client may choose, each as bad as it may be.
func TestPageWithHostileNames(t *testing.T) {
	t.Parallel()
	r := debugRelay(t)
	const script = `<img src=x onerror="window.pwned=1"><script>window.pwned=1</script>`
	const turned = "user\u202egnp.exe\u2066\u200b\u0007\x1b[31m\u2028end"
	owner := "'\"><svg onload=window.pwned=1> " + turned
	siteID, runner := "site&amp;<b>"+turned, "runner"+script
	var doc map[string]any
	if err := json.Unmarshal([]byte(readFile(t, setup.ProjectionFile(r.dir))), &doc); err != nil {
		t.Fatal(err)
	}
	doc["sites"] = []any{map[string]any{"siteId": siteID, "site": r.keys["site-one"].Public()}}
	doc["devices"] = []any{map[string]any{"owner": owner, "runnerId": runner, "device": r.keys["runner-a1"].Public()}}
	doc["consents"] = []any{map[string]any{"owner": owner, "siteId": siteID}}
	raw, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(setup.ProjectionFile(r.dir), raw, 0o600); err != nil {
		t.Fatal(err)
	}
	r.await(r.err, `"event":"projection"`, `"devices":1`)

	r.keys[siteID], r.keys[runner] = r.keys["site-one"], r.keys["runner-a1"]
	b := r.backEnd(siteID, false, func(c *site.Config) { c.Name, c.Version = "<i>"+turned, `"><script>` })
	started := make(chan struct{}, 1)
	r.worker(runner, func(ctx context.Context, _ daemon.Job) (daemon.Answer, error) {
		started <- struct{}{}
		return daemon.Answer{}, wait(ctx, nil)
	}, func(c *daemon.Config) { c.StateDir, c.Name = t.TempDir(), script[:60] })
	job := "job " + script + turned
	payload, err := seal.GeneratePayload{Prompt: "text"}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	kind := "kind<script>" + turned
	for _, j := range []site.Job{{ID: job, Kind: site.KindGenerate}, {ID: "other", Kind: kind}} {
		j.Owner, j.Deadline, j.Payload = owner, time.Now().Add(time.Hour), payload
		for _, a := range b.Submit(t.Context(), j) {
			if a.Err != nil {
				t.Fatal(a.Err)
			}
		}
	}
	<-started

	tb := openBrowser(t).tab()
	tb.open(r, "")
	tb.until("the site", `document.querySelector('#sites tbody a')`)
	tb.click("#sites tbody a")
	tb.until("both jobs", `document.querySelectorAll('.rows tr[data-state]').length === 2`)
	tb.until("one runs", `document.querySelector('.rows tr[data-state=running]')`)
	tb.until("the other's reason", `document.querySelector('.rows tr[data-state=queued] .why').innerText`)
	tb.until("the device", `document.querySelector('.devices tbody tr[data-where=here]')`)
	tb.click(".rows tr[data-state=running] a")
	tb.until("its history", `document.querySelectorAll('#history tbody tr').length >= 4`)
	if eval[bool](tb, `'pwned' in window`) {
		t.Error("a client's text ran")
	}
	if n := eval[int](tb, `document.querySelectorAll('main img, main script, main b b, main i i, svg[onload], [onerror]').length`); n != 0 {
		t.Errorf("%d elements were made of clients' texts", n)
	}
	text := eval[string](tb, `document.body.textContent + [...document.querySelectorAll('[title],[aria-label]')].map((n) => n.title + n.ariaLabel).join('')`)
	for _, c := range "\u202e\u2066\u200b\u0007\x1b\u2028" {
		if strings.ContainsRune(text, c) {
			t.Errorf("%U is in the document", c)
		}
		if !strings.Contains(text, fmt.Sprintf("U+%04X", c)) {
			t.Errorf("%U isn't shown by its number", c)
		}
	}
	for _, want := range []string{script, "<svg onload", "site&amp;<b>", "kind<script>"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q isn't shown as it is", want)
		}
	}
	want := eval[string](tb, `new URLSearchParams(location.hash.slice(1)).get('job')`)
	if want != job {
		t.Errorf("the link names %q", want)
	}
}

// TestPageLogin enters wrong tokens until no more are taken.
func TestPageLogin(t *testing.T) {
	t.Parallel()
	r, again := debugRelay(t), debugRelay(t) // the second one's tries nobody has used
	tb := openBrowser(t).tab()
	tb.provoke("status of 401", "status of 429", "PerformanceIssue") // the last of asking for cookies
	tb.do(chromedp.Navigate(r.admin + "/debug/"))
	tb.has("Token of this relay")
	if focus := eval[string](tb, `document.activeElement.id`); focus != "token" {
		t.Errorf("the focus is on %q", focus)
	}
	for range 5 {
		tb.login("a-wrong-token-of-this-test")
		tb.has("this isn't the token")
		eval[any](tb, `document.querySelector('#login [role=alert]').textContent = ''`)
	}
	tb.login(pageToken)
	tb.has("Too many wrong tokens")
	if eval[string](tb, `document.cookie`) != "" {
		t.Error("scripts can read a cookie")
	}
	if hidden := eval[bool](tb, `document.querySelector('#sites').hidden`); !hidden {
		t.Error("it is open")
	}
	tb.open(again, "")
	tb.has("site-one")
	if eval[string](tb, `document.cookie`) != "" {
		t.Error("scripts can read the cookie")
	}
	tb.do(chromedp.Reload())
	tb.until("the login stays", `document.body.dataset.view === 'sites'`)
	tb.click("#logout")
	tb.has("Token of this relay")
	tb.do(chromedp.Reload())
	tb.has("Token of this relay")
}

// contrasts answers the texts in sight whose contrast with what is behind them is too low (WCAG 2, level AA).
const contrasts = `(() => {
  const rgb = (s) => { const m = s.match(/[\d.]+/g).map(Number); return {r: m[0], g: m[1], b: m[2], a: m[3] ?? 1}; };
  const light = ({r, g, b}) => [r, g, b].map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (n) => { for (; n; n = n.parentElement) { const c = rgb(getComputedStyle(n).backgroundColor); if (c.a === 1) return c; } return {r: 255, g: 255, b: 255}; };
  const out = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let t; (t = walk.nextNode());) {
    const n = t.parentElement, s = getComputedStyle(n), box = n.getBoundingClientRect();
    if (!t.data.trim() || s.visibility === 'hidden' || !box.width || box.bottom < 0 || box.top > innerHeight) continue;
    if (n.closest('[data-state=collected], .skip, .heard, button:disabled')) continue; // on their way out, or not in sight
    const [a, b] = [light(rgb(s.color)), light(behind(n))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) out.push(t.data.trim().slice(0, 40) + ' ' + ratio.toFixed(2) + ' ' + n.className);
  }
  return out;
})()`

// TestPageForEverybody checks what keyboards, screen readers and weak eyes need.
func TestPageForEverybody(t *testing.T) {
	t.Parallel()
	r := debugRelay(t)
	b := r.backEnd("site-one", false, nil)
	r.worker("runner-a1", func(ctx context.Context, j daemon.Job) (daemon.Answer, error) {
		if strings.HasPrefix(j.Grant.JobID, "bad") {
			return daemon.Answer{}, fmt.Errorf("it failed")
		}
		return daemon.Answer{}, wait(ctx, nil)
	}, nil)
	b.publish(t, "bad-1", "runs", "waits-1", "waits-2")
	tb := openBrowser(t).tab()
	tb.do(chromedp.Navigate(r.admin + "/debug/"))
	tb.provoke("status of 401")
	tb.has("Token of this relay")
	for _, dark := range []bool{false, true} {
		tb.size(1400, 900, false, dark)
		for _, low := range eval[[]string](tb, contrasts) {
			t.Errorf("the login, dark %v: %s", dark, low)
		}
	}
	tb.size(1400, 900, false, false)
	tb.open(r, "#site=site-one&job=waits-1")
	tb.row("runs", "running")
	tb.has("devices: 1 busy")
	tb.until("the history", `document.querySelectorAll('#history tbody tr').length`)
	if focus := eval[string](tb, `document.activeElement.id`); focus != "history-title" {
		t.Errorf("the focus is on %q, not on the job that was opened", focus)
	}
	for _, dark := range []bool{false, true} {
		for _, width := range []int64{1400, 390} {
			tb.size(width, 900, width == 390, dark)
			for _, low := range eval[[]string](tb, contrasts) {
				t.Errorf("%d wide, dark %v: %s", width, dark, low)
			}
		}
	}
	tb.size(1400, 900, false, false)
	tb.named()

	tb.press(kb.Escape)
	tb.until("the history closes", `document.querySelector('#history').hidden`)
	eval[any](tb, `document.querySelector('.rows .job a[tabindex="0"]').focus()`)
	focused := `document.activeElement.closest('tr')?.querySelector('.job').innerText`
	first := eval[string](tb, focused)
	tb.press(kb.ArrowDown)
	tb.until("the next row has the focus", fmt.Sprintf(`%s && %s !== %q`, focused, focused, first))
	tb.press(kb.End)
	tb.until("the last row has", focused+` === 'waits-2'`)
	if n := eval[int](tb, `document.querySelectorAll('.rows [tabindex="0"]').length`); n != 1 {
		t.Errorf("%d rows are reached by the tab key", n)
	}
	tb.press(kb.Enter)
	tb.until("the job is open", `document.querySelector('#history-title').innerText === 'waits-2'`)
	tb.press(kb.Escape)
	tb.until("the focus is back", focused+` === 'waits-2'`)
	eval[any](tb, `document.querySelector('.skip').focus()`)
	tb.press(kb.Enter)
	if id := eval[string](tb, `document.activeElement.id + ' ' + document.body.dataset.view`); id != "main site" {
		t.Errorf("the skip link leads to %q", id)
	}
}

// named checks that everything that can be used has a name, and that tables are tables.
func (tb *tab) named() {
	tb.t.Helper()
	command(tb, accessibility.Enable, cdp.Empty{})
	roles := map[string]int{}
	for _, n := range command(tb, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{}).Nodes {
		if n.Ignored || n.Role == nil {
			continue
		}
		var role, name string
		_ = json.Unmarshal(n.Role.Value, &role)
		if n.Name != nil {
			_ = json.Unmarshal(n.Name.Value, &name)
		}
		roles[role]++
		switch role {
		case "button", "link", "textbox", "searchbox", "checkbox", "table", "image", "img", "heading", "region", "complementary":
			if strings.TrimSpace(name) == "" {
				tb.t.Errorf("a %s has no name", role)
			}
		}
	}
	for _, role := range []string{"table", "row", "columnheader", "rowheader", "cell", "heading", "searchbox", "checkbox", "button", "banner", "main", "complementary", "status"} {
		if roles[role] == 0 {
			tb.t.Errorf("nothing is a %s: %v", role, roles)
		}
	}
	if got := eval[string](tb, `document.querySelector('.rows table').getAttribute('aria-rowcount')`); got == "" {
		tb.t.Error("the table doesn't tell how long it is")
	}
	if lang := eval[string](tb, `document.documentElement.lang`); lang != "en" {
		tb.t.Errorf("the language is %q", lang)
	}
}
