package submit

import (
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/rs/zerolog"

	"pushrelay/cmd/pushrelay/internal/app"
	"pushrelay/session/site"
	"pushrelay/wire"
	"pushrelay/wire/seal"
)

const (
	maxOpen    = 1024             // jobs published and not over; the rest waits in the input
	batchSize  = 128              // jobs published at once
	patience   = 5 * time.Second  // for what is open after Ctrl-C, and for a result that should be waiting
	overdue    = 15 * time.Second // after a deadline, then a job counts as unanswered
	checkEvery = time.Second
	untaken    = 10 * time.Second // without a device that takes a job: then it is said what may be missing
)

// opened is a job that isn't over.
type opened struct {
	line     int
	began    time.Time
	deadline time.Time // after it, or over at the latest
	before   bool      // an earlier submission's job, which is done
}

// run is one submission.
type run struct {
	cmd  *Command
	site *site.Site
	log  zerolog.Logger
	out  *printer
	bar  *progress

	places  chan struct{}  // one for each job that may be open
	answers sync.WaitGroup // of the relay to what was published

	mu      sync.Mutex
	open    map[string]opened
	ok      int
	failed  int
	allRead bool
	foreign bool          // a job of another submission was met
	queued  time.Time     // when the relay took the first job
	taken   bool          // a device took one, or it was said that none does
	changed chan struct{} // has a value after each change
}

func newRun(c *Command, s app.Streams) *run {
	r := &run{cmd: c, open: map[string]opened{}, places: make(chan struct{}, maxOpen), changed: make(chan struct{}, 1)}
	r.bar = newProgress(s.Err, (!c.JSON || !app.IsTerminal(s.Out)) && !c.typed(s.In))
	r.out = newPrinter(s.Out, c.JSON, r.bar)
	r.log = c.Logger(s.Err).Hook(zerolog.HookFunc(func(*zerolog.Event, zerolog.Level, string) { r.bar.clear() }))
	return r
}

// do publishes everything and waits for all of it, or for a signal.
func (r *run) do(ctx context.Context, in io.Reader, signals <-chan os.Signal) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	life, ended := context.WithCancel(context.Background())
	defer ended()
	over := make(chan error, 1)
	go func() { over <- r.site.Run(life) }()
	published := make(chan error, 1)
	go func() { published <- r.publish(ctx, in) }()

	err, running := r.watch(signals, over, published)
	cancel()
	ended()
	if running {
		<-over
	}
	r.answers.Wait()
	r.bar.clear()
	if writing := r.out.failure(); err == nil && writing != nil {
		err = writing
	}
	return r.verdict(err)
}

// watch waits for the end; running tells whether the site still runs then.
func (r *run) watch(signals <-chan os.Signal, over, published <-chan error) (err error, running bool) {
	ticker := time.NewTicker(checkEvery)
	defer ticker.Stop()
	var read error
	for !r.finished() {
		select {
		case err := <-over:
			return err, false
		case read = <-published:
			published = nil
		case <-signals:
			return r.interrupted(signals), true
		case now := <-ticker.C:
			r.giveUp(now)
			r.hint(now)
		case <-r.changed:
		}
		r.show()
	}
	if read == nil && published != nil {
		read = <-published // it ended with the input
	}
	return read, true
}

// publish turns lines into jobs, with at most maxOpen of them open. It waits for no answer: while the relay is away the
// deadlines of all of them run, and the input ends.
func (r *run) publish(ctx context.Context, in io.Reader) error {
	defer r.change(func() { r.allRead = true })
	lines, failed := readLines(ctx, in)
	for more := true; more; {
		var batch []line
		batch, more = gather(ctx, lines, batchSize)
		for range batch {
			select {
			case r.places <- struct{}{}:
			case <-ctx.Done():
				return nil
			}
		}
		if len(batch) > 0 {
			r.submit(ctx, batch)
		}
	}
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

func (r *run) submit(ctx context.Context, batch []line) {
	now := time.Now()
	deadline := r.cmd.Deadline.from(now)
	jobs := make([]site.Job, 0, len(batch))
	for _, l := range batch {
		id := r.cmd.IDPrefix + strconv.Itoa(l.number)
		r.change(func() { r.open[id] = opened{line: l.number, began: now, deadline: deadline} })
		if !utf8.ValidString(l.text) {
			r.log.Warn().Int("line", l.number).Msg("the line isn't UTF-8: each broken byte of it is published as U+FFFD")
		}
		payload, err := r.payload(l.text)
		if err != nil {
			_ = r.end(id, ending{state: "refused", code: string(wire.CodeBadRequest), message: err.Error()})
			continue
		}
		jobs = append(jobs, site.Job{
			ID: id, Kind: r.cmd.Kind, Owner: r.cmd.Owner, Audience: r.cmd.Audience, Deadline: deadline, Payload: payload,
		})
	}
	wait := r.site.Begin(jobs...)
	r.answers.Go(func() {
		for _, a := range wait(ctx) {
			r.submitted(a)
		}
	})
}

func (r *run) submitted(a site.Submitted) {
	var refused *wire.Error
	r.mu.Lock()
	_, open := r.open[a.JobID]
	r.mu.Unlock()
	switch {
	case !open: // given up before the relay answered
	case errors.Is(a.Err, site.ErrPending), errors.Is(a.Err, site.ErrWithdrawn), errors.Is(a.Err, site.ErrStopped):
		// the end of everything is told once, by who noticed it
	case errors.As(a.Err, &refused):
		_ = r.end(a.JobID, ending{state: "refused", code: string(refused.Code), message: refused.Message})
	case a.Err != nil:
		_ = r.end(a.JobID, ending{state: "refused", code: string(wire.CodeBadRequest), message: a.Err.Error()})
	case a.State == stateDone: // by an earlier submission: its result comes at once, or was collected long ago
		r.hasten(a.JobID)
	}
}

func (r *run) payload(text string) ([]byte, error) {
	if r.cmd.Kind == site.KindChat {
		return seal.ChatPayload{Messages: []seal.Message{{Role: "user", Content: text}}}.Encode()
	}
	return seal.GeneratePayload{Prompt: text}.Encode()
}

// interrupted cancels what is open and waits for it briefly, or for another signal.
func (r *run) interrupted(signals <-chan os.Signal) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	go func() {
		select {
		case <-signals:
			cancel()
		case <-ctx.Done():
		}
	}()
	r.mu.Lock()
	ids := make([]string, 0, len(r.open))
	for id := range r.open {
		ids = append(ids, id)
	}
	r.allRead = true
	r.mu.Unlock()
	_, err := r.site.Cancel(ctx, ids...)
	for err == nil && !r.finished() {
		select {
		case <-r.changed:
			r.show()
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	rest := ""
	if r.left() > 0 {
		rest = "; the relay may still have the others, until their deadlines"
	}
	return app.Exitf(app.ExitInterrupted, "interrupted: %d of %d open jobs were cancelled and ended%s", len(ids)-r.left(), len(ids), rest)
}

func (r *run) change(f func()) {
	r.mu.Lock()
	f()
	r.mu.Unlock()
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

func (r *run) left() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.open)
}

func (r *run) finished() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.allRead && len(r.open) == 0
}

func (r *run) show() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bar.draw(r.ok, r.failed, len(r.open), r.allRead)
}

// verdict turns counts into an exit code.
func (r *run) verdict(err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err != nil:
		return err
	case r.ok+r.failed == 0:
		r.log.Warn().Msg("the input has no line of text: no job was published")
		return nil
	case r.failed == 0:
		return nil
	case r.ok == 0:
		return app.Exitf(app.ExitNone, "none of %d jobs succeeded", r.failed)
	}
	return app.Exitf(app.ExitSome, "%d of %d jobs failed", r.failed, r.ok+r.failed)
}
