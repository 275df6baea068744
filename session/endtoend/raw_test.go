package endtoend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"pushrelay/wire"
	"pushrelay/wire/seal"
)

// raw is an authenticated session made of the bare library: it says what a test wants, and does nothing by itself but
// answer pings, once it listens.
type raw struct {
	t       *testing.T
	ws      *websocket.Conn
	welcome wire.Welcome
	keys    *seal.Keys
	frames  chan []byte // text frames, once it listens
	closed  chan websocket.CloseError
	next    int
}

// dialRaw dials over d and shakes hands; change may alter the hello's body.
func (w *world) dialRaw(d *dialer, role, name string, change func(b *wire.HelloBody)) (*raw, error) {
	path, endpoint := wire.DaemonPath, wire.EndpointDaemon
	if role == wire.RoleSite {
		path, endpoint = wire.SitePath, wire.EndpointSite
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	url := strings.Replace(w.relay.url, "http", "ws", 1) + path
	ws, resp, err := websocket.Dial(ctx, url, &websocket.DialOptions{
		Subprotocols: []string{wire.Subprotocol}, HTTPClient: &http.Client{Transport: d.transport()},
	})
	if err != nil {
		if resp != nil && resp.Body != nil {
			err = errors.Join(err, resp.Body.Close())
		}
		return nil, err
	}
	ws.SetReadLimit(1 << 20)
	r := &raw{t: w.t, ws: ws, keys: w.keys[name], frames: make(chan []byte, 4096), closed: make(chan websocket.CloseError, 1)}
	if err := r.shake(ctx, w, url, endpoint, role, name, change); err != nil {
		_ = ws.CloseNow()
		return nil, err
	}
	w.t.Cleanup(func() { _ = ws.CloseNow() })
	return r, nil
}

func (r *raw) shake(ctx context.Context, w *world, url, endpoint, role, name string, change func(b *wire.HelloBody)) error {
	_, frame, err := r.ws.Read(ctx)
	if err != nil {
		return err
	}
	challenge, err := wire.Decode[wire.Challenge](frame)
	if err != nil {
		return err
	}
	b := wire.HelloBody{
		ProtocolVersion: string(wire.Dialect2), Nonce: challenge.Nonce, Relay: url, Role: role,
		Client: wire.ClientInfo{Name: "raw", Version: "1"},
	}
	if role == wire.RoleDaemon {
		b.Slots, b.Capabilities = 4, wire.AppendCapabilities(nil, wire.Dialect2, capabilities())
	}
	if change != nil {
		change(&b)
	}
	body, err := wire.Encode(b)
	if err != nil {
		return err
	}
	now := time.Now().UnixMilli()
	hello, err := wire.Encode(wire.Hello{
		Type: wire.TypeHello, Caller: name, IssuedAt: now, Body: string(body),
		Signature: w.keys[name].SignRequest(endpoint, name, now, body),
	})
	if err != nil {
		return err
	}
	if err := r.ws.Write(ctx, websocket.MessageText, hello); err != nil {
		return err
	}
	if _, frame, err = r.ws.Read(ctx); err != nil {
		return err
	}
	r.welcome, err = wire.Decode[wire.Welcome](frame)
	if err == nil && r.welcome.Type != wire.TypeWelcome {
		err = fmt.Errorf("no welcome but %s", frame)
	}
	return err
}

// raw is dialRaw that must succeed, and listens.
func (w *world) raw(role, name string, change func(b *wire.HelloBody)) *raw {
	w.t.Helper()
	return w.rawOver(newDialer(), role, name, change)
}

func (w *world) rawOver(d *dialer, role, name string, change func(b *wire.HelloBody)) *raw {
	w.t.Helper()
	r, err := w.dialRaw(d, role, name, change)
	require.NoError(w.t, err)
	r.listen()
	return r
}

// listen reads from now on.
func (r *raw) listen() {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			typ, frame, err := r.ws.Read(context.Background())
			if err != nil {
				var closing websocket.CloseError
				errors.As(err, &closing) // zero when there was no close frame
				r.closed <- closing
				return
			}
			if typ == websocket.MessageText {
				select {
				case r.frames <- frame:
				default: // nobody wants that many
				}
			}
		}
	}()
	r.t.Cleanup(func() {
		_ = r.ws.CloseNow()
		<-ended
	})
}

// hangUp ends the connection without a close frame, as a killed process does.
func (r *raw) hangUp() { _ = r.ws.CloseNow() }

// write sends a text frame as it is; a session that has ended takes nothing.
func (r *raw) write(frame string) error { return r.send(websocket.MessageText, []byte(frame)) }

func (r *raw) send(typ websocket.MessageType, b []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return r.ws.Write(ctx, typ, b)
}

// until answers the next frame that fits; others are dropped.
func (r *raw) until(what string, fits func(s said, frame []byte) bool) []byte {
	r.t.Helper()
	limit := time.After(patience)
	for {
		select {
		case frame := <-r.frames:
			if fits(saying(wsFrame{op: opText, payload: frame}), frame) {
				return frame
			}
		case e := <-r.closed:
			r.closed <- e
			r.t.Fatalf("closed with %d %q before %s came", e.Code, e.Reason, what)
		case <-limit:
			r.t.Fatalf("%s didn't come", what)
		}
	}
}

// push answers the next push of a type.
func (r *raw) push(t wire.FrameType) []byte {
	r.t.Helper()
	return r.until(string(t), func(s said, _ []byte) bool { return s.Type == t && s.Re == "" })
}

// ask sends a request, of which members follow the id, and answers its answer.
func (r *raw) ask(t wire.FrameType, members string) []byte {
	r.t.Helper()
	r.next++
	id := fmt.Sprint("q", r.next)
	frame := fmt.Sprintf(`{"type":%q,"id":%q`, t, id)
	if members != "" {
		frame += "," + members
	}
	require.NoError(r.t, r.write(frame+"}"))
	return r.until("the answer to "+string(t), func(s said, _ []byte) bool { return s.Re == id })
}

// code answers the code of an error frame, or "" for anything else.
func code(frame []byte) wire.ErrorCode {
	if !bytes.Contains(frame, []byte(`"error"`)) {
		return ""
	}
	_, e, err := wire.ParseErrorFrame(frame)
	if err != nil {
		return ""
	}
	return e.Code
}

// end waits for the close frame.
func (r *raw) end() websocket.CloseError {
	r.t.Helper()
	select {
	case e := <-r.closed:
		r.closed <- e
		return e
	case <-time.After(patience):
		r.t.Fatal("the session doesn't end")
		panic("unreachable")
	}
}

// grants writes grants as a member of a request.
func grants(name string, list ...wire.Grant) string {
	frame := wire.AppendGrants(nil, wire.TypeAccept, "x", list)
	_, after, _ := bytes.Cut(frame, []byte(`"grants":`))
	return `"` + name + `":` + string(after[:len(after)-1])
}

// claims answers the grants of the next offer.
func (r *raw) claims() []wire.Grant {
	r.t.Helper()
	f, err := wire.Decode[wire.Claimed](r.push(wire.TypeClaimed))
	require.NoError(r.t, err)
	var out []wire.Grant
	for _, raw := range f.Jobs {
		job, err := wire.ParseClaimed(wire.Dialect2, raw)
		require.NoError(r.t, err)
		out = append(out, wire.Grant{JobID: job.Stub.ID, LeaseID: job.Lease.ID})
	}
	return out
}

// report seals a result to a site and sends it; the answer is its answer.
func (r *raw) report(w *world, siteName string, g wire.Grant, deadlineAt int64, text string) []byte {
	r.t.Helper()
	plain, err := seal.Result{Outcome: seal.OK(text), Ran: seal.Ran{Model: "m", BackendClass: "process"}}.Encode()
	require.NoError(r.t, err)
	env, err := seal.Seal(r.keys, w.keys[siteName].Public(), seal.Context{
		JobID: g.JobID, Direction: wire.DirectionResult, DeadlineAt: deadlineAt,
	}, plain)
	require.NoError(r.t, err)
	return r.ask(wire.TypeResult, fmt.Sprintf(`"grant":{"jobId":%q,"leaseId":%q},"disposition":"ok","envelope":%s`, g.JobID, g.LeaseID, env.Raw))
}
