package disk_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"pushrelay/store"
	"pushrelay/store/disk"
	"pushrelay/store/storetest"
)

func TestRenewChangesTheEpochAndNothingElse(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	dir := t.TempDir()
	_, err := disk.Renew(t.Context(), dir)
	require.Error(t, err, "there is no store")
	s := open(t, dir, store.Settings{}, clock)
	before, err := s.Epoch(t.Context())
	require.NoError(t, err)
	_, err = disk.Renew(t.Context(), dir)
	var locked *disk.LockedError
	require.ErrorAs(t, err, &locked)
	require.NoError(t, s.Close())
	was, err := disk.Inspect(t.Context(), dir)
	require.NoError(t, err)

	epoch, err := disk.Renew(t.Context(), dir)
	require.NoError(t, err)
	require.NotEqual(t, before, epoch)
	is, err := disk.Inspect(t.Context(), dir)
	require.NoError(t, err)
	require.Equal(t, epoch, is.Epoch)
	is.Epoch, is.Free = was.Epoch, was.Free
	require.Equal(t, was, is)
	s = open(t, dir, store.Settings{}, clock)
	now, err := s.Epoch(t.Context())
	require.NoError(t, err)
	require.Equal(t, epoch, now)
	require.NoError(t, s.Close())
}
