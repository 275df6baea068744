package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"pushrelay/cmd/pushrelay/internal/app"
)

// showWithin is show, within the time that it may take.
func (w *world) showWithin(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, within, errors.New("it took too long"))
	defer cancel()
	return w.show(ctx)
}

// show plays all scenes and prints what happened.
func (w *world) show(ctx context.Context) error {
	w.printf("A relay at %s, which keeps its jobs on disk, %d sites, %d devices of %d owners. A device that is silent for %v\n"+
		"loses its jobs here.\n"+
		"Times are milliseconds since the site published the job, each as its party heard of it: a reply may come after a push\n"+
		"that it set off. \"sealed\" is when the site encrypted the payload to the device that took the job.\n"+
		"What the relay's operator sees while this runs: %s with the token %s\n",
		w.relay.URL(), 2, 3, 2, lease, w.relay.DebugURL(), w.token)
	c := theCast()
	for _, err := range []error{
		w.joinSite(ctx, c.siteOne), w.joinSite(ctx, c.siteTwo), w.joinDaemon(ctx, c.a1), w.joinDaemon(ctx, c.b1),
	} {
		if err != nil {
			return err
		}
	}
	var outcomes []outcome
	for i, s := range w.scenes() {
		w.printf("\n%d. %s\n\n", i+1, s.title)
		o := w.play(ctx, s)
		outcomes = append(outcomes, o)
		if o.err != nil {
			w.printf("   missing: %v\n", o.err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return w.summary(outcomes)
}

// play shows one scene and judges its jobs.
func (w *world) play(ctx context.Context, s scene) outcome {
	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, sceneWithin, errors.New("it took too long"))
	defer cancel()
	jobs, err := s.play(ctx)
	o := outcome{title: s.title, jobs: len(jobs), took: time.Since(began), err: err}
	w.stories.mu.Lock()
	defer w.stories.mu.Unlock()
	if len(jobs) > slots {
		w.table(jobs)
	} else {
		for _, st := range jobs {
			w.story(st)
		}
	}
	for _, st := range jobs {
		missing := s.judge(st)
		if missing == nil {
			o.good++
		} else if o.err == nil {
			o.err = missing
		}
	}
	return o
}

// table shows jobs that went straight through, a line each.
func (w *world) table(jobs []*story) {
	t := tabwriter.NewWriter(w.out.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "   job\tfrom\tfor\t%s\t%s\t%s\t%s\t%s\t%s\tby\tanswer\n", enqueued, offered, accepted, sealed, running, done)
	for _, st := range jobs {
		fmt.Fprintf(t, "   %s\t%s\t%s", st.job, st.site, st.owner)
		for _, what := range []string{enqueued, offered, accepted, sealed, running, done} {
			at := "-"
			if s, ok := st.first(what); ok {
				at = st.millis(s)
			}
			fmt.Fprintf(t, "\t%s", at)
		}
		by, answer := "-", "-"
		if len(st.results) > 0 {
			by, answer = st.results[0].RunnerID, st.results[0].Outcome.Text
		}
		fmt.Fprintf(t, "\t%s\t%s\n", by, short(answer))
	}
	_ = t.Flush() // as all output here: a reader that went away ends the process by itself
}

// story shows one job, a line for each step.
func (w *world) story(st *story) {
	w.printf("   %s, from %s for %s\n", st.job, st.site, st.owner)
	for _, s := range st.steps {
		w.printf("   %10s  %-13s %s\n", st.millis(s), s.what, strings.TrimSpace(s.who+" "+s.note))
	}
	if len(st.results) > 0 && st.results[0].Outcome.Text != "" {
		w.printf("   %10s  %s\n", "", short(st.results[0].Outcome.Text))
	}
}

// millis is when a step was, in milliseconds since the job was published.
func (st *story) millis(s step) string {
	begin, ok := st.first(published)
	if !ok {
		return "?"
	}
	return fmt.Sprintf("%.1f", float64(s.at.Sub(begin.at).Microseconds())/1000)
}

func short(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > 48 {
		return string(r[:47]) + "…"
	}
	return s
}

// summary prints how all went; an error when anything is missing.
func (w *world) summary(outcomes []outcome) error {
	w.printf("\nSummary\n\n")
	t := tabwriter.NewWriter(w.out.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "   scene\tjobs\tas planned\ttook\n")
	missing := len(w.scenes()) - len(outcomes)
	for _, o := range outcomes {
		verdict := "ok"
		if o.err != nil {
			verdict = "MISSING"
			missing++
		}
		fmt.Fprintf(t, "   %s\t%d\t%d\t%v\t%s\n", o.title, o.jobs, o.good, o.took.Round(time.Millisecond), verdict)
	}
	_ = t.Flush()
	if missing > 0 {
		return app.Exitf(app.ExitFailed, "%d of %d scenes didn't go as planned", missing, len(w.scenes()))
	}
	w.printf("\nAll went as planned: each job ended exactly once, and the relay saw ids and ciphertext only.\n" +
		"To run the parts yourself: `pushrelay init DIR` makes keys and prints the commands.\n")
	return nil
}

func (w *world) printf(format string, args ...any) { fmt.Fprintf(w.out.Out, format, args...) }
