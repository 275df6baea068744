package disk_test

import (
	"flag"
	"fmt"
	"strconv"
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
	o := disk.Options{Dir: dir, Settings: s, Clock: clock.Now}
	st, err := disk.Open(t.Context(), o)
	require.NoError(t, err)
	return &kept{st, dir}
}

// openLogged is open with a log of so many entries, which nothing but a later commit settles.
func openLogged(entries int) func(t testing.TB, dir string, s store.Settings, clock *storetest.Clock) *kept {
	return func(t testing.TB, dir string, s store.Settings, clock *storetest.Clock) *kept {
		t.Helper()
		st, err := disk.OpenLog(t.Context(), disk.Options{Dir: dir, Settings: s, Clock: clock.Now}, entries)
		require.NoError(t, err)
		return &kept{st, dir}
	}
}

func factory(open func(t testing.TB, dir string, s store.Settings, clock *storetest.Clock) *kept) storetest.Factory {
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
	storetest.Run(t, factory(open))
}

func TestModel(t *testing.T) {
	logs := []int{0, 3, 1000}
	shareChecks(t, len(logs))
	for _, entries := range logs {
		t.Run(fmt.Sprint(entries, " in the log"), func(t *testing.T) { storetest.RunModel(t, factory(openLogged(entries))) })
	}
}

// shareChecks lets so many runs of the model together be as long as one, unless the caller set its length.
func shareChecks(t *testing.T, runs int) {
	t.Helper()
	const name = "rapid.checks"
	f := flag.Lookup(name)
	if f == nil || f.Value.String() != f.DefValue {
		return
	}
	all, err := strconv.Atoi(f.DefValue)
	require.NoError(t, err)
	require.NoError(t, flag.Set(name, strconv.Itoa(all/runs)))
	t.Cleanup(func() { _ = flag.Set(name, strconv.Itoa(all)) })
}

func TestBesideMemory(t *testing.T) {
	storetest.RunPair(t, storetest.Factory{
		Open: func(_ testing.TB, s store.Settings, clock *storetest.Clock) store.RoutingStore {
			return memory.New(memory.Options{Settings: s, Clock: clock.Now})
		},
	}, factory(openLogged(2)))
}
