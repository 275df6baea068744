package bench

import (
	"context"
	"time"
)

// cost is what a measurement took. Processor time doesn't depend on who else uses the machine, as rates do.
type cost struct {
	count   int64         // of what was measured
	took    time.Duration // by the clock
	server  time.Duration // of the child's processor time
	clients time.Duration // of this process's
}

func (c cost) perSecond() float64 { return float64(c.count) / c.took.Seconds() }

// eachServer is the child's processor time for one of what was measured, in microseconds; eachClient this process's.
func (c cost) eachServer() float64 { return c.share(c.server) }

func (c cost) eachClient() float64 { return c.share(c.clients) }

func (c cost) eachBoth() float64 { return c.eachServer() + c.eachClient() }

func (c cost) share(d time.Duration) float64 {
	return float64(d) / float64(time.Microsecond) / float64(max(c.count, 1))
}

func medianOf(costs []cost, value func(c cost) float64) float64 {
	values := make([]float64, len(costs))
	for i, c := range costs {
		values[i] = value(c)
	}
	return median(values)
}

// meter measures how far count comes while wait waits.
func meter(ctx context.Context, server *process, count func() int64, wait func(ctx context.Context) error) (cost, error) {
	theirs, err := server.ask("spent")
	if err != nil {
		return cost{}, err
	}
	ours, err := spent()
	if err != nil {
		return cost{}, err
	}
	before, begin := count(), time.Now()
	if err := wait(ctx); err != nil {
		return cost{}, err
	}
	c := cost{count: count() - before, took: time.Since(begin)}
	oursAfter, err := spent()
	if err != nil {
		return cost{}, err
	}
	theirsAfter, err := server.ask("spent")
	c.server = time.Duration(theirsAfter.Spent - theirs.Spent)
	c.clients = time.Duration(oursAfter.Spent - ours.Spent)
	return c, err
}

// pause waits so long, less when stop, which may be nil, is closed.
func pause(ctx context.Context, span time.Duration, stop <-chan struct{}) error {
	timer := time.NewTimer(span)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-stop:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}
