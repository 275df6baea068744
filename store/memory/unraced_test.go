//go:build !race

package memory

// undoSeeds is how many random lives have groups undone.
const undoSeeds = 6
