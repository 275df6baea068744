package serve

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"pushrelay/cmd/pushrelay/internal/app"
)

const (
	// lastMile is kept of the drain's limit for what comes after the sessions: loops, listeners, store.
	lastMile     = 500 * time.Millisecond
	drainReason  = "this relay is going away"
	closeTimeout = 5 * time.Second
)

// waitFor serves until a signal or a failure: SIGHUP reads the projection again, the first other signal drains, the
// second ends at once.
func (r *Relay) waitFor(signals <-chan os.Signal) error {
	for {
		select {
		case err := <-r.failed:
			return errors.Join(err, r.Close())
		case s := <-signals:
			if s == syscall.SIGHUP {
				r.log.Info().Str("event", "reload").Msg("reading the projection again")
				r.reload.Now()
				continue
			}
			r.log.Info().Str("event", "drain").Str("signal", s.String()).Str("limit", r.set.DrainLimit.String()).Msg("draining")
			return r.drainOr(signals)
		}
	}
}

// drainOr drains unless another signal comes.
func (r *Relay) drainOr(signals <-chan os.Signal) error {
	done := make(chan error, 1)
	go func() { done <- r.Drain() }()
	for {
		select {
		case err := <-done:
			return err
		case s := <-signals:
			if s == syscall.SIGHUP {
				continue
			}
			r.log.Warn().Str("event", "drain-cut").Str("signal", s.String()).Msg("a second signal: ending at once")
			return app.Exit(app.ExitInterrupted)
		}
	}
}

// Drain ends the relay gracefully within its limit (design, section 6): unready at once, no new sessions, no new claims,
// goaway; heartbeats and results go on until each session is closed, spread over the window.
func (r *Relay) Drain() error {
	began := time.Now()
	r.draining.Store(true)
	r.server.Refuse()
	r.polls.Drain()
	r.hub.StopClaims()
	ctx, cancel := context.WithTimeout(context.Background(), max(r.set.DrainLimit-lastMile, lastMile))
	defer cancel()
	open := len(r.server.Sessions())
	err := r.server.Drain(ctx, r.set.DrainWindow, drainReason)
	left := len(r.server.Sessions())
	polled, stop := context.WithDeadline(ctx, began.Add(r.set.DrainWindow))
	defer stop()
	_ = r.polls.Answered(polled) // what isn't answered by then is cut
	_ = r.hub.AwaitPolls(polled) // what isn't finished by then is handed out again
	r.log.Info().Err(err).Str("event", "drained").Int("sessions", open).Int("left", left).
		Str("took", time.Since(began).Round(time.Millisecond).String()).Msg("drained")
	ctx, cancel = context.WithTimeout(context.Background(), lastMile)
	defer cancel()
	return r.end(ctx)
}

// Close ends the relay at once; what sessions were doing is for their peers to repeat.
func (r *Relay) Close() error {
	r.draining.Store(true)
	r.server.Refuse()
	r.polls.Drain()
	r.hub.StopClaims()
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return r.end(ctx)
}

// end closes the parts: sessions before the hub, the hub before the store. Being late is logged, not an error: all that
// is left then is this process' own.
func (r *Relay) end(ctx context.Context) error {
	if err := r.server.Close(ctx); err != nil {
		r.log.Warn().Err(err).Str("event", "sessions-left").Msg("some sessions didn't end in time")
	}
	answered, cancel := context.WithTimeout(ctx, lastMile/2)
	defer cancel()
	if err := r.public.http.Shutdown(answered); err != nil {
		r.log.Warn().Err(err).Str("event", "requests-left").Msg("some requests didn't end in time")
	}
	err := errors.Join(r.public.http.Close(), r.admin.http.Close())
	r.stop()
	loops := make(chan struct{})
	go func() {
		defer close(loops)
		r.loops.Wait()
	}()
	select {
	case <-loops:
	case <-ctx.Done():
		r.log.Warn().Str("event", "loops-left").Msg("some loops didn't end in time")
	}
	if r.grants != nil {
		r.grants.Close()
	}
	return errors.Join(err, r.store.Close())
}
