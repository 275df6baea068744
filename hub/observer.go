package hub

import "pushrelay/store"

// Counter names something that is counted; its words are a closed set, fit for metric labels.
type Counter uint8

// Counters.
const (
	CountClaims        Counter = iota // claims asked of the store
	CountEmptyClaims                  // claims that granted nothing
	CountGranted                      // jobs granted
	CountWithdrawn                    // grants given back because their route doesn't stand any more
	CountOffers                       // offers taken for sites
	CountSealRequests                 // seal requests pushed
	CountPayloads                     // payloads pushed
	CountResults                      // results pushed, repeated ones too
	CountNotices                      // notices pushed, repeated ones too
	CountSilent                       // sites' sessions that left an offer unanswered
	CountPushes                       // frames pushed on the control lane
	CountUnreadable                   // records left out because this build or projection can't read them
	CountRefusedFrames                // requests that were refused
	CountStoreErrors                  // store calls that failed
	CountResyncs                      // resyncs that an event asked for
	CountSuperseded                   // sessions that a newer one replaced
	counters
)

// String answers the counter's label.
func (c Counter) String() string {
	names := [counters]string{
		"claims", "empty-claims", "granted", "withdrawn", "offers", "seal-requests", "payloads", "results", "notices", "silent",
		"pushes", "unreadable", "refused-frames", "store-errors", "resyncs", "superseded",
	}
	if c < counters {
		return names[c]
	}
	return "unknown"
}

// Counters answers all of them, so that every series exists from the start.
func Counters() []Counter {
	out := make([]Counter, counters)
	for i := range out {
		out[i] = Counter(i)
	}
	return out
}

// Whys answers all reasons of drops and ends, so that every series exists from the start.
func Whys() []store.Why {
	return []store.Why{
		store.WhyReleased, store.WhyRefused, store.WhyUnaccepted, store.WhyCut, store.WhyWindow, store.WhyDeclined,
		store.WhyLapsed, store.WhyAbandoned, store.WhyWithdrawn, store.WhyDeadline, store.WhyUnsealed, store.WhyCancelled,
	}
}

// Observer hears what the hub does, for metrics. Its methods must not block; n is positive.
type Observer interface {
	Count(c Counter, n int)
	// Ended and Dropped count grants and jobs by why, once on every replica: sum over one only.
	Ended(why store.Why)
	Dropped(why store.Why)
	// Done counts results by disposition as the store recorded them, once on every replica.
	Done(disposition string)
}

type deafObserver struct{}

func (deafObserver) Count(Counter, int) {}
func (deafObserver) Ended(store.Why)    {}
func (deafObserver) Dropped(store.Why)  {}
func (deafObserver) Done(string)        {}
