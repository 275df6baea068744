package hub

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pushrelay/hub/projection"
	"pushrelay/store"
	"pushrelay/wire"
)

// free is a connected device that could take the job of a case.
func free(change ...func(*deviceFacts)) deviceFacts {
	d := deviceFacts{runner: "d1", connected: true, dialect: wire.Dialect0, kinds: []string{"llm.generate"}, slots: 2}
	for _, f := range change {
		f(&d)
	}
	return d
}

func away(d *deviceFacts)    { d.connected = false }
func foreign(d *deviceFacts) { d.dialect = wire.Dialect2 }
func other(d *deviceFacts)   { d.kinds = []string{"llm.chat"} }
func asleep(d *deviceFacts)  { d.paused = true }
func deaf(d *deviceFacts)    { d.deaf = true }
func busy(d *deviceFacts)    { d.held = d.slots }
func barredUntil(t time.Time, queue bool) func(*deviceFacts) {
	return func(d *deviceFacts) { d.bar = &store.Bar{Runner: d.runner, Until: t, Queue: queue} }
}

func TestWhyAJobIsNotClaimed(t *testing.T) {
	consent := func(f func(e *projection.Example)) *projection.Projection {
		e := new(projection.Example).Site("shop", newParty(t, "shop").identity)
		f(e)
		raw, err := e.Marshal()
		require.NoError(t, err)
		p, err := projection.Parse(raw)
		require.NoError(t, err)
		return p
	}
	stands := consent(func(e *projection.Example) { e.Consent("ada", "shop") })
	paused := consent(func(e *projection.Example) { e.Pause("ada", "shop") })
	revoked := consent(func(e *projection.Example) { e.Consent("ada", "shop").Revoke("ada", "shop") })
	nobody := consent(func(e *projection.Example) { e.Consent("bob", "shop") })
	soon, later := time.Unix(100, 0), time.Unix(200, 0)

	job := JobView{Site: "shop", Job: "j", Owner: "ada", Kind: "llm.generate", Dialect: wire.Dialect0, State: JobQueued}
	good := siteFacts{presence: sitePresent, bytes: 10, bytesMost: 10}
	with := func(d ...deviceFacts) routeFacts { return routeFacts{unsealed: 3, unsealedMost: 4, devices: d} }
	cases := []struct {
		name string
		job  func(*JobView)
		site siteFacts
		r    routeFacts
		p    *projection.Projection
		want []Obstacle
	}{
		{"nothing is in the way", nil, good, with(free()), stands, []Obstacle{{Code: Next}}},
		{"one free device is enough", nil, good, with(free(away), free(busy), free(), free(other)), stands, []Obstacle{{Code: Next}}},
		{"cancelled", func(j *JobView) { j.Cancelled = true }, good, with(free()), stands, []Obstacle{{Code: ObstacleCancelled}}},
		{"draining", nil, siteFacts{draining: true, presence: sitePresent}, with(free()), stands, []Obstacle{{Code: ObstacleDraining}}},
		{"no site session", nil, siteFacts{}, with(free()), stands, []Obstacle{{Code: ObstacleNoSite}}},
		{"site silent", nil, siteFacts{presence: siteSilent}, with(free()), stands, []Obstacle{{Code: ObstacleSiteSilent}}},
		{"too many bytes", nil, siteFacts{presence: sitePresent, bytes: 11, bytesMost: 10}, with(free()), stands, []Obstacle{{Code: ObstacleSiteBytes}}},
		{"unknown site", func(j *JobView) { j.Site = "gone" }, good, with(), stands, []Obstacle{{Code: ObstacleUnknownSite}}},
		{"no consent", nil, good, with(), nobody, []Obstacle{{Code: ObstacleNoConsent}}},
		{"revoked", nil, good, with(), revoked, []Obstacle{{Code: ObstacleRevoked}}},
		{"paused consent", nil, good, with(), paused, []Obstacle{{Code: ObstaclePaused}}},
		{"no device", nil, good, with(), stands, []Obstacle{{Code: ObstacleNoDevice}}},
		{"nobody connected", nil, good, with(free(away), free(away)), stands, []Obstacle{{Code: ObstacleOffline, Count: 2, Of: 2}}},
		{"nobody with that kind", nil, good, with(free(other)), stands, []Obstacle{{Code: ObstacleKind, Count: 1, Of: 1}}},
		{"another version", nil, good, with(free(foreign, other)), stands, []Obstacle{{Code: ObstacleVersion, Count: 1, Of: 1}}},
		{"all paused", nil, good, with(free(asleep, busy)), stands, []Obstacle{{Code: ObstacleAsleep, Count: 1, Of: 1}}},
		{"an offer unanswered", nil, good, with(free(deaf)), stands, []Obstacle{{Code: ObstacleUnanswered, Count: 1, Of: 1}}},
		{"the control plane is out", nil, good, routeFacts{unsealedMost: 4, noGrants: true, devices: []deviceFacts{free()}}, stands, []Obstacle{{Code: ObstacleNoGrants}}},
		{"the control plane declines", nil, good, with(free(func(d *deviceFacts) { d.declined = true })), stands, []Obstacle{{Code: ObstacleDeclined, Count: 1, Of: 1}}},
		{"all busy", nil, good, with(free(busy), free(busy)), stands, []Obstacle{{Code: ObstacleBusy, Count: 2, Of: 2}}},
		{"refused for good", nil, good, with(free(barredUntil(time.Time{}, false))), stands, []Obstacle{{Code: ObstacleBarred, Count: 1, Of: 1}}},
		{
			"given back for a while: the first that may have it again counts", nil, good,
			with(free(barredUntil(later, false)), free(barredUntil(soon, false)), free(barredUntil(time.Time{}, false))), stands,
			[]Obstacle{{Code: ObstacleBarred, Count: 3, Of: 3, Until: soon}},
		},
		{
			"refused too many of the queue", nil, good, with(free(barredUntil(soon, true), busy)), stands,
			[]Obstacle{{Code: ObstacleRefusing, Count: 1, Of: 1, Until: soon}},
		},
		{
			"what is nearest to its end first", nil, good, with(free(away), free(other), free(busy), free(barredUntil(soon, false))), stands,
			[]Obstacle{
				{Code: ObstacleBusy, Count: 1, Of: 4},
				{Code: ObstacleBarred, Count: 1, Of: 4, Until: soon},
				{Code: ObstacleKind, Count: 1, Of: 4},
				{Code: ObstacleOffline, Count: 1, Of: 4},
			},
		},
		{
			"too many wait for their seal", nil, good,
			routeFacts{unsealed: 4, unsealedMost: 4, devices: []deviceFacts{free()}},
			stands,
			[]Obstacle{{Code: ObstacleUnsealed, Count: 4, Of: 4}},
		},
		{
			"several at once, the most general first", func(j *JobView) { j.Cancelled = true },
			siteFacts{draining: true, bytes: 2, bytesMost: 1},
			with(free(away)), stands,
			[]Obstacle{
				{Code: ObstacleCancelled},
				{Code: ObstacleDraining},
				{Code: ObstacleNoSite},
				{Code: ObstacleSiteBytes},
				{Code: ObstacleOffline, Count: 1, Of: 1},
			},
		},
	}
	named := map[ObstacleCode]bool{}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			j := job
			if c.job != nil {
				c.job(&j)
			}
			require.Equal(t, c.want, explain(&j, c.site, c.r, c.p))
		})
		for _, o := range c.want {
			named[o.Code] = true
		}
	}
	for _, code := range ObstacleCodes() {
		require.True(t, named[code], "no case has %s", code)
	}
}
