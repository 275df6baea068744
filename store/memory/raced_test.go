//go:build race

package memory

// undoSeeds is how many random lives have groups undone: few with the race detector, as they have one goroutine.
const undoSeeds = 1
