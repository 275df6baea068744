package bench

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/coder/websocket"
)

// Child is a process that a bench measures; it ends when its stdin does.
type Child struct {
	Echo  EchoChild  `cmd:"" help:"A bare WebSocket server that echoes every message."`
	Hold  HoldChild  `cmd:"" help:"A bare WebSocket server that reads and says nothing."`
	Relay RelayChild `cmd:"" help:"A relay."`
}

// EchoChild is the baseline of lives: a plain server of the WebSocket library.
type EchoChild struct{}

// Run serves until stdin ends.
func (EchoChild) Run() error { return serveBare(echo) }

// HoldChild is the baseline of idle sessions.
type HoldChild struct{}

// Run serves until stdin ends.
func (HoldChild) Run() error { return serveBare(hold) }

func echo(ctx context.Context, c *websocket.Conn) {
	for {
		kind, message, err := c.Read(ctx)
		if err != nil {
			return
		}
		if err := c.Write(ctx, kind, message); err != nil {
			return
		}
	}
}

func hold(ctx context.Context, c *websocket.Conn) {
	for {
		if _, _, err := c.Read(ctx); err != nil {
			return
		}
	}
}

// serveBare serves WebSockets on a free loopback port and obeys the parent on stdin.
func serveBare(each func(ctx context.Context, c *websocket.Conn)) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			c, err := websocket.Accept(w, r, &websocket.AcceptOptions{CompressionMode: websocket.CompressionDisabled})
			if err != nil {
				return
			}
			defer func() { _ = c.CloseNow() }()
			each(context.Background(), c)
		},
	)}
	control := controller{out: os.Stdout}
	go func() {
		control.say(answer{Addr: listener.Addr().String()})
		control.serve(os.Stdin)
		_ = server.Close()
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
