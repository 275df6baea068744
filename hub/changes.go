package hub

import (
	"context"
	"time"

	"pushrelay/store"
	"pushrelay/wire"
)

// ChangeType is what happened to a job, as operators are told of it.
type ChangeType uint8

// Changes of jobs, with the fields that each carries beside Site, Job, Owner, Kind, Private and Dialect.
const (
	ChangeQueued    ChangeType = iota + 1 // Why: of the grant that ended; empty for a new job
	ChangeOffered                         // Runner
	ChangeAccepted                        // Runner
	ChangeReady                           // Runner
	ChangeRunning                         // Runner
	ChangeDone                            // Runner, Disposition, Age
	ChangeEnded                           // Runner, Why; ChangeQueued or ChangeDropped follows
	ChangeDropped                         // Why
	ChangeCancel                          // Runner
	ChangeCollected                       // the result, or the notice of a dropped one
	ChangeResync                          // some were missed: read again
)

// String answers the change's word.
func (c ChangeType) String() string {
	switch c {
	case ChangeQueued:
		return "queued"
	case ChangeOffered:
		return "offered"
	case ChangeAccepted:
		return "accepted"
	case ChangeReady:
		return "ready"
	case ChangeRunning:
		return "running"
	case ChangeDone:
		return "done"
	case ChangeEnded:
		return "ended"
	case ChangeDropped:
		return "dropped"
	case ChangeCancel:
		return "cancel"
	case ChangeCollected:
		return "collected"
	case ChangeResync:
		return "resync"
	}
	return "unknown"
}

// Change tells operators of one step of one job. Its words are ids and reasons; it never holds content.
type Change struct {
	Type                   ChangeType
	At                     time.Time // when it happened, by the store's clock
	Site, Job, Owner, Kind string
	Private                bool // only its owner's own devices may have it
	Dialect                wire.Dialect
	Lease, Runner          string
	Why                    string
	Disposition            string
	Age                    time.Duration // ChangeDone: since it was enqueued
}

// Changes is a bounded stream of what happens to all jobs. For one reader at a time; Close it.
type Changes struct {
	hub *Hub
	w   store.Watcher
	buf []Change
}

// Changes begins to listen. Listen first, then read: what is read later is at least as new as what was told before.
func (h *Hub) Changes() *Changes { return &Changes{hub: h, w: h.store.Watch(store.Interest{})} }

// Wait blocks until there is at least one change and answers all that wait, in order, in a slice that the next Wait fills
// again. A stream that broke is opened again after a second and tells ChangeResync. The error is ctx's.
func (c *Changes) Wait(ctx context.Context) ([]Change, error) {
	for {
		events, err := c.w.Wait(ctx)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			c.hub.storeFailed(ctx, "watch", err)
			if !pause(ctx, time.Second) {
				return nil, ctx.Err()
			}
			c.w.Close()
			c.w = c.hub.store.Watch(store.Interest{})
			return append(c.buf[:0], Change{Type: ChangeResync, At: c.hub.now()}), nil
		}
		if c.translate(events); len(c.buf) > 0 {
			return c.buf, nil
		}
	}
}

// Close ends the stream.
func (c *Changes) Close() { c.w.Close() }

// idleChanges bounds the memory that is kept between two bursts.
const idleChanges = 4096

func (c *Changes) translate(events []store.Event) {
	clear(c.buf) // or their ids would stay in memory
	if c.buf = c.buf[:0]; cap(c.buf) > idleChanges {
		c.buf = nil
	}
	for i := range events {
		e := &events[i]
		if t := changeOf(e.Type); t != 0 {
			at := time.Unix(0, e.At)
			if e.At == 0 { // one that was missed has no time
				at = c.hub.now()
			}
			c.buf = append(c.buf, Change{
				Type: t, At: at, Site: e.Site, Job: e.Job, Owner: e.Owner, Kind: e.Kind, Private: e.Private, Dialect: e.Dialect,
				Lease: e.Lease, Runner: e.Runner, Why: string(e.Why), Disposition: e.Disposition, Age: e.Age,
			})
		}
	}
}

// changeOf answers 0 for events that aren't of jobs.
func changeOf(t store.EventType) ChangeType {
	switch t {
	case store.EventQueued:
		return ChangeQueued
	case store.EventOffered:
		return ChangeOffered
	case store.EventAwaiting:
		return ChangeAccepted
	case store.EventReady:
		return ChangeReady
	case store.EventRunning:
		return ChangeRunning
	case store.EventDone:
		return ChangeDone
	case store.EventEnded:
		return ChangeEnded
	case store.EventDropped:
		return ChangeDropped
	case store.EventCancel:
		return ChangeCancel
	case store.EventCollected:
		return ChangeCollected
	case store.EventResync:
		return ChangeResync
	}
	return 0
}
