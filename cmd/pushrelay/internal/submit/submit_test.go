package submit

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"pushrelay/cmd/pushrelay/internal/app"
	"pushrelay/session/site"
	"pushrelay/wire/seal"
)

func TestDeadlineText(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"10m": now.Add(10 * time.Minute), "1h30m": now.Add(90 * time.Minute),
		"2030-01-31T12:00:00Z": time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC),
	} {
		var d, again Deadline
		if err := d.UnmarshalText([]byte(text)); err != nil || !d.from(now).Equal(want) {
			t.Errorf("%s: %v, %v", text, d.from(now), err)
		}
		if err := again.UnmarshalText([]byte(d.String())); err != nil || again != d {
			t.Errorf("%s doesn't survive its text: %v, %v", text, again, err)
		}
	}
	if err := (Deadline{after: time.Second}).check(); err != nil {
		t.Error(err)
	}
	for _, text := range []string{"", "tomorrow", "10", "2030-01-31"} {
		if err := new(Deadline).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}

func TestLines(t *testing.T) {
	lines, failed := readLines(t.Context(), strings.NewReader("one\r\n\n \t\ntwo\nthree"))
	var got []line
	for more := true; more; {
		var batch []line
		batch, more = gather(t.Context(), lines, 2)
		if len(batch) > 2 {
			t.Errorf("%d lines at once", len(batch))
		}
		got = append(got, batch...)
	}
	want := []line{{1, "one"}, {4, "two"}, {5, "three"}}
	if len(got) != len(want) || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
		t.Errorf("%v", got)
	}
	select {
	case err := <-failed:
		t.Error(err)
	default:
	}
}

func TestLinesThatCannotBeRead(t *testing.T) {
	broken := errors.New("broken")
	for name, in := range map[string]io.Reader{
		"too long": strings.NewReader("ok\n" + strings.Repeat("x", maxLineBytes+1)),
		"broken":   io.MultiReader(strings.NewReader("ok\n"), &failing{broken}),
	} {
		lines, failed := readLines(t.Context(), in)
		n := 0
		for range lines {
			n++
		}
		if err := <-failed; n != 1 || err == nil || name == "too long" && !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%s: %d lines, %v", name, n, err)
		}
	}
}

type failing struct{ err error }

func (f *failing) Read([]byte) (int, error) { return 0, f.err }

func TestGatherEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if batch, more := gather(ctx, make(chan line), 5); len(batch) != 0 || more {
		t.Errorf("%v, %v", batch, more)
	}
}

func TestPrintedText(t *testing.T) {
	cases := map[string]ending{
		"j-1 ok: one\n    two\n":             {id: "j-1", ok: true, state: "ok", text: "one\ntwo\n"},
		"j-2 error: failed: it broke\n":      {id: "j-2", state: "error", code: "failed", message: "it broke"},
		"j-6 canceled\n":                     {id: "j-6", state: "canceled"},
		"j-7 done: had before\n":             {id: "j-7", ok: true, state: stateDone, message: "had before"},
		"j-3 dropped: deadline\n":            {id: "j-3", state: "dropped", code: "deadline"},
		"j-4 ok: \n":                         {id: "j-4", ok: true, state: "ok"},
		"j-5 ok: \uFFFD[2J\uFFFD0;t\uFFFD\n": {id: "j-5", ok: true, state: "ok", text: "\x1b[2J\x9d0;t\a"},
	}
	for want, e := range cases {
		p := newPrinter(new(bytes.Buffer), false, newProgress(io.Discard, true))
		p.terminal = true
		if got := p.plain(e); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestPrintedJSON(t *testing.T) {
	var out bytes.Buffer
	p := newPrinter(&out, true, newProgress(io.Discard, true))
	p.print(ending{id: "j-1", line: 3, ok: true, state: "ok", text: "<b> & \n", runner: "r", owner: "o", took: 1500 * time.Millisecond})
	p.print(ending{id: "j-2", line: 4, state: "dropped", code: "deadline"})
	p.print(ending{id: "j-3", line: 5, ok: true, state: stateDone, message: "had before"})
	want := `{"id":"j-1","line":3,"ok":true,"state":"ok","text":"<b> & \n","runner":"r","runnerOwner":"o","tookMs":1500}
{"id":"j-2","line":4,"ok":false,"state":"dropped","code":"deadline","tookMs":0}
{"id":"j-3","line":5,"ok":true,"state":"done","message":"had before","tookMs":0}
`
	if out.String() != want || p.failure() != nil {
		t.Errorf("%s\n%v", out.String(), p.failure())
	}
}

func TestPrintTellsOfABrokenOutput(t *testing.T) {
	p := newPrinter(brokenPipe{}, true, newProgress(io.Discard, true))
	p.print(ending{id: "j-1"})
	if p.failure() == nil {
		t.Error("nobody is told that results went nowhere")
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestBar(t *testing.T) {
	for want, got := range map[string]string{
		"[############------------] 2 of 4":           barText(2, 0, 2, true),
		"[########################] 4 of 4, 1 failed": barText(3, 1, 0, true),
		"2 of 5+": barText(2, 0, 3, false),
		"0 of 0":  barText(0, 0, 0, true),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestNoBarWithoutATerminal(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(&out, true)
	p.draw(1, 0, 1, true)
	p.clear()
	if out.Len() > 0 {
		t.Errorf("%q", out.String())
	}
}

// TestInputIsReadWithoutARelay: lines come in as they are typed, and no relay answers the first of them.
func TestInputIsReadWithoutARelay(t *testing.T) {
	key, err := seal.Generate(nil)
	if err != nil {
		t.Fatal(err)
	}
	var out, log bytes.Buffer
	c := &Command{File: "x", JSON: true, Kind: "llm.generate", Owner: "o", Audience: "private", IDPrefix: "j-", LogSettings: app.LogSettings{LogFormat: "json"}}
	c.Deadline = Deadline{after: time.Minute}
	r := newRun(c, app.Streams{Err: &log, Out: &out})
	if r.site, err = site.New(site.Config{URL: "http://127.0.0.1:1", SiteID: "s", Keys: key, Log: zerolog.Nop(), OnResult: r.result}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	const lines = 3 * batchSize
	if err := r.publish(ctx, strings.NewReader(strings.Repeat("text\n", lines))); err != nil || ctx.Err() != nil {
		t.Fatal(err, ctx.Err())
	}
	if r.left() != lines {
		t.Errorf("%d jobs are open", r.left())
	}
	r.giveUp(time.Now().Add(time.Minute + 2*overdue))
	if got := strings.Count(out.String(), "unanswered"); !r.finished() || got != 2*lines { // state and code of each
		t.Errorf("%d answers, %d jobs left", got, r.left())
	}
	cancel()
	r.answers.Wait()
}

func TestHintWhenNoDeviceTakesAJob(t *testing.T) {
	for name, c := range map[string]struct {
		events []site.EventType
		after  time.Duration
		want   int
	}{
		"not queued yet": {nil, time.Minute, 0},
		"too early":      {[]site.EventType{site.EventEnqueued}, untaken / 2, 0},
		"nobody":         {[]site.EventType{site.EventEnqueued}, untaken * 2, 1},
		"taken":          {[]site.EventType{site.EventEnqueued, site.EventAsked, site.EventEnqueued}, untaken * 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			r := newRun(&Command{File: "x", LogSettings: app.LogSettings{LogFormat: "json", LogLevel: "warn"}}, app.Streams{Err: &log, Out: io.Discard})
			for _, e := range c.events {
				r.event(site.Event{Type: e})
			}
			r.hint(time.Now().Add(c.after))
			r.hint(time.Now().Add(c.after))
			if got := strings.Count(log.String(), "no device takes a job"); got != c.want {
				t.Errorf("said %d times, want %d: %s", got, c.want, log.String())
			}
		})
	}
}

func TestJobsOfOthersAreSaidOnce(t *testing.T) {
	var log bytes.Buffer
	r := newRun(&Command{File: "x", LogSettings: app.LogSettings{LogFormat: "json", LogLevel: "warn"}}, app.Streams{Err: &log, Out: io.Discard})
	for range 3 {
		if err := r.notice(t.Context(), site.Notice{JobID: "other-1", Why: "deadline"}); !errors.Is(err, site.ErrElsewhere) {
			t.Fatal(err)
		}
	}
	if got := strings.Count(log.String(), "another submission"); got != 1 {
		t.Errorf("said %d times: %s", got, log.String())
	}
}
