package session

import (
	"context"
	"errors"
	"strings"
	"testing"

	"pushrelay/wire"
)

func cancelOf(job string) func(dst []byte, id string) []byte {
	return func(dst []byte, id string) []byte { return wire.AppendCancelJobs(dst, id, []string{job}) }
}

func TestSendIsAnsweredOnce(t *testing.T) {
	r := newRelay(t)
	held := make(chan *Request, wire.MaxRequests)
	r.op.handle = func(_ context.Context, _ *Session, req *Request) { held <- req; <-t.Context().Done() }
	h := newHandler()
	cl, err := NewClient(r.clientConfig(h, "site_1", wire.RoleSite))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- cl.Run(ctx) }()
	c := <-h.welcome

	type got struct {
		reply []byte
		err   error
	}
	answers := make(chan got, 2*wire.MaxRequests)
	hear := func(reply []byte, err error) { answers <- got{reply, err} }
	if err := c.Send(cancelOf("j"), hear); err != nil {
		t.Fatal(err)
	}
	req := <-held
	req.Reply(wire.AppendReplyOK(nil, req.ID()))
	if a := <-answers; a.err != nil || !strings.Contains(string(a.reply), `"re":"`+req.ID()+`"`) {
		t.Fatalf("answered %q, %v", a.reply, a.err)
	}
	_ = c.Send(cancelOf("j"), hear)
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if a := <-answers; !errors.Is(a.err, ErrEnded) {
		t.Fatalf("after the end: %q, %v", a.reply, a.err)
	}
	if err := c.Send(cancelOf("j"), hear); !errors.Is(err, ErrEnded) {
		t.Fatalf("sent on an ended session: %v", err)
	}
	if len(answers) != 0 {
		t.Fatal("answered twice")
	}
}

func TestSendStopsAtWhatTheRelayAllows(t *testing.T) {
	c := newConn(&Client{})
	if !c.slots.TryAcquire(wire.MaxRequests) {
		t.Fatal("no places")
	}
	err := c.Send(cancelOf("j"), func([]byte, error) { t.Error("answered") })
	if !errors.Is(err, ErrNoPlace) {
		t.Fatal(err)
	}
}
