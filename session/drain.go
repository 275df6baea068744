package session

import (
	"context"
	"sync"
	"time"

	"pushrelay/wire"
)

// Refuse makes new sessions be answered 503 from now on; those that are open stay (drain, step 1).
func (srv *Server) Refuse() { srv.admission.refuse() }

// Drain tells all sessions goaway and closes them one by one over the time given (drain, step 2), so that they don't
// all come back at once. It returns when all are gone or ctx ends. Refuse must have been called.
//
// Each is asked to dial again some time before its own turn; one that has come to another replica by then closes by
// itself or was superseded there, and nothing is interrupted. A session with requests unanswered at its turn is given
// up to a second more.
func (srv *Server) Drain(ctx context.Context, spread time.Duration, reason string) error {
	all := srv.Sessions()
	n := time.Duration(max(1, len(all)))
	for i, s := range all {
		turn := spread * time.Duration(i+1) / n
		early := turn/2 + time.Duration(srv.engine.random()*float64(turn)/3)
		s.goaway(reason, early)
	}
	left, stop := srv.untilEmpty(ctx) // when all have left by themselves there is nothing to wait for
	defer stop()
	begun := time.Now()
	for i, s := range all {
		turn := spread * time.Duration(i+1) / n
		if sleep(left, turn-time.Since(begun)) != nil {
			break
		}
		s.endWhenAnswered()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, s := range srv.snapshot(nil) { // those that weren't admitted yet
		s.endWhenAnswered()
	}
	return srv.wait(ctx)
}

// goaway asks the client to dial again after so long; the session stays.
func (s *Session) goaway(reason string, after time.Duration) {
	frame, err := wire.Encode(wire.Goaway{Type: wire.TypeGoaway, Reason: reason, ReconnectAfterMs: after.Milliseconds()})
	if err != nil {
		return
	}
	s.Push(frame)
}

// endWhenAnswered ends the session as going away; requests that are being handled get a moment to be answered.
func (s *Session) endWhenAnswered() {
	s.mu.Lock()
	busy := s.requests.unanswered > 0
	if busy {
		s.leaveBy = s.link.age() + lastAnswers
	}
	s.mu.Unlock()
	if !busy {
		s.End(ReasonGoingAway, "the relay is going away")
	}
}

// lastAnswers is how long a drained session's unanswered requests may take.
const lastAnswers = time.Second

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// untilEmpty answers a context that ends with ctx, or when no session is left; stop frees it.
func (srv *Server) untilEmpty(ctx context.Context) (left context.Context, stop func()) {
	left, cancel := context.WithCancel(ctx)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		_ = srv.wait(left)
		cancel()
	})
	return left, func() {
		cancel()
		waiting.Wait()
	}
}

// wait returns when no session is left, or ctx ends.
func (srv *Server) wait(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		srv.mu.Lock()
		defer srv.mu.Unlock()
		srv.empty.Broadcast()
	})
	defer stop()
	srv.mu.Lock()
	defer srv.mu.Unlock()
	for len(srv.sessions) > 0 && ctx.Err() == nil {
		srv.empty.Wait()
	}
	if len(srv.sessions) > 0 {
		return ctx.Err()
	}
	return nil
}

// Close ends all sessions and returns when every goroutine is gone. When ctx ends first the connections are cut, and
// Close returns its error; then a handler that ignores its context may still be at work.
func (srv *Server) Close(ctx context.Context) error {
	srv.Refuse()
	srv.mu.Lock()
	srv.closing = true
	srv.mu.Unlock()
	for _, s := range srv.snapshot(nil) {
		s.End(ReasonGoingAway, "the relay stops")
	}
	err := srv.wait(ctx)
	if err != nil {
		for _, s := range srv.snapshot(nil) {
			s.link.sock.cut()
		}
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastAnswers)
		defer cancel()
		if srv.wait(grace) != nil {
			srv.stopTick()
			return err
		}
	}
	srv.stopTick()
	srv.ticking.Wait()
	srv.engine.workers.close()
	return err
}
