package bench

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"pushrelay/wire"
)

// step is one thing that happens to a job exactly once.
type step uint8

// Steps of a life. Those of different clients may be seen in another order than they happened in.
const (
	stepEnqueued  step = iota // the site's enqueue was answered
	stepClaimed               // the daemon was offered it
	stepAccepted              // the daemon's accept was answered
	stepAsked                 // the site was asked to seal
	stepSealed                // the site's seal was answered
	stepPayload               // the payload reached the daemon
	stepReported              // the daemon's result was answered
	stepResult                // the result reached the site
	stepCollected             // the site's collected was answered
	steps
)

// wholeLife has every step; a job that was cancelled before it ran has a notice instead of a result.
const (
	wholeLife   = 1<<steps - 1
	stepNoticed = steps     // a notice reached the site
	stepNotice  = steps + 1 // the site's collected of it was answered
)

// ledger holds which steps each job took, and the first error of all clients.
type ledger struct {
	jobs      [][]atomic.Uint32 // by site, then number; a bit for each step
	collected atomic.Int64
	frames    atomic.Int64  // of all clients, both ways
	repeats   atomic.Int64  // pushes that came again because the answer took long: a delay, no fault
	ending    atomic.Bool   // no new jobs follow
	cancels   atomic.Bool   // what still waits is being cancelled, so grants may end early
	failed    chan struct{} // closed with the first error

	once sync.Once
	err  error // set before failed is closed
}

// newLedger provides for so many jobs a site.
func newLedger(sites, jobs int) *ledger {
	l := &ledger{jobs: make([][]atomic.Uint32, sites), failed: make(chan struct{})}
	for i := range l.jobs {
		l.jobs[i] = make([]atomic.Uint32, jobs)
	}
	return l
}

func (l *ledger) fail(err error) {
	if err == nil {
		return
	}
	l.once.Do(func() {
		l.err = err
		close(l.failed)
	})
}

// failf notes what must not happen.
func (l *ledger) failf(format string, args ...any) { l.fail(fmt.Errorf(format, args...)) }

// forgives reports whether an error only says that a job was cancelled in the meantime; settle judges those jobs.
func (l *ledger) forgives(err error) bool {
	var refusal *wire.Error
	if !l.cancels.Load() || !errors.As(err, &refusal) {
		return false
	}
	switch refusal.Code {
	case wire.CodeTooLate, wire.CodeNotFound, wire.CodeForbidden:
		return true
	}
	return false
}

func jobID(site, number int) string { return "b" + strconv.Itoa(site) + "-" + strconv.Itoa(number) }

// parseJobID answers which job an id names.
func (l *ledger) parseJobID(id string) (site, number int, err error) {
	text, named := strings.CutPrefix(id, "b")
	a, b, cut := strings.Cut(text, "-")
	site, err1 := strconv.Atoi(a)
	number, err2 := strconv.Atoi(b)
	if !named || !cut || err1 != nil || err2 != nil || site < 0 || site >= len(l.jobs) || number < 0 || number >= len(l.jobs[site]) {
		return 0, 0, fmt.Errorf("job %q is none of this bench", id)
	}
	return site, number, nil
}

// took notes one step of a job; a second time is an error.
func (l *ledger) took(id string, s step) {
	if !l.first(id, s) {
		l.failf("job %s took step %d twice", id, s)
	}
}

// told is took for what the relay says again until it is answered: false for a repetition.
func (l *ledger) told(id string, s step) bool {
	if l.first(id, s) {
		return true
	}
	l.repeats.Add(1)
	return false
}

func (l *ledger) first(id string, s step) bool {
	site, number, err := l.parseJobID(id)
	if err != nil {
		l.fail(err)
		return true
	}
	if old := l.jobs[site][number].Or(1 << s); old&(1<<s) != 0 {
		return false
	}
	if s == stepCollected {
		l.collected.Add(1)
	}
	return true
}

// counts of a finished run.
type counts struct{ lives, dropped int }

// settle checks that each of the first made[i] jobs of site i lived a whole life, or was dropped from the queue.
func (l *ledger) settle(made []int) (c counts, err error) {
	select {
	case <-l.failed:
		return c, l.err
	default:
	}
	var errs []error
	for site, n := range made {
		for number := range n {
			switch got := l.jobs[site][number].Load(); {
			case got == wholeLife:
				c.lives++
			case got&(1<<stepNotice) != 0 && got&(1<<stepResult) == 0:
				c.dropped++
			case len(errs) < 3:
				errs = append(errs, fmt.Errorf("job %s has steps %010b only", jobID(site, number), got))
			}
		}
	}
	return c, errors.Join(errs...)
}
