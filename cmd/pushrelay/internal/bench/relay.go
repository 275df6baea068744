package bench

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"pushrelay/cmd/pushrelay/internal/app"
	"pushrelay/cmd/pushrelay/internal/serve"
)

// RelayChild is a relay as `pushrelay serve` runs it, with fixed settings. All clients of a bench have one address, so
// what one address may do is as much as what all may.
type RelayChild struct {
	Projection string        `arg:"" type:"path" help:"The generated projection."`
	Accept     int           `default:"2000" help:"New connections a second."`
	Store      string        `default:"memory" enum:"memory,disk" help:"The relay's store."`
	HoldClaim  time.Duration `default:"15s" help:"How long polled claims are held."`
	Data       string        `type:"path" help:"The disk store's folder."`
	Debug      bool          `help:"Serve the debug page."`
}

// Run serves until stdin ends.
func (c *RelayChild) Run(ctx context.Context) error {
	addr, err := freeAddr()
	if err != nil {
		return err
	}
	var program struct {
		Serve serve.Command `cmd:""`
	}
	announced := &firstWrite{done: make(chan struct{})}
	ended := make(chan int, 1)
	args := []string{
		"serve", "--projection", c.Projection, "--listen", addr, "--public-url", "http://" + addr,
		"--jobs-per-site", "10000000", "--bytes-per-site", "16GiB", "--log-level", "error",
		"--max-per-address", "1000", "--accept-per-second", strconv.Itoa(c.Accept), "--store", c.Store,
		"--hold-claim", c.HoldClaim.String(),
	}
	if c.Debug {
		args = append(args, "--admin-listen", "127.0.0.1:0", "--debug")
		if err := os.Setenv("PUSHRELAY_DEBUG_TOKEN", rand.Text()); err != nil {
			return err
		}
	} else {
		args = append(args, "--admin-listen", "off")
	}
	if c.Data != "" {
		args = append(args, "--data", c.Data)
	}
	go func() {
		ended <- app.Main(ctx, &program, app.Streams{In: os.Stdin, Out: announced, Err: os.Stderr}, args)
	}()
	select {
	case code := <-ended:
		return fmt.Errorf("the relay ended with %d", code)
	case <-announced.done:
	}
	control := controller{out: os.Stdout}
	control.say(answer{Addr: addr})
	control.serve(os.Stdin) // the process ends behind it; a drain would only take time
	return nil
}

// firstWrite tells that something was written, which a relay does when it is ready.
type firstWrite struct {
	once sync.Once
	done chan struct{}
}

// Write implements io.Writer.
func (w *firstWrite) Write(p []byte) (int, error) {
	w.once.Do(func() { close(w.done) })
	return len(p), nil
}

// freeAddr answers a loopback address that nobody listens on just now.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// startRelay starts a relay for a world; more are flags of RelayChild.
func startRelay(ctx context.Context, exe string, w *world, more ...string) (*process, error) {
	return start(ctx, exe, append([]string{"relay", w.path}, more...)...)
}
