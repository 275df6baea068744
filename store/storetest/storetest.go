// Package storetest holds every store to one contract: design, section 3, and the comments of package store.
//
// Run is the suite: one named subtest for each clause. RunModel drives random operations against a slow and simple
// model, RunPair two stores side by side. A store that can't do something says so in Gaps; nothing else is left out.
package storetest

import (
	"testing"

	"pushrelay/store"
)

// Factory opens the store under test. Open is called once for each subtest and must answer an empty store.
type Factory struct {
	Open func(t testing.TB, s store.Settings, clock *Clock) store.RoutingStore
	Gaps Gaps
	// Reopen closes a kept store and opens it again from its medium; nil for stores that keep nothing.
	Reopen func(t testing.TB, old store.RoutingStore, s store.Settings, clock *Clock) store.RoutingStore
	// Fail takes a kept store's medium away, or gives it back: while it's away no change is committed, and the first call
	// after it's back succeeds. nil for stores that keep nothing.
	Fail func(t testing.TB, st store.RoutingStore, away bool)
}

// Gaps names what a store can't do. Each one leaves out the cases that need it, and those show as skipped.
type Gaps struct {
	// NoClock: the store judges by a clock of its own that can't be moved (Valkey's TIME). Nothing that waits is tested.
	NoClock bool
	// Unbounded: events wait outside the process (a broker's buffer), so that an overflow can't be forced here.
	Unbounded bool
	// SharedMemory: what is opened shares its medium with others, so that totals over all sites can't be compared.
	SharedMemory bool
}

// clause is one sentence of the contract and the case that proves it.
type clause struct {
	name string
	set  store.Settings
	run  func(r *rig)
}

// area is a group of clauses, named as the operation they speak of.
type area struct {
	name    string
	clauses []clause
}

func areas() []area {
	return []area{
		{"Enqueue", enqueueClauses},
		{"Claim", claimClauses},
		{"Turns", turnClauses},
		{"Skips", skipClauses},
		{"Accept", acceptClauses},
		{"Seal", sealClauses},
		{"TakePayload", takeClauses},
		{"Complete", completeClauses},
		{"Release", releaseClauses},
		{"Cancel", cancelClauses},
		{"Renew", renewClauses},
		{"Resume", resumeClauses},
		{"Due", dueClauses},
		{"Sweep", sweepClauses},
		{"SetBack", setBackClauses},
		{"Offer", offerClauses},
		{"Collect", collectClauses},
		{"Presence", presenceClauses},
		{"Reads", readClauses},
		{"Operator", operatorClauses},
		{"Watch", watchClauses},
		{"Events", eventClauses},
		{"NoOracle", oracleClauses},
		{"Faults", faultClauses},
		{"Race", raceClauses},
		{"Reopen", reopenClauses},
		{"Outage", outageClauses},
	}
}

// Run holds a store to every clause of the contract, one named subtest each.
func Run(t *testing.T, f Factory) {
	for _, a := range areas() {
		t.Run(a.name, func(t *testing.T) {
			for _, c := range a.clauses {
				t.Run(c.name, func(t *testing.T) { c.run(newRig(t, f, c.set)) })
			}
		})
	}
}
