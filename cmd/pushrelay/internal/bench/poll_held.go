package bench

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"
)

// heldFigure is what held requests keep resident.
type heldFigure struct {
	Held       int     `json:"held"`
	PerRequest float64 `json:"bytes_per_request"`
	Resident   int64   `json:"resident_bytes"`
}

func (f *heldFigure) rows() [][2]string {
	return [][2]string{
		{"held claims", fmt.Sprint(f.Held)},
		{"bytes a held claim", text(f.PerRequest, 0)},
		{"relay resident, bytes", fmt.Sprint(f.Resident)},
	}
}

// heldFor is how long the relay holds; all must be there within it.
const heldFor = 25 * time.Second

func (c *Poll) measureHeld(ctx context.Context) (figure, error) {
	dir, err := os.MkdirTemp("", "pushrelay-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	w, err := newWorld(dir, 1, c.Held, min(c.Held, idleOwners))
	if err != nil {
		return nil, err
	}
	var each []float64
	found := &heldFigure{Held: c.Held}
	for range c.Rounds {
		f, err := c.heldOnce(ctx, w)
		if err != nil {
			return nil, err
		}
		each, found.Resident = append(each, f.each(c.Held)), f.after
	}
	found.PerRequest = round(median(each), 0)
	return found, nil
}

// heldOnce has every daemon of a world send a claim that there is nothing for.
func (c *Poll) heldOnce(ctx context.Context, w *world) (f footprint, err error) {
	relay, err := startRelay(ctx, c.exe, w, "--hold-claim", heldFor.String())
	if err != nil {
		return f, err
	}
	defer func() { _ = relay.close() }()
	before, err := relay.ask("memory")
	if err != nil {
		return f, err
	}
	conns := make([]net.Conn, len(w.daemons))
	defer func() {
		for _, conn := range conns {
			if conn != nil {
				_ = conn.Close()
			}
		}
	}()
	began := time.Now()
	err = parallel(len(conns), 64, func(i int) (err error) {
		conns[i], err = sendClaim(ctx, relay.Addr, w.daemons[i])
		return err
	})
	if err != nil {
		return f, err
	}
	for {
		after, err := relay.ask("memory")
		if err != nil {
			return f, err
		}
		// net/http has two goroutines for a request that waits: its own, and one that reads on.
		if after.Routines >= before.Routines+2*len(conns) {
			return footprint{before.Resident, after.Resident}, nil
		}
		if time.Since(began) > heldFor {
			return f, fmt.Errorf("not all of %d claims were held within %v", len(conns), heldFor)
		}
	}
}

// sendClaim opens a connection and leaves a claim there.
func sendClaim(ctx context.Context, addr string, d *party) (net.Conn, error) {
	body := claimBody(d, 1)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/byollm/claim", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	sign(r, d, false, "claim", body)
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return conn, r.Write(conn)
}
