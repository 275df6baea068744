package site

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"pushrelay/wire"
	"pushrelay/wire/seal"
)

// Kinds whose payloads have a shape that Submit checks.
const (
	KindGenerate = "llm.generate" // seal.GeneratePayload
	KindChat     = "llm.chat"     // seal.ChatPayload
)

// Job is what a site publishes. Kind, Owner, Deadline and one of Payload and Load are required.
type Job struct {
	ID        string // 1 to 256 bytes, unique within the site; empty means a random one
	Kind      string
	Owner     string // whose devices may run it, as the control plane names the person
	Audience  string // a word of the dialect; empty means its narrowest: the owner's own devices
	Purpose   string // version 2 only
	SizeClass string // small, medium, large or unbounded; empty means as the payload's text is, or medium
	Streaming bool
	Deadline  time.Time // after which nobody wants the result any more; at most 7 days ahead counts

	// Payload is the plaintext, as Encode of seal.GeneratePayload or seal.ChatPayload gives it; kept until the job is over.
	Payload []byte
	// Load fetches the plaintext each time that a device asks for it, so that it needn't be kept in memory. A device waits
	// 10 s, or 60 s once Load has taken three: an error, or more time, gives the job back to the queue.
	Load func(ctx context.Context) ([]byte, error)
}

// entry is a job in the book. Its fields are guarded by Site.mu; those of the first group don't change.
type entry struct {
	id          string
	seq         uint64 // order of submission
	deadlineAt  int64
	submittedAt time.Time
	stub        []byte
	load        func(ctx context.Context) ([]byte, error)
	answered    chan struct{} // closed when the relay first answered

	payload   []byte
	known     bool // the relay answered, in this epoch
	told      bool // answered is closed
	answer    Submitted
	sender    *link // whose enqueue names it just now
	retryAt   time.Time
	withdrawn bool              // cancelled by us
	sealedTo  map[string]string // device's key id by lease id
	sealed    *sealed           // not answered yet
}

// sealed is an envelope that was made for one grant, kept until the relay has it.
type sealed struct {
	leaseID, keyID string
	raw            []byte
}

func (s *Site) newEntry(j Job) (*entry, error) {
	if j.ID == "" {
		j.ID = rand.Text()
	}
	e := &entry{
		id: j.ID, deadlineAt: j.Deadline.UnixMilli(), submittedAt: time.Now(), payload: j.Payload, load: j.Load,
		answered: make(chan struct{}), sealedTo: map[string]string{},
	}
	if (j.Payload == nil) == (j.Load == nil) {
		return e, errors.New("site: a job needs either Payload or Load")
	}
	units, err := checkPayload(j)
	if err != nil {
		return e, err
	}
	if j.Audience == "" {
		j.Audience = s.cfg.Dialect.Audiences()[0]
	}
	if j.SizeClass == "" {
		j.SizeClass = "medium"
		if units > 0 {
			j.SizeClass = seal.SizeClass(units)
		}
	}
	e.stub = wire.AppendStub(nil, wire.Stub{
		ID: j.ID, Kind: j.Kind, Owner: j.Owner, Site: s.cfg.Keys.KeyID(), Audience: j.Audience, Purpose: j.Purpose,
		SizeClass: j.SizeClass, Streaming: j.Streaming, DeadlineAt: e.deadlineAt,
	})
	if _, err := wire.ParseStub(s.cfg.Dialect, e.stub); err != nil {
		return e, fmt.Errorf("site: %w", err)
	}
	return e, nil
}

// checkPayload refuses what no device would accept, while the caller can still do something about it.
func checkPayload(j Job) (units int, err error) {
	if j.Payload == nil {
		return 0, nil
	}
	switch j.Kind {
	case KindGenerate:
		p, err := seal.ParseGenerate(j.Payload)
		return p.Units(), err
	case KindChat:
		p, err := seal.ParseChat(j.Payload)
		return p.Units(), err
	}
	return 0, nil
}
