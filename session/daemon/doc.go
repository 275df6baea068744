// Package daemon is a device's end of the push protocol: it takes offered jobs, runs them and reports sealed results.
//
// The life of a grant here:
//
//	claimed ──▶ offered ──accept──▶ awaiting ──payload──▶ running ──▶ finished ──answered──▶ gone
//	               │                   │                     │            │
//	               └────── release ────┴───── lost, cancel ──┴─── lost ───┘
//
// A payload is run only when it verifies: sealed to this device, signed by the site that the stub names, for this job
// and this deadline. A grant is run once: a copy of its payload finds it past awaiting, and finished grants are on record
// in StateDir. Results are written there, sealed to the site, before they are sent, and kept until the relay answered.
//
// Locks: Daemon.mu guards the grants, the sites and the link; nothing is sent, written to disk, logged or called back
// while it is held.
package daemon
