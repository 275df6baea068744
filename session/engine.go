package session

import (
	"context"
	"sync"
	"time"

	"pushrelay/wire"
)

// Times of the transport that no setting changes.
const (
	stallFor    = 10 * time.Second // a write that doesn't move, and 32 KiB of a stream that has credit
	budgetFor   = 10 * time.Second // a stream may wait for its reservation
	creditFor   = 30 * time.Second // we may wait for a peer's credit: it has 10 s, and we don't want to be first
	finishFor   = 5 * time.Second  // from the decision to end to the close frame
	farewellFor = 5 * time.Second  // from there to the peer's own close frame
)

// Bounds of the transport that no setting changes, in bytes where nothing else is said.
const (
	maxControlLane = 256 << 10 // of a relay; a client's lane is bounded by what may be unanswered
	maxBulkItems   = 1024      // waiting on one lane
	maxLoaded      = 16 << 20  // of one session's bulk lane; one frame is always allowed
	maxIncoming    = 16 << 20  // reserved for the streams that one session receives; one is always allowed
	writeRound     = 64 << 10  // framed before it is written; frames that are ready together leave in one write
	smallRead      = 4 << 10
	largeRead      = wire.MaxPartBytes + 64
)

// engine is what all links of one Server or Client share. Immutable.
type engine struct {
	budget  *Budget
	workers *pool
	client  bool // masks what it sends, and sends neither pings nor error frames of its own

	controlLane      int64 // bytes
	idleAfter        time.Duration
	pingMin, pingMax time.Duration   // the relay's
	random           func() float64  // in [0, 1)
	outs             sync.Pool       // *[]byte that the writer frames into
	smalls, larges   sync.Pool       // *[]byte that the reader reads into
	scanners         sync.Pool       // *scanner
	background       context.Context // never ends: an ended one would cut the connection without a close frame
}

func newEngine(budget *Budget, workers *pool) *engine {
	e := &engine{budget: budget, workers: workers, controlLane: maxControlLane, background: context.Background()}
	e.outs.New = func() any { b := make([]byte, 0, 2<<10); return &b }
	e.smalls.New = func() any { b := make([]byte, smallRead); return &b }
	e.larges.New = func() any { b := make([]byte, largeRead); return &b }
	e.scanners.New = func() any { return new(scanner) }
	return e
}

// pingDelay is how long after now the next ping is due, jittered so that sessions don't ping in step.
func (e *engine) pingDelay() time.Duration {
	return e.pingMin + time.Duration(e.random()*float64(e.pingMax-e.pingMin))
}
