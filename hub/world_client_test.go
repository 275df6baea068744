package hub

import (
	"context"
	"fmt"
	"sync"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"pushrelay/session"
	"pushrelay/wire"
)

// client is a fake session with a daemon or a site behind it. It acts only when told.
type client struct {
	w       *world
	id      string
	name    string
	peer    Peer
	welcome wire.Welcome

	mu       sync.Mutex
	frames   [][]byte // unread
	ended    session.Reason
	held     bool // bulk waits
	bulk     []session.Loader
	received int64
}

func (c *client) ID() string { return c.id }

func (c *client) Push(frame []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frames = append(c.frames, frame)
}

func (c *client) PushBulk(load session.Loader) {
	c.mu.Lock()
	if c.held {
		c.bulk = append(c.bulk, load)
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	c.load(load)
}

func (c *client) PushBulkThen(load session.Loader, over func()) { c.PushBulk(thenOver(load, over)) }

// thenOver counts a frame as sent once it was loaded.
func thenOver(load session.Loader, over func()) session.Loader {
	return func(ctx context.Context) ([][]byte, error) {
		defer over()
		return load(ctx)
	}
}

func (c *client) load(load session.Loader) {
	pieces, err := load(context.Background())
	if err != nil || pieces == nil {
		return
	}
	var frame []byte
	for _, p := range pieces {
		frame = append(frame, p...)
	}
	c.Push(frame)
}

func (c *client) End(reason session.Reason, _ string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended == "" {
		c.ended = reason
	}
}

func (c *client) Received() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.received
}

func (c *client) reason() session.Reason {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}

// close is the connection's end.
func (c *client) close() {
	c.peer.Closed(session.End{Reason: session.ReasonCut})
	synctest.Wait()
}

const capabilities0 = `[{"kind":"llm.generate","backendId":"b","backendClass":"http","model":"m","offerScope":"self"}]`

const capabilities2 = `[{"kind":"llm.generate","backendId":"b","backendClass":"http","service":"s","model":"m","offerScope":"private"}]`

// arrival fills what a daemon's or a site's hello says; change alters it.
func (w *world) arrival(role, name string, change func(*Arrival)) (*client, Arrival) {
	w.ids++
	c := &client{w: w, id: fmt.Sprintf("s%d", w.ids), name: name}
	a := Arrival{
		Link: c, Role: role, Caller: name, Dialect: wire.Dialect0, Key: w.party(name).key,
		Hello: &wire.HelloBody{ProtocolVersion: "0", Role: role, Client: wire.ClientInfo{Name: "test", Version: "1"}},
	}
	if role == wire.RoleDaemon {
		a.Hello.Capabilities, a.Hello.Slots = []byte(capabilities0), 4
	}
	if change != nil {
		change(&a)
	}
	return c, a
}

func (w *world) admit(role, name string, change func(*Arrival)) (*client, error) {
	c, a := w.arrival(role, name, change)
	var err error
	c.peer, c.welcome, err = w.hub.Admit(w.t.Context(), a)
	synctest.Wait()
	return c, err
}

func (w *world) daemon(name string, change func(*Arrival)) *client {
	w.t.Helper()
	c, err := w.admit(wire.RoleDaemon, name, change)
	require.NoError(w.t, err)
	return c
}

func (w *world) site(name string) *client {
	w.t.Helper()
	c, err := w.admit(wire.RoleSite, name, nil)
	require.NoError(w.t, err)
	return c
}

// request is a fake request; its answer is a frame.
type request struct {
	t      wire.FrameType
	frame  []byte
	answer []byte
	err    *wire.Error
}

func (r *request) Type() wire.FrameType { return r.t }
func (r *request) ID() string           { return "1" }
func (r *request) Frame() []byte        { return r.frame }
func (r *request) Reply(f []byte)       { r.answer = f }
func (r *request) Refuse(e *wire.Error) { r.err = e }
func (r *request) ReplyBulk(load session.Loader) {
	pieces, err := load(context.Background())
	if err != nil {
		r.err = wire.AsError(err)
		return
	}
	for _, p := range pieces {
		r.answer = append(r.answer, p...)
	}
}

// raw makes a request of a frame's text.
func (c *client) raw(t wire.FrameType, text string) *request {
	r := &request{t: t, frame: []byte(text)}
	c.peer.Handle(c.w.t.Context(), r)
	synctest.Wait()
	return r
}

func (c *client) ask(t wire.FrameType, frame any) *request {
	c.w.t.Helper()
	var text []byte
	var err error
	switch f := frame.(type) {
	case wire.Grants:
		f.Type, f.ID = t, "1"
		text, err = wire.Encode(f)
	case wire.Ready:
		f.Type, f.ID = t, "1"
		text, err = wire.Encode(f)
	case wire.Heartbeat:
		f.Type, f.ID = t, "1"
		text, err = wire.Encode(f)
	case wire.Fetch:
		f.Type, f.ID = t, "1"
		text, err = wire.Encode(f)
	case wire.Result:
		f.Type, f.ID = t, "1"
		text, err = wire.Encode(f)
	case wire.Release:
		f.Type, f.ID = t, "1"
		text, err = wire.Encode(f)
	case wire.Seal:
		f.Type, f.ID = t, "1"
		text, err = wire.Encode(f)
	case wire.Enqueue:
		f.Type, f.ID = t, "1"
		text, err = wire.Encode(f)
	case wire.CancelJobs:
		f.Type, f.ID = t, "1"
		text, err = wire.Encode(f)
	}
	require.NoError(c.w.t, err)
	return c.raw(t, string(text))
}
