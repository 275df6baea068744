package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
)

// Shape of the baseline of lives; fixed, so that ratios of different runs compare.
const (
	echoConns = 64
	echoBytes = 1 << 10
)

// echoCost measures bare echoes for that time: each connection has one message under way, each echo is compared with
// what was sent. The server is a child of its own.
func echoCost(ctx context.Context, exe string, conns int, span time.Duration) (c cost, err error) {
	server, err := start(ctx, exe, "echo")
	if err != nil {
		return c, err
	}
	defer func() { _ = server.close() }()
	clients, err := dialBare(ctx, server.Addr, conns)
	defer closeBare(clients)
	if err != nil {
		return c, err
	}
	var count atomic.Int64
	var stop atomic.Bool
	errs := make([]error, conns)
	var all sync.WaitGroup
	for i, client := range clients {
		all.Go(func() { errs[i] = echoes(ctx, client, byte('a'+i%26), &stop, &count) })
	}
	c, err = meter(ctx, server, count.Load, func(ctx context.Context) error { return pause(ctx, span, nil) })
	stop.Store(true)
	all.Wait()
	return c, errors.Join(append(errs, err)...)
}

func echoes(ctx context.Context, c *websocket.Conn, fill byte, stop *atomic.Bool, count *atomic.Int64) error {
	message := bytes.Repeat([]byte{fill}, echoBytes)
	for !stop.Load() {
		if err := c.Write(ctx, websocket.MessageText, message); err != nil {
			return err
		}
		_, got, err := c.Read(ctx)
		if err != nil {
			return err
		}
		if !bytes.Equal(got, message) {
			return errors.New("an echo differs from what was sent")
		}
		count.Add(1)
	}
	return nil
}

// dialBare opens bare connections, some at a time; those that opened are answered also with an error.
func dialBare(ctx context.Context, addr string, n int) ([]*websocket.Conn, error) {
	conns := make([]*websocket.Conn, n)
	err := parallel(n, 32, func(i int) error {
		c, _, err := websocket.Dial(ctx, "ws://"+addr+"/", nil)
		if err != nil {
			return fmt.Errorf("bare connection: %w", err)
		}
		conns[i] = c
		return nil
	})
	return conns, err
}

func closeBare(conns []*websocket.Conn) {
	for _, c := range conns {
		if c != nil {
			_ = c.CloseNow()
		}
	}
}

// parallel calls do for 0 to n-1 from that many goroutines and answers the first error of each.
func parallel(n, width int, do func(i int) error) error {
	var next atomic.Int64
	errs := make([]error, min(width, n))
	var all sync.WaitGroup
	for w := range errs {
		all.Go(func() {
			for errs[w] == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				errs[w] = do(i)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
