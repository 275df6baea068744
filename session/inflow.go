package session

import (
	"errors"
	"time"

	"pushrelay/wire"
)

// Refusals of a part that break the protocol and so end the session.
var (
	errNoStream     = errors.New("a part of a stream that isn't open")
	errStreamTwice  = errors.New("a stream that is open was opened again")
	errStreams      = errors.New("more than 8 streams are open")
	errNoCredit     = errors.New("more bytes than there was credit for")
	errStreamLength = errors.New("a stream's parts don't add up to the length that it gave")
)

// inflow assembles the frames that arrive in parts, and gives credit for them (design, section 5).
//
// A stream begins with 64 KiB of credit that it has without asking; more is granted only once its whole length is
// reserved in the process's budget, and never so much that over 512 KiB are outstanding in the session. New streams
// bring their first 64 KiB whatever is outstanding; grants then wait.
//
// All fields are guarded by the link's mu. Times are nanoseconds since the connection began.
type inflow struct {
	streams  []*inStream
	refused  []uint32 // streams that we gave up and whose sender may not know yet
	reserved int64    // asked of the budget or held, for open streams
	lastPart int64    // when one last arrived
}

// inStream is one frame on its way in.
type inStream struct {
	id      uint32
	total   int
	buf     []byte // grows with what arrives
	granted int
	due     int          // of granted: not told yet
	held    int64        // of the budget
	state   reserveState // of what exceeds the initial credit
	cancel  func() bool  // of the reservation
	asked   int64        // since when it waits for the budget
	mark    int          // len(buf) when the clock was last wound
	since   int64        // when that was
}

type reserveState uint8

const (
	unreserved reserveState = iota // waits for other streams of this session
	reserving
	reserved
)

// inEvent is what one part brings about; what isn't needed is zero.
type inEvent struct {
	frame  []byte // complete
	held   int64  // bytes of the budget that now belong to the frame's receiver
	freed  int64  // bytes of the budget to give back
	cancel func() bool
	over   uint32 // a stream that can't be taken, to be refused
}

const maxRefused = 64

// part takes one binary message, which isn't kept.
func (f *inflow) part(b *Budget, now int64, msg []byte) (inEvent, error) {
	h, total, data, err := wire.ParsePart(msg)
	if err != nil {
		return inEvent{}, err
	}
	f.lastPart = now
	s := f.find(h.Stream)
	switch {
	case h.Abort():
		return f.abort(h.Stream, s), nil
	case h.First() && s != nil:
		return inEvent{}, errStreamTwice
	case h.First():
		f.forget(h.Stream) // a sender may use the id again after we refused it
		if len(f.streams) >= wire.MaxStreams {
			return inEvent{}, errStreams
		}
		if s = f.open(b, now, h.Stream, int(total)); s == nil {
			f.refuse(h.Stream, h.Last())
			return inEvent{over: h.Stream}, nil
		}
	case s == nil:
		if !f.refuses(h.Stream) {
			return inEvent{}, errNoStream
		}
		if h.Last() {
			f.forget(h.Stream)
		}
		return inEvent{}, nil
	}
	return f.take(s, h, data)
}

func (f *inflow) take(s *inStream, h wire.PartHeader, data []byte) (inEvent, error) {
	got := len(s.buf) + len(data)
	if got > s.total || h.Last() != (got == s.total) {
		return inEvent{}, errStreamLength
	}
	if got > s.granted {
		return inEvent{}, errNoCredit
	}
	s.grow(got)
	s.buf = append(s.buf, data...)
	if !h.Last() {
		return inEvent{}, nil
	}
	ev := f.remove(s)
	ev.frame, ev.held, ev.freed = s.buf, s.held, 0
	return ev, nil
}

// growth bounds what a stream's buffer costs by what has arrived of it: who opens streams and gives them up again must not
// have megabytes cleared for a few bytes.
const growth = 4

// grow makes room for n bytes in all.
func (s *inStream) grow(n int) {
	if n > cap(s.buf) {
		s.buf = append(make([]byte, 0, min(s.total, growth*n)), s.buf...)
	}
}

// open makes a stream; nil when the budget can't even take what the peer may send at once.
func (f *inflow) open(b *Budget, now int64, id uint32, total int) *inStream {
	s := &inStream{id: id, total: total, granted: min(total, wire.InitialCredit), asked: now, since: now}
	if !b.charge(int64(s.granted)) {
		return nil
	}
	s.held = int64(s.granted)
	if s.granted == total {
		s.state = reserved
	}
	f.streams = append(f.streams, s)
	return s
}

func (f *inflow) find(id uint32) *inStream {
	for _, s := range f.streams {
		if s.id == id {
			return s
		}
	}
	return nil
}

// remove closes a stream; what it held is to be given back unless its frame is complete.
func (f *inflow) remove(s *inStream) inEvent {
	for i, o := range f.streams {
		if o == s {
			f.streams = append(f.streams[:i], f.streams[i+1:]...)
			break
		}
	}
	if s.state != unreserved {
		f.reserved -= s.rest()
	}
	return inEvent{freed: s.held, cancel: s.cancel}
}

// rest is what a stream reserves beyond its initial credit.
func (s *inStream) rest() int64 { return int64(s.total - min(s.total, wire.InitialCredit)) }

func (f *inflow) abort(id uint32, s *inStream) inEvent {
	if s == nil {
		f.forget(id) // one that we refused, or that crossed our refusal
		return inEvent{}
	}
	return f.remove(s)
}

func (f *inflow) refuses(id uint32) bool {
	for _, r := range f.refused {
		if r == id {
			return true
		}
	}
	return false
}

func (f *inflow) refuse(id uint32, over bool) {
	if over || f.refuses(id) {
		return
	}
	if len(f.refused) >= maxRefused {
		f.refused = f.refused[1:] // its sender has been told 64 refusals ago
	}
	f.refused = append(f.refused, id)
}

func (f *inflow) forget(id uint32) {
	for i, r := range f.refused {
		if r == id {
			f.refused = append(f.refused[:i], f.refused[i+1:]...)
			return
		}
	}
}

// wanting answers the next stream whose reservation may be asked for now, and marks it as asking.
func (f *inflow) wanting(now int64) *inStream {
	for _, s := range f.streams {
		if s.state == unreserved && (f.reserved == 0 || f.reserved+s.rest() <= maxIncoming) {
			s.state, s.asked = reserving, now
			f.reserved += s.rest()
			return s
		}
	}
	return nil
}

// reservedNow notes that s has its reservation; false: the stream is gone and the bytes are to be given back.
func (f *inflow) reservedNow(s *inStream, now int64) bool {
	if f.find(s.id) != s {
		return false
	}
	s.state, s.cancel = reserved, nil
	s.held += s.rest()
	s.mark, s.since = len(s.buf), now
	return true
}

// grants gives credit to streams that have run low, in fair parts of what the session may have outstanding, and reports
// whether it did. It is noted at the stream: what is given to one that ends before it was told costs nothing.
func (f *inflow) grants(now int64) (given bool) {
	outstanding := 0
	for _, s := range f.streams {
		outstanding += s.granted - len(s.buf)
	}
	for _, s := range f.streams {
		left := s.total - s.granted
		if s.state != reserved || left == 0 {
			continue
		}
		have := s.granted - len(s.buf)
		share := max(wire.InitialCredit, wire.MaxCredit/len(f.streams))
		n := min(share-have, left, wire.MaxCredit-outstanding)
		if n < left && n < wire.MaxPartBytes || have > share/2 {
			continue // little credits cost more than they bring
		}
		if have == 0 {
			s.mark, s.since = len(s.buf), now // the clock stood while there was no credit
		}
		s.granted += n
		outstanding += n
		s.due += n
		given = true
	}
	return given
}

// credits reports whether a stream is to be told of credit.
func (f *inflow) credits() bool {
	for _, s := range f.streams {
		if s.due > 0 {
			return true
		}
	}
	return false
}

// late answers a stream to refuse: the budget had no room for too long, or it had credit and didn't move 32 KiB in its
// time. The streams of a session share its link, so each has so many times 10 s as there are. One that waits for others
// of its own session waits as long as they take: it holds no more than its first 64 KiB.
func (f *inflow) late(now int64) (s *inStream, why string) {
	limit := int64(stallFor) * int64(max(1, len(f.streams)))
	for _, s := range f.streams {
		switch {
		case s.state == reserving && now-s.asked >= int64(budgetFor):
			return s, "there is no memory for this frame now"
		case len(s.buf)-s.mark >= wire.MaxPartBytes:
			s.mark, s.since = len(s.buf), now
		case s.granted > len(s.buf) && now-s.since >= limit:
			return s, "the frame's parts came too slowly"
		}
	}
	return nil, ""
}

// arriving reports whether a part came in the last so many nanoseconds.
func (f *inflow) arriving(now int64, within time.Duration) bool {
	return f.lastPart > 0 && now-f.lastPart < int64(within)
}
