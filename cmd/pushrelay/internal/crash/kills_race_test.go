//go:build race

package crash

// killsByDefault is less with the race detector: it slows the clients down, and the relay that is killed is built without.
const killsByDefault = 24
