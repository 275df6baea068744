package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"pushrelay/cmd/pushrelay/internal/setup"
	"pushrelay/session/site"
	"pushrelay/wire"
	"pushrelay/wire/seal"
)

// deadline of each job; the whole demonstration ends long before.
const deadline = 5 * time.Minute

// scene is one thing that is shown. It answers its jobs; what went wrong with one is found out by judge.
type scene struct {
	title string
	play  func(ctx context.Context) ([]*story, error)
	judge func(*story) error
}

// outcome is how a scene went.
type outcome struct {
	title string
	jobs  int
	good  int
	took  time.Duration
	err   error // the first thing that is missing
}

// cast names who plays: two devices of owner-a, one of owner-b, two sites.
type cast struct{ siteOne, siteTwo, a1, a2, b1, ownerA, ownerB string }

func theCast() cast {
	d, s := setup.Devices(), setup.Sites()
	return cast{s[0], s[1], d[0].Runner, d[1].Runner, d[2].Runner, d[0].Owner, d[2].Owner}
}

func (w *world) scenes() []scene {
	return []scene{
		{"text through a command", w.playText, w.judgeText},
		{"a cancel reaches a running daemon", w.playCancel, judgeCancel},
		{"a daemon dies, another one finishes", w.playDeath, judgeDeath},
		{"results wait for a site that was away", w.playAway, judgeAway},
	}
}

// publish has a site publish a job and waits until the relay has it.
func (w *world) publish(ctx context.Context, st *story, kind string) error {
	payload, err := seal.GeneratePayload{Prompt: st.text}.Encode()
	if kind != site.KindGenerate {
		payload, err = []byte(st.text), nil
	}
	if err != nil {
		return err
	}
	w.stories.begin(st)
	w.stories.note(st.job, published, st.site, "", time.Now())
	answer := w.ends[st.site].site.Submit(ctx, site.Job{
		ID: st.job, Kind: kind, Owner: st.owner, Deadline: time.Now().Add(deadline), Payload: payload,
	})
	return answer[0].Err
}

// all waits until each of these jobs took a step.
func (w *world) all(ctx context.Context, jobs []*story, what, who string) error {
	return w.stories.await(ctx, fmt.Sprintf("%d jobs to be %s", len(jobs), what), func() bool {
		for _, st := range jobs {
			if !st.has(what, who) {
				return false
			}
		}
		return true
	})
}

// playText publishes the lines in turns: both sites, both owners.
func (w *world) playText(ctx context.Context) ([]*story, error) {
	c := theCast()
	var jobs []*story
	for i, text := range w.texts {
		st := &story{job: fmt.Sprintf("text-%d", i+1), site: c.siteOne, owner: c.ownerA, text: text}
		if i%2 == 1 {
			st.site = c.siteTwo
		}
		if i%4 >= 2 {
			st.owner = c.ownerB
		}
		jobs = append(jobs, st)
	}
	failed := make(chan error, len(jobs))
	for _, st := range jobs {
		go func() { failed <- w.publish(ctx, st, site.KindGenerate) }()
	}
	var errs []error
	for range jobs {
		errs = append(errs, <-failed)
	}
	if err := errors.Join(errs...); err != nil {
		return jobs, err
	}
	return jobs, w.all(ctx, jobs, done, "")
}

func (w *world) judgeText(st *story) error {
	if err := finished(st, wire.DispositionOK); err != nil {
		return err
	}
	for _, what := range []string{enqueued, offered, accepted, sealed, running} {
		if !st.has(what, "") {
			return fmt.Errorf("%s was never %s", st.job, what)
		}
	}
	if got := st.results[0].Outcome.Text; w.cmd.Exec == "" && got != wordCount(st.text) {
		return fmt.Errorf("%s has the answer %q", st.job, got)
	}
	return nil
}

// playCancel cancels a job that waits in the middle of its run; its gate never opens.
func (w *world) playCancel(ctx context.Context) ([]*story, error) {
	c := theCast()
	jobs := []*story{{job: "cancel-1", site: c.siteOne, owner: c.ownerB, text: w.texts[0]}}
	if err := w.publish(ctx, jobs[0], kindGate); err != nil {
		return jobs, err
	}
	if err := w.all(ctx, jobs, running, c.b1); err != nil {
		return jobs, err
	}
	w.stories.note(jobs[0].job, cancelled, c.siteOne, "", time.Now())
	if _, err := w.ends[c.siteOne].site.Cancel(ctx, jobs[0].job); err != nil {
		return jobs, err
	}
	return jobs, w.all(ctx, jobs, done, "")
}

func judgeCancel(st *story) error {
	if !st.has(stopped, theCast().b1) {
		return fmt.Errorf("%s: the daemon wasn't told", st.job)
	}
	return finished(st, wire.DispositionCanceled)
}

// playDeath kills a daemon's process in the middle of a job. Its other device is away until then, so that it is clear who
// gets the job first.
func (w *world) playDeath(ctx context.Context) ([]*story, error) {
	c := theCast()
	jobs := []*story{{job: "death-1", site: c.siteOne, owner: c.ownerA, text: w.texts[len(w.texts)-1]}}
	if err := w.leave(ctx, c.a1); err != nil {
		return jobs, err
	}
	if err := w.joinChild(ctx, c.a2); err != nil {
		return jobs, err
	}
	if err := w.publish(ctx, jobs[0], kindGate); err != nil {
		return jobs, err
	}
	if err := w.all(ctx, jobs, running, c.a2); err != nil {
		return jobs, err
	}
	if err := w.kill(c.a2); err != nil {
		return jobs, err
	}
	w.stories.note(jobs[0].job, killed, c.a2, "kill -9", time.Now())
	if err := w.openGate(c.a1); err != nil {
		return jobs, err
	}
	if err := w.joinDaemon(ctx, c.a1); err != nil {
		return jobs, err
	}
	return jobs, w.all(ctx, jobs, done, "")
}

func judgeDeath(st *story) error {
	c := theCast()
	if err := finished(st, wire.DispositionOK); err != nil {
		return err
	}
	if by := st.results[0].RunnerID; !st.has(running, c.a2) || by != c.a1 {
		return fmt.Errorf("%s was finished by %s", st.job, by)
	}
	return nil
}

// playAway lets a site go while its jobs run, and come back when they are finished.
func (w *world) playAway(ctx context.Context) ([]*story, error) {
	c := theCast()
	var jobs []*story
	for i := range slots {
		st := &story{job: fmt.Sprintf("away-%d", i+1), site: c.siteTwo, owner: c.ownerB, text: w.texts[i%len(w.texts)]}
		jobs = append(jobs, st)
		if err := w.publish(ctx, st, kindGate); err != nil {
			return jobs, err
		}
	}
	if err := w.all(ctx, jobs, running, c.b1); err != nil {
		return jobs, err
	}
	if err := w.leave(ctx, c.siteTwo); err != nil {
		return jobs, err
	}
	w.mark(jobs, away, c.siteTwo)
	if err := w.openGate(c.b1); err != nil {
		return jobs, err
	}
	if err := w.all(ctx, jobs, reported, c.b1); err != nil {
		return jobs, err
	}
	w.mark(jobs, back, c.siteTwo)
	if err := w.joinSite(ctx, c.siteTwo); err != nil {
		return jobs, err
	}
	return jobs, w.all(ctx, jobs, done, "")
}

func (w *world) mark(jobs []*story, what, who string) {
	now := time.Now()
	for _, st := range jobs {
		w.stories.note(st.job, what, who, "", now)
	}
}

func judgeAway(st *story) error {
	if err := finished(st, wire.DispositionOK); err != nil {
		return err
	}
	gone, _ := st.first(away)
	ran, _ := st.first(reported)
	if returned, _ := st.first(back); ran.at.Before(gone.at) || returned.at.Before(ran.at) {
		return fmt.Errorf("%s wasn't finished while its site was away", st.job)
	}
	return nil
}

// finished wants exactly one result, verified, with that disposition.
func finished(st *story, disposition string) error {
	switch {
	case len(st.notices) > 0:
		return fmt.Errorf("%s was dropped: %s", st.job, st.notices[0])
	case len(st.results) != 1:
		return fmt.Errorf("%s has %d results", st.job, len(st.results))
	case !st.results[0].Verified:
		return fmt.Errorf("%s has a result that doesn't verify: %w", st.job, st.results[0].Err)
	case st.results[0].Disposition != disposition:
		o := st.results[0].Outcome
		return fmt.Errorf("%s", strings.TrimRight(fmt.Sprintf("%s ended as %s: %s %s", st.job, st.results[0].Disposition, o.Code, o.Message), ": "))
	}
	return nil
}
