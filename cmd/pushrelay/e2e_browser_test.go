//go:build e2e

package main

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/audits"
	cdpbrowser "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// browser is a Chromium of one test.
type browser struct {
	t   *testing.T
	ctx context.Context
}

// tab is one page, with what went wrong in it.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu     sync.Mutex
	wrong  []string
	expect []string // parts of complaints that a test provokes
}

func openBrowser(t *testing.T) *browser {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		t.Fatal("there is no chromium: install it, or leave out the build tag e2e")
	}
	opts := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir()), chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck,
		chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WindowSize(1400, 900),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true), chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.Flag("hide-scrollbars", true), chromedp.Flag("force-color-profile", "srgb"),
	}
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), opts...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx, chromedp.Navigate("about:blank")); err != nil {
		t.Fatalf("the browser doesn't start: %v", err)
	}
	return &browser{t: t, ctx: ctx}
}

// tab opens a page. When the test ends, nothing may have gone wrong in it: no error on the console, no exception, no
// violation of the content security policy.
func (b *browser) tab() *tab {
	b.t.Helper()
	ctx, cancel := chromedp.NewContext(b.ctx)
	b.t.Cleanup(cancel)
	tb := &tab{t: b.t, ctx: ctx}
	if err := chromedp.Listen(ctx, tb.hear); err != nil {
		b.t.Fatal(err)
	}
	command(tb, audits.Enable, cdp.Empty{})
	command(tb, log.Enable, cdp.Empty{})
	b.t.Cleanup(func() {
		for _, w := range tb.complaints() {
			b.t.Errorf("in the page: %s", w)
		}
	})
	return tb
}

func (tb *tab) hear(event any) {
	text := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		text = "exception: " + e.ExceptionDetails.Text
		if x := e.ExceptionDetails.Exception; x != nil {
			text += " " + x.Description
		}
	case *runtime.EventConsoleAPICalled:
		if !slices.Contains([]string{"error", "warning", "assert"}, string(e.Type)) {
			return
		}
		text = "console:"
		for _, a := range e.Args {
			text += " " + string(a.Value) + a.Description
		}
	case *log.EventEntryAdded:
		if level := string(e.Entry.Level); level != "error" && level != "warning" {
			return
		}
		text = fmt.Sprintf("log of %s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL)
	case *audits.EventIssueAdded:
		text = fmt.Sprintf("issue: %s", e.Issue.Code)
		if d := e.Issue.Details.ContentSecurityPolicyIssueDetails; d != nil {
			text += " " + d.ViolatedDirective + " " + d.BlockedURL
		}
		if d := e.Issue.Details.GenericIssueDetails; d != nil {
			text += " " + string(d.ErrorType)
		}
	default:
		return
	}
	tb.mu.Lock()
	defer tb.mu.Unlock()
	tb.wrong = append(tb.wrong, text)
}

// provoke tells that complaints with this text are what a test wants.
func (tb *tab) provoke(parts ...string) { tb.expect = append(tb.expect, parts...) }

func (tb *tab) complaints() (out []string) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
next:
	for _, w := range tb.wrong {
		for _, e := range tb.expect {
			if strings.Contains(w, e) {
				continue next
			}
		}
		out = append(out, w)
	}
	return out
}

// command runs a command of the protocol.
func command[P, R any](tb *tab, cmd cdp.Command[P, R], params P) R {
	tb.t.Helper()
	ctx, cancel := context.WithTimeout(tb.ctx, patience)
	defer cancel()
	out, err := chromedp.Call(ctx, cmd, params)
	if err != nil {
		tb.t.Fatal(err)
	}
	return out
}

func (tb *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	tb.t.Helper()
	ctx, cancel := context.WithTimeout(tb.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		tb.t.Fatalf("%v\nshown:\n%s\ncomplaints: %q", err, tb.shown(), tb.complaints())
	}
}

// shown is the page's text, for what failed.
func (tb *tab) shown() string {
	ctx, cancel := context.WithTimeout(tb.ctx, 5*time.Second)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](`document.body.innerText`))
	if err != nil {
		return err.Error()
	}
	return text
}

// eval answers what an expression of the page is; of a promise, what it comes to.
func eval[T any](tb *tab, expression string) T {
	tb.t.Helper()
	ctx, cancel := context.WithTimeout(tb.ctx, patience)
	defer cancel()
	out, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		tb.t.Fatalf("%s: %v", expression, err)
	}
	return out
}

// until waits until an expression of the page is true.
func (tb *tab) until(what, expression string) {
	tb.t.Helper()
	ctx, cancel := context.WithTimeout(tb.ctx, patience)
	defer cancel()
	poll := chromedp.Poll[chromedp.Void](expression, chromedp.WithPollingInterval(20*time.Millisecond), chromedp.WithPollingTimeout(0))
	if _, err := chromedp.Run(ctx, poll); err != nil {
		tb.t.Fatalf("not in time: %s: %v\nshown:\n%s\ncomplaints: %q", what, err, tb.shown(), tb.complaints())
	}
}

// size makes the page as large as a screen; dark asks for the dark colours.
func (tb *tab) size(width, height int64, mobile, dark bool) {
	tb.t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	command(tb, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: width, Height: height, DeviceScaleFactor: 1, Mobile: mobile,
	})
	command(tb, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
}

// window minimizes the page's window, or brings it back.
func (tb *tab) window(state cdpbrowser.WindowState) {
	tb.t.Helper()
	w := command(tb, cdpbrowser.GetWindowForTarget, cdpbrowser.GetWindowForTargetParams{})
	command(tb, cdpbrowser.SetWindowBounds, cdpbrowser.SetWindowBoundsParams{WindowID: w.WindowID, Bounds: &cdpbrowser.Bounds{WindowState: state}})
}

// picture answers the page as a PNG.
func (tb *tab) picture() []byte {
	tb.t.Helper()
	ctx, cancel := context.WithTimeout(tb.ctx, patience)
	defer cancel()
	raw, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		tb.t.Fatal(err)
	}
	return raw
}
