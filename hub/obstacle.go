package hub

import (
	"cmp"
	"slices"
	"time"

	"pushrelay/hub/projection"
	"pushrelay/store"
	"pushrelay/wire"
)

// Obstacle is a reason why a queued job isn't claimed. Count of Of devices are concerned, where devices are; Until is when
// it ends by itself at the latest, zero when that isn't known.
type Obstacle struct {
	Code      ObstacleCode
	Count, Of int
	Until     time.Time
}

// ObstacleCode is a word of a closed set.
type ObstacleCode string

// Codes of obstacles. Next isn't one: nothing is in the way, and the job's turn comes.
const (
	ObstacleCancelled   ObstacleCode = "cancelled"         // its site cancelled it
	ObstacleDraining    ObstacleCode = "draining"          // this relay is going away and claims nothing new
	ObstacleUnknownSite ObstacleCode = "unknown-site"      // no route: the projection doesn't know the site
	ObstacleNoConsent   ObstacleCode = "no-consent"        // no route: the owner has no consent for the site
	ObstacleRevoked     ObstacleCode = "revoked"           // no route: the owner revoked it
	ObstaclePaused      ObstacleCode = "paused-consent"    // the owner's consent is paused
	ObstacleNoSite      ObstacleCode = "no-site-session"   // nobody is there who would seal
	ObstacleSiteSilent  ObstacleCode = "site-silent"       // no session of the site answers seal requests
	ObstacleSiteBytes   ObstacleCode = "site-bytes"        // the site has too many bytes of envelopes here
	ObstacleNoDevice    ObstacleCode = "no-device"         // the projection has no device that may run it
	ObstacleOffline     ObstacleCode = "nobody-connected"  // no device that may run it is connected
	ObstacleVersion     ObstacleCode = "other-version"     // connected devices speak another version of the protocol
	ObstacleKind        ObstacleCode = "nobody-with-kind"  // connected devices don't offer this kind
	ObstacleAsleep      ObstacleCode = "all-paused"        // their daemons are paused
	ObstacleUnanswered  ObstacleCode = "unanswered"        // they left an offer unanswered and get no more until they are ready
	ObstacleBarred      ObstacleCode = "refused-by-all"    // they refused it, or gave it back for a while
	ObstacleRefusing    ObstacleCode = "refuses-the-queue" // they refused too many jobs of its queue
	ObstacleBusy        ObstacleCode = "all-busy"          // all slots are taken
	ObstacleNoGrants    ObstacleCode = "no-grants"         // the control plane can't be asked for the grants that devices need
	ObstacleDeclined    ObstacleCode = "grants-declined"   // it declined so many of the route that devices leave it alone for a while
	ObstacleUnsealed    ObstacleCode = "unsealed"          // so many grants of the route wait for the site's seal
	Next                ObstacleCode = "next"
)

// ObstacleCodes answers all codes, the most general obstacle first.
func ObstacleCodes() []ObstacleCode {
	return []ObstacleCode{
		ObstacleCancelled, ObstacleDraining, ObstacleUnknownSite, ObstacleNoConsent, ObstacleRevoked, ObstaclePaused, ObstacleNoSite,
		ObstacleSiteSilent, ObstacleSiteBytes, ObstacleNoGrants, ObstacleNoDevice, ObstacleOffline, ObstacleVersion, ObstacleKind, ObstacleAsleep,
		ObstacleUnanswered, ObstacleBarred, ObstacleRefusing, ObstacleDeclined, ObstacleBusy, ObstacleUnsealed, Next,
	}
}

// sitePresence is who would seal.
type sitePresence uint8

const (
	siteAbsent sitePresence = iota
	siteSilent
	sitePresent
)

// siteFacts are what is known of a site: by the store its bytes, by the hub the rest.
type siteFacts struct {
	draining  bool
	presence  sitePresence
	bytes     int64
	bytesMost int64
}

// routeFacts are what is known of the queue that a job waits in. devices are all that may have its jobs by the projection,
// connected or not.
type routeFacts struct {
	unsealed     int
	unsealedMost int
	noGrants     bool // its dialect needs them, and the control plane can't be asked just now
	devices      []deviceFacts
}

// deviceFacts are what is known of one device. Only runner is set for one that isn't connected; an empty dialect and nil
// kinds aren't known, as of one that polls and said little.
type deviceFacts struct {
	runner       string
	connected    bool
	dialect      wire.Dialect
	kinds        []string
	paused, deaf bool
	slots, held  int
	declined     bool       // it leaves the route alone, because the control plane declined so much of it
	bar          *store.Bar // from this job; nil: none
}

// explain answers why a queued job isn't claimed: the most general obstacle first, each of which is enough; Next when there
// is none. It is pure: the same facts get the same answer.
func explain(j *JobView, s siteFacts, r routeFacts, p *projection.Projection) []Obstacle {
	var out []Obstacle
	add := func(is bool, o Obstacle) {
		if is {
			out = append(out, o)
		}
	}
	add(j.Cancelled, Obstacle{Code: ObstacleCancelled})
	add(s.draining, Obstacle{Code: ObstacleDraining})
	if code := noRoute(j, p); code != "" {
		out = append(out, Obstacle{Code: code})
	}
	add(s.presence == siteAbsent, Obstacle{Code: ObstacleNoSite})
	add(s.presence == siteSilent, Obstacle{Code: ObstacleSiteSilent})
	add(s.bytes > s.bytesMost, Obstacle{Code: ObstacleSiteBytes})
	add(r.noGrants, Obstacle{Code: ObstacleNoGrants})
	if noRoute(j, p) == "" {
		out = append(out, amongDevices(j, r.devices)...)
	}
	add(r.unsealed >= r.unsealedMost, Obstacle{Code: ObstacleUnsealed, Count: r.unsealed, Of: r.unsealedMost})
	if len(out) == 0 {
		out = append(out, Obstacle{Code: Next})
	}
	return out
}

// noRoute answers what keeps the job's route from being one that may be used; empty when nothing does.
func noRoute(j *JobView, p *projection.Projection) ObstacleCode {
	_, known := p.SiteByID(j.Site)
	switch {
	case !known:
		return ObstacleUnknownSite
	case p.Withdrawn(j.Site, j.Owner):
		return ObstacleRevoked
	case !p.Stands(j.Site, j.Owner):
		return ObstacleNoConsent
	case p.Paused(j.Site, j.Owner):
		return ObstaclePaused
	}
	return ""
}

// amongDevices answers nothing when a device could take the job now; else what keeps each from it, what is nearest to its
// end first: busy devices have room again, refusals last.
func amongDevices(j *JobView, devices []deviceFacts) []Obstacle {
	if len(devices) == 0 {
		return []Obstacle{{Code: ObstacleNoDevice}}
	}
	var out []Obstacle
	for i := range devices {
		o := ofDevice(j, &devices[i])
		if o.Code == "" {
			return nil
		}
		at := slices.IndexFunc(out, func(p Obstacle) bool { return p.Code == o.Code })
		if at < 0 {
			out, at = append(out, Obstacle{Code: o.Code, Of: len(devices)}), len(out)
		}
		out[at].Count++
		out[at].Until = earliest(out[at].Until, o.Until) // the first that is over frees the job
	}
	codes := ObstacleCodes()
	slices.SortFunc(out, func(a, b Obstacle) int {
		return -cmp.Compare(slices.Index(codes, a.Code), slices.Index(codes, b.Code))
	})
	return out
}

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// ofDevice answers what keeps one device from the job; an empty code when nothing does.
func ofDevice(j *JobView, d *deviceFacts) Obstacle {
	switch {
	case !d.connected:
		return Obstacle{Code: ObstacleOffline}
	case d.dialect != "" && d.dialect != j.Dialect:
		return Obstacle{Code: ObstacleVersion}
	case d.kinds != nil && !slices.Contains(d.kinds, j.Kind):
		return Obstacle{Code: ObstacleKind}
	case d.paused:
		return Obstacle{Code: ObstacleAsleep}
	case d.deaf:
		return Obstacle{Code: ObstacleUnanswered}
	case d.bar != nil && d.bar.Queue:
		return Obstacle{Code: ObstacleRefusing, Until: d.bar.Until}
	case d.bar != nil:
		return Obstacle{Code: ObstacleBarred, Until: d.bar.Until}
	case d.declined:
		return Obstacle{Code: ObstacleDeclined}
	case d.held >= d.slots:
		return Obstacle{Code: ObstacleBusy}
	}
	return Obstacle{}
}
