package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pushrelay/cmd/pushrelay/internal/app"
	"pushrelay/session/site"
	"pushrelay/wire"
)

func TestTexts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "text")
	contents := "\n one \n\xff\n" + strings.Repeat("x", maxTextBytes+1) + "\n" + strings.Repeat("more\n", 2*maxTexts)
	if err := os.WriteFile(file, []byte(contents), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := (&Command{File: file}).texts()
	if err != nil || len(got) != maxTexts || got[0] != "one" || got[1] != "\uFFFD" || got[2] != "more" {
		t.Errorf("%d texts, %v", len(got), err)
	}
	if err := os.WriteFile(file, []byte("\n \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := (&Command{File: file}).texts(); app.CodeOf(err) != app.ExitUsage {
		t.Error(err)
	}
}

func TestItsRelayKeepsJobsOnDiskWhileItRuns(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	w, err := newWorld(&Command{}, app.Streams{}, []string{"text"})
	if err != nil {
		t.Fatal(err)
	}
	if found, err := filepath.Glob(filepath.Join(temp, "*", "data", "*.db")); err != nil || len(found) != 1 {
		t.Errorf("databases: %v, %v", found, err)
	}
	if err := w.close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("it left %v, %v", left, err)
	}
}

// TestJudgesFindWhatIsMissing spoils one thing of a good story at a time.
func TestJudgesFindWhatIsMissing(t *testing.T) {
	good := func() *story {
		st := &story{job: "text-1", text: "two words", results: []site.Result{{Verified: true, Disposition: wire.DispositionOK}}}
		st.results[0].Outcome.Text = wordCount(st.text)
		for _, what := range []string{enqueued, offered, accepted, sealed, running, done} {
			st.steps = append(st.steps, step{what: what})
		}
		return st
	}
	w := &world{cmd: &Command{}}
	if err := w.judgeText(good()); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*story){
		"no result":        func(s *story) { s.results = nil },
		"two results":      func(s *story) { s.results = append(s.results, s.results[0]) },
		"unverified":       func(s *story) { s.results[0].Verified = false },
		"failed":           func(s *story) { s.results[0].Disposition = wire.DispositionError },
		"another answer":   func(s *story) { s.results[0].Outcome.Text = "0 words" },
		"dropped":          func(s *story) { s.notices = []string{"deadline"} },
		"never accepted":   func(s *story) { s.steps[2].what = "" },
		"never sealed":     func(s *story) { s.steps[3].what = "" },
		"never in a queue": func(s *story) { s.steps[0].what = "" },
	} {
		st := good()
		if spoil(st); w.judgeText(st) == nil {
			t.Errorf("%s: nothing was found", name)
		}
	}
	if judgeDeath(good()) == nil || judgeCancel(good()) == nil {
		t.Error("a plain run passes for a death or a cancel")
	}
}

func TestARefusedJobDoesNotEndTheTrickle(t *testing.T) {
	tr := &trickle{}
	for _, err := range []error{
		nil, &wire.Error{Code: wire.CodeRateLimited}, &wire.Error{Code: wire.CodeServerError}, fmt.Errorf("%w (in time)", site.ErrPending),
	} {
		if got := tr.taken(err); got != nil {
			t.Errorf("%v ends it", err)
		}
	}
	if tr.refused != 3 {
		t.Errorf("%d were counted", tr.refused)
	}
	if tr.taken(site.ErrStopped) == nil {
		t.Error("it goes on without its site")
	}
}

// TestARoundOfTheTrickle goes through its parts faster than they go, with real clients.
func TestARoundOfTheTrickle(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	w, err := newWorld(&Command{}, app.Streams{Out: io.Discard, Err: io.Discard}, []string{"text"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := w.close(); err != nil {
			t.Error(err)
		}
	}()
	if w.program, err = exec.LookPath("true"); err != nil { // in place of this test's own
		t.Fatal(err)
	}
	c := theCast()
	for _, err := range []error{w.joinSite(t.Context(), c.siteOne), w.joinSite(t.Context(), c.siteTwo), w.joinDaemon(t.Context(), c.b1)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	tr := &trickle{w: w, began: began}
	there := map[string][]int{}
	for second := range 60 {
		if err := tr.step(t.Context(), began.Add(time.Duration(second)*time.Second)); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{c.b1, c.siteTwo} {
			if w.ends[id] != nil {
				there[id] = append(there[id], second)
			}
		}
	}
	if a, b := len(there[c.b1]), len(there[c.siteTwo]); a != 48 || b != 52 {
		t.Errorf("the device was there for %d seconds, the site for %d", a, b)
	}
	if tr.n != 80 || tr.refused > 0 || len(w.stories.byJob) > 0 {
		t.Errorf("%d published, %d refused, %d remembered", tr.n, tr.refused, len(w.stories.byJob))
	}
	if err := w.leave(t.Context(), c.siteOne); err != nil {
		t.Fatal(err)
	}
	lost := &end{over: make(chan error, 1), stop: func(context.Context) error { return nil }}
	lost.over <- errors.New("revoked")
	if w.ends[c.siteOne] = lost; tr.step(t.Context(), began) == nil {
		t.Error("a party is gone, and it goes on")
	}
}

func TestAwaitEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := newStories().await(ctx, "nothing", func() bool { return false }); err == nil {
		t.Error("it waited for ever, briefly")
	}
}
