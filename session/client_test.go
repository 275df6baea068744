package session

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"pushrelay/session/internal/pipe"
	"pushrelay/wire"
)

func TestScheduleOfEnds(t *testing.T) {
	for _, half := range []float64{0, 0.5, 0.999} {
		random := func() float64 { return half }
		within := func(t *testing.T, d, least, most time.Duration) {
			t.Helper()
			if d < least || d > most {
				t.Fatalf("%v is not within %v and %v", d, least, most)
			}
		}
		end := func(s *schedule, code websocket.StatusCode, text string) (time.Duration, string) {
			r, retry := receivedEnd(code, text)
			return s.ended(time.Now(), End{Reason: r, Code: code, Text: text}, retry)
		}
		t.Run(fmt.Sprint("at once ", half), func(t *testing.T) {
			for _, code := range []websocket.StatusCode{1001, 4408} {
				d, do := end(&schedule{random: random}, code, "")
				if do != "" {
					t.Fatal(do)
				}
				within(t, d, 0, nowWithin)
			}
		})
		t.Run(fmt.Sprint("backoff ", half), func(t *testing.T) {
			for _, code := range []websocket.StatusCode{1000, 1005, 1006, 1011, 1013, 4429, 4999} {
				s := &schedule{random: random}
				for i := range 20 {
					d, do := end(s, code, "")
					if do != "" {
						t.Fatal(code, do)
					}
					within(t, d, 500*time.Millisecond, min(30*time.Second, time.Second<<min(i, 10)))
				}
			}
		})
		t.Run(fmt.Sprint("later ", half), func(t *testing.T) {
			d, do := end(&schedule{random: random}, 4401, "unknown: not here")
			if do != "" {
				t.Fatal(do)
			}
			within(t, d, time.Minute, 5*time.Minute)
		})
		t.Run(fmt.Sprint("thrice ", half), func(t *testing.T) {
			for _, code := range []websocket.StatusCode{1008, 1009, 4400} {
				s := &schedule{random: random}
				for _, c := range []websocket.StatusCode{code, code, 1011, code, code} { // never three in a row
					if _, do := end(s, c, ""); do != "" {
						t.Fatal(c, do)
					}
				}
				if _, do := end(s, code, ""); do == "" {
					t.Fatal("goes on after the third")
				}
			}
		})
		t.Run(fmt.Sprint("superseded ", half), func(t *testing.T) {
			s := &schedule{random: random}
			now := time.Now()
			for _, at := range []time.Duration{0, 9 * time.Minute, 12 * time.Minute} { // never three in 10 minutes
				d, do := s.ended(now.Add(at), End{Code: 4409}, RetrySuperseded)
				if do != "" {
					t.Fatal(do)
				}
				within(t, d, 30*time.Second, 60*time.Second)
			}
			if _, do := s.ended(now.Add(13*time.Minute), End{Code: 4409}, RetrySuperseded); !strings.Contains(do, "another program") {
				t.Fatal(do)
			}
		})
		t.Run(fmt.Sprint("stop ", half), func(t *testing.T) {
			for code, text := range map[websocket.StatusCode]string{4401: "signature: wrong", 4403: "revoked", 4426: "version"} {
				if _, do := end(&schedule{random: random}, code, text); do == "" {
					t.Fatal(code)
				}
			}
		})
	}
}

func TestBackoffResetsOnlyAfterProof(t *testing.T) {
	s := &schedule{random: func() float64 { return 0.999 }}
	for range 10 {
		s.backoff()
	}
	s.lasted(59 * time.Second)
	if d := s.backoff(); d < 20*time.Second {
		t.Fatal(d)
	}
	s.lasted(60 * time.Second)
	if d := s.backoff(); d > time.Second {
		t.Fatal(d)
	}
}

// TestWhatComesWeeksApartIsNoRow: a daemon that is connected for months isn't stopped by its third mishap.
func TestWhatComesWeeksApartIsNoRow(t *testing.T) {
	s := &schedule{random: func() float64 { return 0.5 }}
	bad := func(lasted time.Duration) (do string) {
		s.lasted(lasted)
		_, do = s.ended(time.Now(), End{Code: 1008}, RetryThrice)
		return do
	}
	for range 5 {
		if do := bad(24 * time.Hour); do != "" {
			t.Fatal(do)
		}
	}
	if do := bad(time.Minute); do != "" {
		t.Fatal(do)
	}
	if do := bad(time.Minute); do == "" {
		t.Fatal("goes on after the third")
	}
}

func TestScheduleOfRefusedUpgrades(t *testing.T) {
	s := &schedule{random: func() float64 { return 0.5 }}
	if d, do := s.refused(503, 20*time.Second); do != "" || d < 20*time.Second || d > 32*time.Second {
		t.Fatal(d, do)
	}
	for _, status := range []int{400, 403, 404} {
		s := &schedule{random: func() float64 { return 0.5 }}
		for i := range 3 {
			_, do := s.refused(status, 0)
			if (do != "") != (i == 2) {
				t.Fatal(status, i, do)
			}
		}
	}
	for range 50 {
		if _, do := s.refused(502, 0); do != "" {
			t.Fatal(do)
		}
	}
}

func TestEndpointURL(t *testing.T) {
	for in, want := range map[string]string{
		"https://relay.example":            "wss://relay.example/byollm/session",
		"ws://127.0.0.1:8080/":             "ws://127.0.0.1:8080/byollm/session",
		"wss://relay.example/relay/x":      "wss://relay.example/byollm/session",
		"relay.example":                    "",
		"ftp://relay.example":              "",
		"wss://user:pass@relay.example":    "",
		"wss://relay.example/?token=x":     "",
		"wss://":                           "",
		"http://[::1]:9/byollm/session":    "ws://[::1]:9/byollm/session",
		"wss://relay.example/byollm/#frag": "",
	} {
		got, err := endpointURL(in, wire.RoleDaemon)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v", in, got, err)
		}
	}
}

// running is a Client in a bubble.
type running struct {
	*Client
	h    *clientHandler
	done chan error
	stop context.CancelFunc
}

func (b *bubble) client(t testing.TB, caller string, change ...func(*Client)) *running {
	t.Helper()
	h := newHandler()
	cfg := b.clientConfig(h, caller, wire.RoleDaemon)
	cfg.Transport = b.trans
	cl, err := NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range change {
		f(cl)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{cl, h, make(chan error, 1), cancel}
	go func() { r.done <- cl.Run(ctx) }()
	return r
}

func TestTerminalEndsSayWhatToDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		defer b.close()
		b.dir.revoked["bad"] = true
		err := <-b.client(t, "bad").done
		var terminal *TerminalError
		if !errors.As(err, &terminal) || terminal.End.Code != 4403 || terminal.End.Reason != ReasonRevoked || !strings.Contains(err.Error(), "pair") {
			t.Fatal(err)
		}
	})
}

func TestUnknownCallerComesBackLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		defer b.close()
		b.dir.unknown["new"] = true
		begin := time.Now()
		c := b.client(t, "new")
		b.seen.until(t, "refused", func() bool { return len(b.seen.ended) == 1 })
		b.dir.mu.Lock()
		delete(b.dir.unknown, "new")
		b.dir.mu.Unlock()
		<-c.h.welcome
		if d := time.Since(begin); d < time.Minute || d > 5*time.Minute+5*time.Second {
			t.Fatal(d)
		}
		c.stop()
		if err := <-c.done; err != nil {
			t.Fatal(err)
		}
		if e := <-c.h.ended; e.Reason != ReasonClosed {
			t.Fatal(e)
		}
	})
}

func TestCloseEndsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		defer b.close()
		c := b.client(t, "r")
		(<-c.h.welcome).Close("enough")
		if err := <-c.done; err != nil {
			t.Fatal(err)
		}
		b.seen.until(t, "ended", func() bool { return len(b.seen.ended) == 1 })
		if e := b.op.closed[0]; e.Reason != ReasonPeer || e.Code != 1000 || e.Text != "enough" {
			t.Fatal(e)
		}
	})
}

func TestRequestsOfAnEndedSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		defer b.close()
		b.op.handle = func(ctx context.Context, _ *Session, q *Request) { <-ctx.Done() }
		c := b.client(t, "r")
		conn := <-c.h.welcome
		errs := make(chan error, 100)
		for range 100 { // some of them wait for a place
			go func() { _, err := heartbeat(context.Background(), conn); errs <- err }()
			go func() { _, err := result(context.Background(), conn, "j", []byte(`{}`)); errs <- err }()
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		if _, err := heartbeat(ctx, conn); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		cancel()
		b.Sessions()[0].End(ReasonInternal, "")
		for range 200 {
			if err := <-errs; !errors.Is(err, ErrEnded) {
				t.Fatal(err)
			}
		}
		if e := <-c.h.ended; e.Reason != ReasonInternal || e.Code != 1011 {
			t.Fatal(e)
		}
		if _, err := heartbeat(context.Background(), conn); !errors.Is(err, ErrEnded) {
			t.Fatal(err)
		}
		<-c.h.welcome // it has come back
		c.stop()
		<-c.done
	})
}

func TestAtMost64AreUnanswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		defer b.close()
		b.op.handle = func(_ context.Context, _ *Session, q *Request) {
			<-time.After(time.Second)
			q.Reply(wire.AppendReplyOK(nil, q.ID()))
		}
		c := b.client(t, "r")
		conn := <-c.h.welcome
		var wg sync.WaitGroup
		for i := range 300 {
			wg.Go(func() {
				if _, err := result(context.Background(), conn, fmt.Sprint(i), []byte(`{}`)); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		begin := time.Now()
		if _, err := heartbeat(context.Background(), conn); err != nil || time.Since(begin) > 1100*time.Millisecond {
			t.Fatal(err, time.Since(begin)) // it didn't wait for the 300
		}
		wg.Wait()
		c.stop()
		<-c.done
	})
}

func TestGoawayMovesWithoutAGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		defer b.close()
		c := b.client(t, "r")
		old := <-c.h.welcome
		b.Sessions()[0].goaway("restart", 3*time.Second)
		begin := time.Now()
		next := <-c.h.welcome
		if d := time.Since(begin); d < 3*time.Second || d > 4*time.Second {
			t.Fatal(d)
		}
		<-old.Done()
		if _, err := heartbeat(context.Background(), next); err != nil {
			t.Fatal(err)
		}
		<-c.h.ended
		select {
		case err := <-c.done:
			t.Fatal("Run ended: ", err)
		default:
		}
		c.stop()
		<-c.done
	})
}

func TestGoawayOfADrainingRelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		defer b.close()
		c := b.client(t, "r")
		old := <-c.h.welcome
		b.Refuse() // who dials again finds 503, and keeps what it has
		b.Sessions()[0].goaway("restart", time.Second)
		<-time.After(20 * time.Second)
		if _, err := heartbeat(context.Background(), old); err != nil {
			t.Fatal(err)
		}
		c.stop()
		<-c.done
	})
}

// TestSupersededByItself: the relay closes the older session when the newer one is welcome; the client goes on.
func TestSupersededByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		defer b.close()
		b.op.open = func(_ context.Context, s *Session) (Peer, wire.Welcome, error) {
			for _, o := range b.Sessions() {
				if o != s {
					o.End(ReasonSuperseded, "")
				}
			}
			return nil, wire.Welcome{}, nil
		}
		c := b.client(t, "r")
		<-c.h.welcome
		b.Sessions()[0].goaway("restart", time.Second)
		<-c.h.welcome
		if e := <-c.h.ended; e.Reason != ReasonSuperseded && e.Reason != ReasonClosed {
			t.Fatal(e)
		}
		<-time.After(time.Hour)
		if n := len(b.Sessions()); n != 1 || b.seen.opened != 2 {
			t.Fatal(n, b.seen.opened)
		}
		// Another machine with the same key.
		other := b.client(t, "r")
		<-other.h.welcome
		if e := <-c.h.ended; e.Reason != ReasonSuperseded {
			t.Fatal(e)
		}
		var terminal *TerminalError
		select { // they take turns until one of them gives up
		case err := <-c.done:
			if !errors.As(err, &terminal) {
				t.Fatal(err)
			}
			other.stop()
			<-other.done
		case err := <-other.done:
			if !errors.As(err, &terminal) {
				t.Fatal(err)
			}
			c.stop()
			<-c.done
		}
		if terminal.End.Code != 4409 {
			t.Fatal(terminal)
		}
	})
}

func TestSleepIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		defer b.close()
		var mu sync.Mutex
		var slept time.Duration
		c := b.client(t, "r", func(c *Client) {
			c.wall = func() time.Time {
				mu.Lock()
				defer mu.Unlock()
				return time.Now().Round(0).Add(slept)
			}
		})
		<-c.h.welcome
		<-time.After(5 * time.Minute)
		select {
		case e := <-c.h.ended:
			t.Fatal(e)
		default:
		}
		mu.Lock()
		slept = time.Hour
		mu.Unlock()
		begin := time.Now()
		if e := <-c.h.ended; e.Reason != ReasonCut || !strings.Contains(e.Text, "slept") {
			t.Fatal(e)
		}
		<-c.h.welcome
		if d := time.Since(begin); d > 3*time.Second {
			t.Fatal(d)
		}
		c.stop()
		<-c.done
	})
}

// TestDeadRelayIsNoticed: nothing arrives any more, though nothing says that the connection is gone.
func TestDeadRelayIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, func(c *ServerConfig) { c.IdleAfter = time.Hour })
		defer b.close()
		c := b.client(t, "r")
		<-c.h.welcome
		s := b.Sessions()[0]
		s.link.mu.Lock()
		s.link.nextPing = 1 << 62
		s.link.mu.Unlock()
		begin := time.Now()
		e := <-c.h.ended
		if d := time.Since(begin); e.Reason != ReasonCut || d < 60*time.Second || d > 62*time.Second {
			t.Fatal(e, d)
		}
		c.stop()
		<-c.done
	})
}

func TestRetryAfterIsObeyed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pipe.New()
		var times []time.Time
		srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			times = append(times, time.Now())
			w.Header().Set("Retry-After", "20")
			w.WriteHeader(503)
		})}
		go func() { _ = srv.Serve(p) }()
		defer srv.Close()
		b := &bubble{relay: &relay{url: "ws://relay"}, pipes: p, trans: &http.Transport{DialContext: p.Dial, DisableKeepAlives: true}}
		c := b.client(t, "r")
		<-time.After(5 * time.Minute)
		c.stop()
		<-c.done
		for i := 1; i < len(times); i++ {
			if d := times[i].Sub(times[i-1]); d < 20*time.Second {
				t.Fatal(d)
			}
		}
		if len(times) < 8 {
			t.Fatal(times)
		}
	})
}

func TestWrongAddressIsTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pipe.New()
		srv := &http.Server{Handler: http.NotFoundHandler()}
		go func() { _ = srv.Serve(p) }()
		defer srv.Close()
		b := &bubble{relay: &relay{url: "ws://relay"}, pipes: p, trans: &http.Transport{DialContext: p.Dial, DisableKeepAlives: true}}
		var terminal *TerminalError
		if err := <-b.client(t, "r").done; !errors.As(err, &terminal) || terminal.Status != 404 || !strings.Contains(err.Error(), "no relay at this URL") {
			t.Fatal(err)
		}
	})
}

// TestBusyHandlerDoesNotStopPings: pings are answered while Push is at work; one that never returns ends the session.
func TestBusyHandlerDoesNotStopPings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		defer b.close()
		c := b.client(t, "r")
		var first sync.Once
		c.h.push = func(*Conn, wire.Head, []byte) { first.Do(func() { <-time.After(5 * time.Minute) }) }
		conn := <-c.h.welcome
		b.Sessions()[0].Push([]byte(`{"type":"cancel","grants":[]}`))
		<-time.After(3 * time.Minute)
		if _, err := heartbeat(context.Background(), conn); err != nil {
			t.Fatal(err)
		}
		s := b.Sessions()[0]
		for range 200 {
			s.Push([]byte(`{"type":"cancel","pad":"` + strings.Repeat("x", 16<<10) + `"}`))
			synctest.Wait()
		}
		<-conn.closed
		if e := conn.End(); e.Reason != ReasonTooSlow {
			t.Fatal(e)
		}
		c.stop()
		<-c.done
	})
}

func TestEndedSaysWhatIsKnown(t *testing.T) {
	for want, end := range map[string]End{
		"session: ended: cut":                   {Reason: ReasonCut},
		"session: ended: cut the machine slept": {Reason: ReasonCut, Text: "the machine slept"},
		"session: ended: unknown 4401 unknown: this caller is not known here": {
			Reason: "unknown", Code: 4401, Text: "unknown: this caller is not known here",
		},
	} {
		if got := (&ended{end: end}).Error(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
