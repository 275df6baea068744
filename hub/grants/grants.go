// Package grants asks the control plane, after a claim and before its push, whether the device may run what it claimed
// (design, section 4). The control plane answers with a signed grant or declines; the relay holds no key that could sign,
// it only verifies.
//
//	hub --Submit--> Asker: one line, few requests at once, many jobs in each --Endpoint--> control plane
//	hub <--done--   verdicts, in the order of the jobs
//
// Everything but a fresh grant that fits its job and is signed by the control plane means "not now" (it fails closed). The
// endpoint's slowness costs those who wait for it only: Submit never blocks, and what waits too long isn't asked any more.
package grants

import (
	"context"

	"pushrelay/wire"
)

// Verdict is what becomes of one claimed job. The zero value declines for the time being.
type Verdict struct {
	Grant *wire.SignedGrant // not nil: verified, to be passed on
	Never bool              // this device never gets the job
}

// Endpoint asks the control plane for one batch of at most wire.MaxGrantJobs jobs. It blocks until ctx ends at the latest.
type Endpoint interface {
	Ask(ctx context.Context, runners []*wire.GrantRunner) ([]wire.GrantAnswer, error)
}

// Outcome is what became of a job's question, for metrics; a closed set.
type Outcome uint8

// Outcomes.
const (
	Signed    Outcome = iota // a good grant
	Declined                 // not now
	Forbidden                // never
	Invalid                  // a grant that is worth nothing
	Failed                   // no answer: the endpoint failed, or was too slow
	outcomes
)

// String answers the outcome's label.
func (o Outcome) String() string {
	names := [outcomes]string{"signed", "declined", "forbidden", "invalid", "failed"}
	if o < outcomes {
		return names[o]
	}
	return "unknown"
}

// Outcomes answers all of them, so that every series exists from the start.
func Outcomes() []Outcome { return []Outcome{Signed, Declined, Forbidden, Invalid, Failed} }

// relayMaxAgeMs leaves a grant half a minute of its life on arrival at the device.
const relayMaxAgeMs = wire.GrantMaxAgeMs - 30_000
