package disk_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"pushrelay/store"
	"pushrelay/store/disk"
	"pushrelay/store/memory"
	"pushrelay/store/storetest"
)

// kept is a store with the folder that it can be opened from again.
type kept struct {
	*disk.Store
	dir string
}

func open(t testing.TB, dir string, s store.Settings, clock *storetest.Clock) *kept {
	t.Helper()
	st, err := disk.Open(t.Context(), disk.Options{Dir: dir, Settings: s, Clock: clock.Now})
	require.NoError(t, err)
	return &kept{st, dir}
}

func factory() storetest.Factory {
	return storetest.Factory{
		Open: func(t testing.TB, s store.Settings, clock *storetest.Clock) store.RoutingStore {
			return open(t, t.TempDir(), s, clock)
		},
		Reopen: func(t testing.TB, old store.RoutingStore, s store.Settings, clock *storetest.Clock) store.RoutingStore {
			require.NoError(t, old.Close())
			return open(t, old.(*kept).dir, s, clock)
		},
		Fail: func(t testing.TB, st store.RoutingStore, away bool) {
			t.Helper()
			if away {
				require.NoError(t, st.(*kept).FailAt(disk.BeforeCommit))
			} else {
				require.NoError(t, st.(*kept).FailAt(0))
			}
		},
	}
}

func TestContract(t *testing.T) {
	t.Parallel() // it mostly waits for the disk
	storetest.Run(t, factory())
}

func TestModel(t *testing.T) { storetest.RunModel(t, factory()) }

func TestBesideMemory(t *testing.T) {
	storetest.RunPair(t, storetest.Factory{
		Open: func(_ testing.TB, s store.Settings, clock *storetest.Clock) store.RoutingStore {
			return memory.New(memory.Options{Settings: s, Clock: clock.Now})
		},
	}, factory())
}
