package hub

import (
	"errors"
	"fmt"
	"time"
)

// Settings are the hub's numbers. Zero values mean the default of each.
type Settings struct {
	LeaseFor        time.Duration // 60 s: how long a device has a job before it must say that it lives
	OfferFor        time.Duration // 5 s: how long a daemon may leave a claimed job unanswered
	HeartbeatEvery  time.Duration // 20 s; at most a third of LeaseFor
	SilenceFor      time.Duration // 60 s: a session without a byte for so long ends; at most LeaseFor
	PingEvery       time.Duration // 25 s: the longest time between pings, told in welcome; less than half of SilenceFor
	ResyncEvery     time.Duration // 5 s, jittered: what notifications missed is derived again
	PresenceFor     time.Duration // 30 s: a session that isn't renewed counts as gone
	PresenceEvery   time.Duration // 10 s; at most half of PresenceFor
	BackendDownWait time.Duration // 30 s: a daemon that gave a job back as backend-down or pause doesn't get it again so soon
	DeclinedWait    time.Duration // 30 s: a job that the control plane didn't grant isn't offered to that daemon again so soon
	DrainSpread     time.Duration // 10 s: closes of a drain are spread over it
	DrainLimit      time.Duration // 30 s: a drain ends then; more than DrainSpread
	SealOfferFor    time.Duration // 2 s: a site's session has so long to answer a seal request
	ResultOfferFor  time.Duration // 10 s, doubling: and so long to collect a result or a notice
	MuteFor         time.Duration // 30 s: a site that answers no seal request is tried again

	SessionsPerSite  int   // 32, on this replica
	OfferEntries     int   // 64 results, and as many notices, on offer to one session
	OfferBytes       int64 // 16 MiB of results on offer to one session
	UnsealedPerRoute int   // 4; the store's own number, which has the last word
	JobsPerSite      int   // 100,000; the store's own number, as the next one
	BytesPerSite     int64 // 256 MiB; by both it is known which site that polls is about to have no room
	Workers          int   // 64: the most goroutines that call the store for pushes at once

	// Shared says that other replicas use the same store: jobs that they took are left to them for 50 to 150 ms.
	Shared bool
}

func (s Settings) withDefaults() Settings {
	def(&s.LeaseFor, 60*time.Second)
	def(&s.OfferFor, 5*time.Second)
	def(&s.HeartbeatEvery, s.LeaseFor/3)
	def(&s.SilenceFor, min(60*time.Second, s.LeaseFor))
	def(&s.PingEvery, min(25*time.Second, s.SilenceFor*5/12))
	def(&s.ResyncEvery, 5*time.Second)
	def(&s.PresenceFor, 30*time.Second)
	def(&s.PresenceEvery, s.PresenceFor/3)
	def(&s.BackendDownWait, 30*time.Second)
	def(&s.DeclinedWait, 30*time.Second)
	def(&s.DrainSpread, 10*time.Second)
	def(&s.DrainLimit, 30*time.Second)
	def(&s.SealOfferFor, 2*time.Second)
	def(&s.ResultOfferFor, 10*time.Second)
	def(&s.MuteFor, 30*time.Second)
	def(&s.SessionsPerSite, 32)
	def(&s.OfferEntries, 64)
	def(&s.OfferBytes, 16<<20)
	def(&s.UnsealedPerRoute, 4)
	def(&s.JobsPerSite, 100_000)
	def(&s.BytesPerSite, 256<<20)
	def(&s.Workers, 64)
	return s
}

func def[T time.Duration | int | int64](v *T, to T) {
	if *v == 0 {
		*v = to
	}
}

// Check refuses settings under which silence wouldn't be noticed within a lease, or that contradict each other. All
// contradictions are told at once.
func (s Settings) Check() error {
	s = s.withDefaults()
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("hub: "+format, args...))
		}
	}
	check(s.LeaseFor >= time.Second, "leases of %v are too short; use at least 1s", s.LeaseFor)
	check(s.OfferFor > 0 && s.OfferFor < s.LeaseFor, "an offer of %v must be positive and shorter than a lease (%v)", s.OfferFor, s.LeaseFor)
	check(s.HeartbeatEvery > 0 && s.HeartbeatEvery*3 <= s.LeaseFor,
		"a heartbeat every %v can't keep leases of %v; use at most a third", s.HeartbeatEvery, s.LeaseFor)
	check(s.SilenceFor > 0 && s.SilenceFor <= s.LeaseFor,
		"silence is noticed after %v, and leases end after %v; notice it within a lease", s.SilenceFor, s.LeaseFor)
	check(s.PingEvery > 0 && s.PingEvery*2 < s.SilenceFor,
		"pings every %v leave no second chance within %v of silence; use less than half", s.PingEvery, s.SilenceFor)
	check(s.ResyncEvery > 0, "resyncs every %v make no sense", s.ResyncEvery)
	check(s.PresenceEvery > 0 && s.PresenceEvery*2 <= s.PresenceFor,
		"presence of %v must be renewed at least twice, so not every %v", s.PresenceFor, s.PresenceEvery)
	check(s.DrainSpread > 0 && s.DrainSpread < s.DrainLimit, "a drain spread over %v must end before its limit of %v", s.DrainSpread, s.DrainLimit)
	check(s.BackendDownWait > 0 && s.DeclinedWait > 0 && s.SealOfferFor > 0 && s.ResultOfferFor > 0 && s.MuteFor > 0, "waits must be positive")
	check(s.SessionsPerSite > 0 && s.OfferEntries > 0 && s.OfferBytes > 0 && s.UnsealedPerRoute > 0 && s.JobsPerSite > 0 && s.BytesPerSite > 0 && s.Workers > 0,
		"limits must be positive")
	return errors.Join(errs...)
}
