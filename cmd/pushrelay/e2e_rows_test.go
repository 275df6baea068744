//go:build e2e

package main

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp/kb"
)

// TestPageWithFiftyThousandRows scrolls through a site that has very many jobs.
func TestPageWithFiftyThousandRows(t *testing.T) {
	const jobs = 50_000
	r := debugRelay(t)
	b := r.backEnd("site-one", false, nil)
	ids := make([]string, jobs)
	for i := range ids {
		ids[i] = fmt.Sprintf("job-%05d", i)
	}
	b.publish(t, ids...)
	tb := openBrowser(t).tab()
	tb.open(r, "#site=site-one")
	tb.until("all are read", `document.querySelector('.jobs .note').innerText === '50 000 jobs'`)
	eval[any](tb, `(() => {
		window.longest = 0;
		new PerformanceObserver((l) => l.getEntries().forEach((e) => { window.longest = Math.max(window.longest, e.duration); })).observe({type: 'longtask'});
	})()`)
	seen := func(id string) {
		t.Helper()
		tb.until(id+" is in sight", fmt.Sprintf(`(() => {
			const box = document.querySelector('.rows').getBoundingClientRect();
			return [...document.querySelectorAll('.rows tr[data-state] .job')].some((n) => {
				const at = n.getBoundingClientRect();
				return n.innerText === %q && at.top >= box.top - 1 && at.bottom <= box.bottom + 1;
			});
		})()`, id))
		if n := eval[int](tb, `document.querySelectorAll('.rows tr').length`); n > 250 {
			t.Errorf("%d rows are in the document", n)
		}
	}
	seen("job-00000")
	for _, at := range []int{49_990, 12_345, 25_000, 3, 40_000} {
		eval[any](tb, fmt.Sprintf(`document.querySelector('.rows').scrollTop = %d * 34`, at))
		seen(fmt.Sprintf("job-%05d", at+2))
	}
	eval[any](tb, `document.querySelector('.rows').scrollTop = 1e9`)
	seen("job-49999")
	if got := eval[string](tb, `document.querySelector('.rows tbody tr[data-state]:nth-last-child(2)').getAttribute('aria-rowindex')`); got != "50001" {
		t.Errorf("the last row says that it is row %s, after the head", got)
	}

	// By keyboard: what has the focus stays in the document, and in sight, however far it goes.
	focused := func(job string, index int) {
		t.Helper()
		tb.until(job+" has the focus", fmt.Sprintf(`document.activeElement.closest('tr')?.querySelector('.job').innerText === %q`, job))
		if got := eval[string](tb, `document.activeElement.closest('tr').getAttribute('aria-rowindex')`); got != fmt.Sprint(index+2) {
			t.Errorf("%s says that it is row %s", job, got)
		}
		seen(job)
	}
	eval[any](tb, `document.querySelector('.rows .job a[tabindex="0"]').focus()`)
	tb.press(kb.Home)
	focused("job-00000", 0)
	tb.press(kb.End)
	focused("job-49999", 49_999)
	tb.press(kb.ArrowUp)
	focused("job-49998", 49_998)
	tb.press(kb.Home)
	focused("job-00000", 0)
	for range 40 {
		tb.press(kb.PageDown) // faster than rows come
	}
	tb.until("it is far down", `Number(document.activeElement.closest('tr')?.getAttribute('aria-rowindex')) > 200`)
	tb.press(kb.End)
	focused("job-49999", 49_999)
	if got := eval[string](tb, `document.querySelector('.rows table').getAttribute('aria-rowcount')`); got != "50001" {
		t.Errorf("the table says that it has %s rows", got)
	}

	// One step after the other, as a wheel does.
	eval[any](tb, `(async () => {
		const rows = document.querySelector('.rows');
		rows.scrollTop = 0;
		for (let i = 0; i < 200; i++) {
			rows.scrollTop += 300;
			await new Promise(requestAnimationFrame);
		}
	})()`)
	t.Logf("the longest task of the page took %v ms", eval[float64](tb, `window.longest`))

	tb.fill("#filter", "JOB-43219")
	seen("job-43219")
	tb.has("1 job")
	tb.fill("#filter", "")
	tb.has("50 000 jobs")
	tb.click("#newest")
	seen("job-49999")
	tb.click("[data-chip=running]")
	tb.has("No job passes the filter.")
	tb.click("[data-chip=queued]")
	seen("job-49999")
	tb.click(".rows .job a")
	tb.until("a link to it", `location.hash.includes('job=job-49999')`)
}

// Two viewers see what each asks for; a frozen one stays as it is.
func TestPageForTwo(t *testing.T) {
	t.Parallel()
	r := debugRelay(t)
	b := r.backEnd("site-one", false, nil)
	b.publish(t, "one", "two")
	br := openBrowser(t)
	left, right := br.tab(), br.tab()
	left.open(r, "#site=site-one")
	left.row("one", "queued")
	left.fill("#filter", "tw")
	left.until("it is filtered", `document.querySelector('.jobs .note').innerText === '1 job'`)
	right.open(r, "#site=site-one&job=two")
	right.row("one", "queued")
	right.has("nobody who may run it is connected")
	right.click("#freeze")
	right.has("frozen at")

	b.publish(t, "three")
	left.fill("#filter", "t")
	left.row("three", "queued")
	left.fill("#filter", "three")
	left.until("one of them", `document.querySelector('.jobs .note').innerText === '1 job'`)
	if eval[bool](right, `document.querySelector('.rows').innerText.includes('three')`) {
		t.Error("a frozen page changed")
	}
	right.click("#freeze")
	right.row("three", "queued")
	right.until("live", `document.querySelector('#status').dataset.kind === 'live'`)
	right.until("the others too", `document.querySelector('.jobs .note').innerText === '3 jobs'`)
}
