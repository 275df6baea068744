package crash

import (
	"context"

	"github.com/stretchr/testify/require"

	"pushrelay/store"
	"pushrelay/store/disk"
)

// openCopy opens a copy of a relay's folder.
func openCopy(dir string) (store.RoutingStore, error) {
	return disk.Open(context.Background(), disk.Options{Dir: dir})
}

// empty verifies that nothing but tombstones is left in the folder.
func (w *world) empty(open func(dir string) (store.RoutingStore, error)) {
	w.t.Helper()
	s, err := open(w.copyData())
	require.NoError(w.t, err)
	defer func() { require.NoError(w.t, s.Close()) }()
	stats, err := s.Stats(w.t.Context())
	require.NoError(w.t, err)
	for state, n := range stats.ByState {
		require.Zero(w.t, n, "%d jobs are still %s", n, state)
	}
	require.Zero(w.t, stats.Bytes, "ciphertext is left")
	require.Zero(w.t, stats.Notices)
}
