package store

import "time"

// Settings are the numbers of section 3 that an operator may change. Zero values mean the default of each.
type Settings struct {
	PayloadWindow    time.Duration // 10 s: how long a site has to seal after an accept
	MaxDeadline      time.Duration // 7 days: a deadline counts as at most this far ahead
	ResultRetention  time.Duration // 24 h: uncollected results and notices stay so long, from their making
	JobsPerSite      int           // 100,000
	BytesPerSite     int64         // 256 MiB of envelopes; over it nothing more of the site is claimed
	UnsealedPerRoute int           // 4 grants of one route waiting for their seal
}

// WithDefaults fills zero values.
func (s Settings) WithDefaults() Settings {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&s.PayloadWindow, 10*time.Second)
	def(&s.MaxDeadline, 7*24*time.Hour)
	def(&s.ResultRetention, 24*time.Hour)
	if s.JobsPerSite <= 0 {
		s.JobsPerSite = 100_000
	}
	if s.BytesPerSite <= 0 {
		s.BytesPerSite = 256 << 20
	}
	if s.UnsealedPerRoute <= 0 {
		s.UnsealedPerRoute = 4
	}
	return s
}

// Numbers of section 3 that are not settings.
const (
	SealingWindow = 60 * time.Second // after a sealing
	MaxWaits      = 3                // payload windows in vain, then dropped as unsealed
	MaxLapses     = 5                // then dropped as lapsed
	MaxTakes      = 8                // of one grant's payload; the next take is a lapse
	MaxSkipped    = 256              // jobs that one claim may pass over
	MaxFired      = 256              // due times that one Sweep or Claim fires
	RefusalStreak = 16               // refusals in a row in one queue, then the runner waits
	RefusalWait   = 10 * time.Minute // doubling with each further streak, to a day
	MaxOffer      = 5 * time.Minute  // the longest a doubled offer lasts
	MaxNotFor     = 5 * time.Minute  // the longest that a release keeps its runner from the job, unless it is for ever
	TombstoneMin  = 5 * time.Minute
	TombstoneMax  = 24 * time.Hour
	NoticeMin     = 5 * time.Minute // a notice stays until the deadline, at least so long, at most ResultRetention
	SweeperAway   = 5 * time.Second // no sweep for longer: leases get the gap as grace
)
