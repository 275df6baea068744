package poll

import (
	"sync"
	"time"

	"github.com/rs/zerolog"

	"pushrelay/wire"
)

// refusedEvery is how often a class of refusals is logged at most.
const refusedEvery = time.Minute

// refusals logs what is refused: a line for each class (endpoint and code), then one a minute with how many there were.
// Nothing that a client wrote is in it but the id of a caller that the projection knows.
type refusals struct {
	log zerolog.Logger

	mu sync.Mutex
	by map[class]*noted // bounded: endpoints times codes
}

type class struct {
	endpoint string
	code     wire.ErrorCode
}

type noted struct {
	logged time.Time
	since  int // refusals since that line
}

func newRefusals(log zerolog.Logger) *refusals { return &refusals{log: log, by: map[class]*noted{}} }

func (f *refusals) note(q *request, code wire.ErrorCode) {
	if code == wire.CodeNotReady {
		return // it only says to ask again
	}
	now := time.Now()
	c := class{q.name(), code}
	f.mu.Lock()
	n := f.by[c]
	if n == nil {
		n = &noted{}
		f.by[c] = n
	}
	n.since++
	count := n.since
	due := now.Sub(n.logged) >= refusedEvery
	if due {
		n.logged, n.since = now, 0
	}
	f.mu.Unlock()
	if !due {
		return
	}
	line := f.log.Info().Str("event", "poll-refused").Str("endpoint", c.endpoint).Str("code", string(code)).Int("count", count)
	if q.known {
		line = line.Str("caller", q.Caller)
	}
	line.Msg("polling requests are refused")
}
