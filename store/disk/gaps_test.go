package disk

import (
	"bytes"
	"encoding/binary"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"pushrelay/store/memory"
)

// What an element of a page names begins where that of the one before ends. Otherwise a damaged place can lie in the key before
// it, still be in order, and the store's state wouldn't be found: the file would seem to be one that has none yet.
func TestAPlaceThatWasDamaged(t *testing.T) {
	p := stopped(t, 3)
	p.begin(p.dir(), logEntries)
	p.do(func(*memory.Machine) { p.s.limits.leave = false })
	require.NoError(t, p.s.Close()) // the log is empty
	raw, err := os.ReadFile(p.s.path)
	require.NoError(t, err)
	element := binary.NativeEndian.AppendUint32(nil, 0)
	at := uint32(elementBytes + len(epochKey) + 36 + len(formatKey) + 1)
	element = binary.NativeEndian.AppendUint32(element, at)
	element = binary.NativeEndian.AppendUint32(element, uint32(len(stateKey)))
	bad := bytes.Clone(element)
	binary.NativeEndian.PutUint32(bad[4:], at-2)
	require.Positive(t, bytes.Count(raw, element))
	require.NoError(t, os.WriteFile(p.s.path, bytes.ReplaceAll(raw, element, bad), 0o600))
	p.refused("entry 2 doesn't fit")
}
