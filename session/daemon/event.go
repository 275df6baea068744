package daemon

import (
	"time"

	"pushrelay/wire"
)

// EventType names what happened to a daemon or one of its grants.
type EventType string

// Events of a daemon, for timelines and demos; none of them carries content.
const (
	EventConnected    EventType = "connected"    // Detail: the session id
	EventDisconnected EventType = "disconnected" // Detail: the reason
	EventOffered      EventType = "offered"
	EventAccepted     EventType = "accepted"
	EventReleased     EventType = "released" // Detail: the reason
	EventStarted      EventType = "started"
	EventFinished     EventType = "finished" // Detail: the disposition
	EventReported     EventType = "reported" // Detail: accepted, duplicate or the refusal
	EventCanceled     EventType = "canceled"
	EventLost         EventType = "lost"    // Detail: the reason
	EventSuspect      EventType = "suspect" // no heartbeat was answered within a lease, or the device slept
	EventConfirmed    EventType = "confirmed"
	EventSites        EventType = "sites"
	EventRevoked      EventType = "revoked"
)

// Event is one thing that happened; Grant and Kind are empty when it concerns the whole daemon.
type Event struct {
	At     time.Time
	Type   EventType
	Grant  wire.Grant
	Kind   string
	Detail string // untrusted where it came from the relay
}

func (d *Daemon) event(t EventType, g wire.Grant, kind, detail string) {
	if d.cfg.OnEvent != nil {
		d.cfg.OnEvent(Event{At: d.cfg.wall(), Type: t, Grant: g, Kind: kind, Detail: detail})
	}
}
