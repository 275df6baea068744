package site

import "time"

// EventType names what happened to a site or one of its jobs.
type EventType string

// Events of a site, for timelines and demos; none of them carries content.
const (
	EventConnected    EventType = "connected"    // Detail: the session id
	EventDisconnected EventType = "disconnected" // Detail: the reason
	EventEnqueued     EventType = "enqueued"     // Detail: the state that the relay answered
	EventRefused      EventType = "refused"      // Detail: the code
	EventAsked        EventType = "asked"        // a device accepted; Detail: its runner id
	EventSealed       EventType = "sealed"
	EventDeclined     EventType = "declined" // Detail: why
	EventResult       EventType = "result"   // Detail: the disposition
	EventNotice       EventType = "notice"   // Detail: why
	EventRequeued     EventType = "requeued" // Detail: why
	EventCollected    EventType = "collected"
)

// Event is one thing that happened; JobID is empty when it concerns the whole site.
type Event struct {
	At      time.Time
	Type    EventType
	JobID   string
	LeaseID string
	Detail  string // untrusted where it came from the relay
}

func (s *Site) event(t EventType, jobID, leaseID, detail string) {
	if s.cfg.OnEvent != nil {
		s.cfg.OnEvent(Event{At: time.Now(), Type: t, JobID: jobID, LeaseID: leaseID, Detail: detail})
	}
}
