package poll

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"pushrelay/session"
	"pushrelay/wire"
)

// MaxBodyBytes is the longest body that is read.
const MaxBodyBytes = wire.MaxFrameBytes

const (
	freeBody    = 4 << 10          // costs no more than its connection, so that it waits for nothing
	smallBody   = 64 << 10         // read from anybody; a longer one only from a known caller whose request is fresh
	smallBytes  = 32 << 20         // of small bodies at once
	callerBytes = 16 << 20         // of longer bodies of one caller at once
	bodyChunk   = 32 << 10         // must arrive within bodyStall
	bodyStall   = 10 * time.Second // as a stream of the push protocol
	restStall   = writeStall / 2   // for what comes behind a refusal, which is written after it
	bodyWait    = 20 * time.Second // for room; clients give up after 30 s
)

// body is a request's body and what was reserved for it.
type body struct {
	text []byte
	give []func() // give back what was reserved
}

// bodies bounds the bytes of bodies: long ones by the process's budget, small ones by one of their own, so that no heartbeat
// waits for megabytes. Each caller, and each address, has a part of them only.
type bodies struct {
	long, small room
	callers     shares // of long
}

// room is a budget and what an address may have of it.
type room struct {
	budget *session.Budget
	addrs  shares
}

func newRoom(budget *session.Budget) room {
	return room{budget, shares{size: max(budget.Size()/4, MaxBodyBytes), by: map[string]*share{}}}
}

func newBodies(budget *session.Budget) *bodies {
	return &bodies{
		long: newRoom(budget), small: newRoom(session.NewBudget(smallBytes)),
		callers: shares{size: callerBytes, by: map[string]*share{}},
	}
}

// reserve waits for n bytes; caller is empty for a small body, whose caller nobody has looked at.
func (b *bodies) reserve(ctx context.Context, addr, caller string, n int64) (give func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, bodyWait)
	defer cancel()
	of := &b.long
	if caller == "" {
		of = &b.small
	}
	var undo []func()
	give = func() {
		for i := len(undo) - 1; i >= 0; i-- {
			undo[i]()
		}
	}
	for _, s := range []struct {
		of  *shares
		who string
	}{{&b.callers, caller}, {&of.addrs, addr}} {
		if s.who == "" {
			continue
		}
		back, err := s.of.take(ctx, s.who, n)
		if err != nil {
			give()
			return nil, err
		}
		undo = append(undo, back)
	}
	held, err := of.budget.Hold(ctx, n)
	if err != nil {
		give()
		return nil, err
	}
	undo = append(undo, func() { held.Keep(0) })
	return give, nil
}

// shares gives each of many a part of the same size, in the order in which they ask.
type shares struct {
	size int64

	mu sync.Mutex
	by map[string]*share
}

type share struct {
	room  *semaphore.Weighted
	users int // guarded by the shares' mu
}

func (s *shares) take(ctx context.Context, who string, n int64) (back func(), err error) {
	n = min(n, s.size)
	s.mu.Lock()
	one := s.by[who]
	if one == nil {
		one = &share{room: semaphore.NewWeighted(s.size)}
		s.by[who] = one
	}
	one.users++
	s.mu.Unlock()
	if err := one.room.Acquire(ctx, n); err != nil {
		s.leave(who, one)
		return nil, err
	}
	return func() {
		one.room.Release(n)
		s.leave(who, one)
	}, nil
}

func (s *shares) leave(who string, one *share) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one.users--; one.users == 0 {
		delete(s.by, who)
	}
}

// read reads the body. No deadline is left behind a whole one: it would end the wait of a held request.
func (q *request) read() error {
	err := q.readBody()
	switch {
	case err == nil:
		_ = http.NewResponseController(q.w).SetReadDeadline(time.Time{})
	case isBroken(err) || errors.Is(err, errGone):
		q.leave(0)
	default:
		q.leave(restStall)
	}
	return err
}

// leave has what may still come of a body waited for no longer than that: net/http reads it before a refusal goes out, as
// some clients write all before they read.
func (q *request) leave(wait time.Duration) {
	_ = http.NewResponseController(q.w).SetReadDeadline(time.Now().Add(wait))
}

// readBody reads the body. A long one of somebody that the headers don't make known is refused unread, before its version
// was looked at: it would hold memory for nothing.
func (q *request) readBody() error {
	n := q.http.ContentLength
	switch {
	case n > MaxBodyBytes:
		return errTooLong()
	case n == 0:
		return nil
	case q.http.Method == http.MethodGet:
		return wire.BadRequest("this request has no body")
	case n < 0:
		return q.readUnknown()
	case n > smallBody:
		if err := q.mayBeLong(); err != nil {
			return err
		}
	}
	if n > freeBody {
		if err := q.reserve(n); err != nil {
			return err
		}
	}
	_, err := q.receive(int(n))
	return err
}

// readUnknown reads a body whose length isn't told: as a short one first, and on when it goes on.
func (q *request) readUnknown() error {
	if whole, err := q.receive(freeBody); whole || err != nil {
		return err
	}
	if err := q.reserve(smallBody); err != nil {
		return err
	}
	if whole, err := q.receive(smallBody); whole || err != nil {
		return err
	}
	if err := q.mayBeLong(); err != nil {
		return err
	}
	if err := q.reserve(MaxBodyBytes - smallBody); err != nil {
		return err
	}
	whole, err := q.receive(MaxBodyBytes + 1) // so that one byte too many is seen
	if err == nil && !whole {
		err = errTooLong()
	}
	return err
}

func errTooLong() error { return wire.BadRequest("a body has at most %d bytes", MaxBodyBytes) }

// mayBeLong makes the checks that need no body. It fills Caller.
func (q *request) mayBeLong() error {
	if q.e.signed == "" {
		return wire.BadRequest("a body of this endpoint has at most %d bytes", smallBody)
	}
	return q.signer()
}

// reserve waits for room for n bytes more.
func (q *request) reserve(n int64) error {
	ctx := q.http.Context()
	give, err := q.planes.bodies.reserve(ctx, q.addr(), q.Caller, n)
	switch {
	case err == nil:
		q.body.give = append(q.body.give, give)
		return nil
	case ctx.Err() != nil:
		return errGone
	}
	return wire.Unavailable(1, "the relay has no room for this body just now; try again")
}

// addr is the client's address as caps count it.
func (q *request) addr() string { return q.planes.opts.Limits.ClientKey(q.http) }

// free gives the body's bytes back. What the store was given stays its own.
func (q *request) free() {
	for _, give := range q.body.give {
		give()
	}
	q.body = body{}
}

// receive reads until the body has most bytes or, where its length isn't told, ends before: then it is whole. Each chunk
// has its time to arrive.
func (q *request) receive(most int) (whole bool, err error) {
	control := http.NewResponseController(q.w)
	defer func() { _ = control.SetReadDeadline(time.Time{}) }()
	buf, told := q.body.text, q.http.ContentLength >= 0
	if told {
		buf = make([]byte, 0, most)
	}
	defer func() { q.body.text = buf }()
	for len(buf) < most {
		end := min(len(buf)+bodyChunk, most)
		buf = slices.Grow(buf, end-len(buf))
		_ = control.SetReadDeadline(time.Now().Add(bodyStall))
		var err error
		for n := 0; err == nil && len(buf) < end; buf = buf[:len(buf)+n] {
			n, err = q.http.Body.Read(buf[len(buf):end])
		}
		switch {
		case err == nil, errors.Is(err, io.EOF) && len(buf) == most:
		case errors.Is(err, io.EOF) && !told:
			return true, nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			return false, errSlow
		case hungUp(err):
			return false, errGone
		default:
			return false, errFraming
		}
	}
	return told, nil
}

// What is wrong with a body that never comes whole. net/http ends the request's context with the first failed read, also
// when its client still waits for an answer.
var (
	errSlow    = wire.BadRequest("the body came too slowly")
	errFraming = wire.BadRequest("the body isn't framed as its headers say")
)

func isBroken(err error) bool { return errors.Is(err, errSlow) || errors.Is(err, errFraming) }

// hungUp reports whether a body's read failed because its client went away.
func hungUp(err error) bool {
	var broken net.Error
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || errors.As(err, &broken)
}
