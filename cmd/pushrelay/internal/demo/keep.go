package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"pushrelay/session/site"
	"pushrelay/wire"
	"pushrelay/wire/seal"
)

const (
	// kindSlow takes a while for each word; kindMoody fails now and then, or is given back.
	kindSlow  = "demo.slow"
	kindMoody = "demo.moody"

	trickleEvery = 600 * time.Millisecond
	tellEvery    = 5 * time.Second
	keepDeadline = 45 * time.Second
	// callAfter is when a job that is to be cancelled is.
	callAfter = 2 * time.Second
	// hurry is how long a device that goes away finishes what it has; the rest is given back.
	hurry = 500 * time.Millisecond
	// askFor is how long the relay is waited for.
	askFor = 2 * time.Second
)

// trickle keeps jobs coming, in rounds of a minute that each have a busy time, a device that is away, and a site that is.
type trickle struct {
	w       *world
	began   time.Time
	told    time.Time
	n       int
	refused int    // jobs that the relay wouldn't take, or didn't in time
	calls   []call // jobs to be cancelled, the first one first
}

// call is a cancel that is asked for at a time.
type call struct {
	at        time.Time
	site, job string
}

// phase is a part of each round, in seconds of it.
type phase struct{ from, to int }

func (p phase) now(second int) bool { return p.from <= second && second < p.to }

// keep lets jobs trickle until ctx ends, which is how it is meant to end.
func (w *world) keep(ctx context.Context) error {
	c := theCast()
	if err := w.joinDaemon(ctx, c.a2); err != nil {
		return ended(ctx, err)
	}
	w.printf("\nJobs keep coming until Ctrl-C: some are cancelled, some fail, and each minute has a busy time, a device that goes\n"+
		"and a site that goes. Watch them at %s with the token %s\n\n", w.relay.DebugURL(), w.token)
	w.stories.change(func() { clear(w.stories.ended) })
	t := &trickle{w: w, began: time.Now(), told: time.Now()}
	ticker := time.NewTicker(trickleEvery)
	defer ticker.Stop()
	for {
		if err := t.step(ctx, time.Now()); err != nil {
			return ended(ctx, err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// ended is nil for what went wrong because it was to end.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// step does what is due. A job that isn't taken doesn't end it: only a party that is gone for good does.
func (t *trickle) step(ctx context.Context, now time.Time) error {
	c, second := theCast(), int(now.Sub(t.began).Seconds())%60
	deviceAway, busyTime, siteAway := phase{12, 24}, phase{28, 38}, phase{48, 56}
	if err := t.w.alive(); err != nil {
		return err
	}
	err := errors.Join(
		t.be(ctx, c.b1, !deviceAway.now(second), t.w.joinDaemon),
		t.be(ctx, c.siteTwo, !siteAway.now(second), t.w.joinSite),
	)
	if busyTime.now(second) {
		for range 2 {
			err = errors.Join(err, t.publish(ctx, now, kindSlow))
		}
	}
	err = errors.Join(err, t.publish(ctx, now, anyKind()))
	for len(t.calls) > 0 && now.After(t.calls[0].at) {
		t.cancel(ctx, t.calls[0])
		t.calls = t.calls[1:]
	}
	if now.Sub(t.told) >= tellEvery {
		t.told = now
		t.w.printf("   %s  %d published, %s, %d refused\n", now.Format(time.TimeOnly), t.n, t.w.stories.ends(), t.refused)
	}
	return err
}

// alive is why a party ended that nobody asked to.
func (w *world) alive() error {
	for id, e := range w.ends {
		select {
		case err := <-e.over:
			delete(w.ends, id)
			return fmt.Errorf("%s ended: %w", id, err)
		default:
		}
	}
	return nil
}

// be lets a party come or go.
func (t *trickle) be(ctx context.Context, id string, there bool, join func(context.Context, string) error) error {
	_, is := t.w.ends[id]
	switch {
	case there && !is:
		return join(ctx, id)
	case is && !there:
		soon, cancel := context.WithTimeout(ctx, hurry)
		defer cancel()
		return t.w.leave(soon, id)
	}
	return nil
}

func anyKind() string {
	switch rand.IntN(10) {
	case 0:
		return kindMoody
	case 1, 2, 3, 4:
		return kindSlow
	}
	return site.KindGenerate
}

// publish has one of the sites publish a job.
func (t *trickle) publish(ctx context.Context, now time.Time, kind string) error {
	c := theCast()
	name, owner := c.siteOne, c.ownerA
	if rand.IntN(3) == 0 && t.w.ends[c.siteTwo] != nil {
		name = c.siteTwo
	}
	if rand.IntN(3) == 0 {
		owner = c.ownerB
	}
	text := t.w.texts[rand.IntN(len(t.w.texts))]
	payload := []byte(text)
	if kind == site.KindGenerate {
		var err error
		if payload, err = (seal.GeneratePayload{Prompt: text}).Encode(); err != nil {
			return err
		}
	}
	t.n++
	job := fmt.Sprintf("%s-%d", map[string]string{site.KindGenerate: "text", kindSlow: "slow", kindMoody: "moody"}[kind], t.n)
	if kind == kindSlow && rand.IntN(6) == 0 {
		t.calls = append(t.calls, call{now.Add(callAfter), name, job})
	}
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	answer := t.w.ends[name].site.Submit(ctx, site.Job{ID: job, Kind: kind, Owner: owner, Deadline: now.Add(keepDeadline), Payload: payload})
	return t.taken(answer[0].Err)
}

// taken counts what the relay answers to a job: that it is busy, or has too many, is nothing to give up for.
func (t *trickle) taken(err error) error {
	var refusal *wire.Error
	if errors.As(err, &refusal) || errors.Is(err, site.ErrPending) {
		t.refused++
		return nil
	}
	return err
}

// cancel calls a job off; its site may be away by then, and the relay may have forgotten it.
func (t *trickle) cancel(ctx context.Context, c call) {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	if e := t.w.ends[c.site]; e != nil {
		_, _ = e.site.Cancel(ctx, c.job) // the job's end tells what came of it
	}
}

// ends tells how jobs ended.
func (s *stories) ends() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("%d done, %d failed, %d canceled, %d dropped",
		s.ended[wire.DispositionOK], s.ended[wire.DispositionError], s.ended[wire.DispositionCanceled], s.ended[dropped])
}
