//go:build !race

package crash

// killsByDefault is how often relays are killed when CRASH_KILLS doesn't say.
const killsByDefault = 100
