package session

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pushrelay/session/internal/throttle"
	"pushrelay/wire"
)

// TestChaos ends sessions at any moment, in every way, under load both ways: each request is answered or ends, and
// neither bytes of the budget nor goroutines nor places are lost.
func TestChaos(t *testing.T) {
	t.Parallel()
	const clients = 12
	r := newRelay(t, func(c *ServerConfig) { c.Budget = NewBudget(16 << 20) })
	envelope := sealed(300 << 10)
	r.op.handle = func(ctx context.Context, s *Session, q *Request) {
		switch q.Type() {
		case wire.TypeFetch:
			s.PushBulk(func(context.Context) ([][]byte, error) {
				return [][]byte{wire.AppendPayloadHead(nil, "j", "l"), envelope, wire.AppendTail(nil)}, nil
			})
			q.ReplyBulk(func(context.Context) ([][]byte, error) { return fetchReply(q.ID(), envelope), nil })
		case wire.TypeResult:
			q.Reply(wire.AppendResultReply(nil, q.ID(), true, false, "done"))
		default:
			q.Reply(wire.AppendReplyOK(nil, q.ID()))
		}
	}
	p, err := throttle.New(strings.TrimPrefix(r.url, "ws://"), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	r.Server.cfg.PublicURLs = append(r.Server.cfg.PublicURLs, "ws://"+p.Addr())
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	var answered, ended atomic.Int64
	h := newHandler()
	h.ended = make(chan End, 1<<16)
	h.welcome = make(chan *Conn, 1<<16)
	for i := range clients {
		cfg := r.clientConfig(h, fmt.Sprint("runner_", i), wire.RoleDaemon)
		cfg.URL = "ws://" + p.Addr()
		cl, err := NewClient(cfg)
		if err != nil {
			t.Fatal(err)
		}
		cl.random = func() float64 { return 0 }
		wg.Go(func() {
			if err := cl.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	use := func(c *Conn) {
		for ctx.Err() == nil {
			var err error
			short, done := context.WithTimeout(ctx, time.Duration(rand.IntN(200))*time.Millisecond)
			switch rand.IntN(3) {
			case 0:
				_, err = fetch(short, c, fmt.Sprint(rand.IntN(4)))
			case 1:
				_, err = result(short, c, fmt.Sprint(rand.IntN(4)), envelope)
			case 2:
				_, err = heartbeat(short, c)
			}
			done()
			var refusal *wire.Error
			switch {
			case err == nil:
				answered.Add(1)
			case errors.Is(err, ErrEnded):
				ended.Add(1)
				return
			case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), errors.As(err, &refusal):
			default:
				t.Error(err)
			}
		}
	}
	reasons := []Reason{ReasonGoingAway, ReasonInternal, ReasonBusy, ReasonTooSlow, ReasonIdle}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case c := <-h.welcome:
			for range 3 {
				wg.Go(func() { use(c) })
			}
		case <-tick.C:
			all := r.Sessions()
			if len(all) == 0 {
				continue
			}
			s := all[rand.IntN(len(all))]
			switch rand.IntN(60) {
			case 0:
				p.Cut()
			case 1, 2:
				s.End(reasons[rand.IntN(len(reasons))], "chaos")
			case 3:
				s.goaway("chaos", 10*time.Millisecond)
			}
		case <-ctx.Done():
		}
	}
	wg.Wait()
	end, stop := context.WithTimeout(context.Background(), 20*time.Second)
	defer stop()
	if err := r.Close(end); err != nil {
		t.Fatal(err)
	}
	if used := r.Server.cfg.Budget.Used(); used != 0 {
		t.Fatalf("%d bytes of the budget are lost", used)
	}
	if used := r.Server.cfg.Budget.guesses.Used(); used != 0 {
		t.Fatalf("%d turns are lost", used)
	}
	t.Log(answered.Load(), "answered,", ended.Load(), "ended")
	r.op.mu.Lock()
	defer r.op.mu.Unlock()
	if len(r.op.closed) != len(r.op.sessions) {
		t.Fatalf("%d opened, %d closed", len(r.op.sessions), len(r.op.closed))
	}
}
