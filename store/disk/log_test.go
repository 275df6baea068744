package disk

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// entryOf makes an entry of some items and answers them as they should come back.
func entryOf(r *rand.Rand, commit uint64) (v []byte, want []item) {
	var p page
	p.reset(commit)
	for range r.IntN(6) {
		it := item{seq: r.Uint64() >> r.IntN(64), kind: byte(r.IntN(int(itemKinds)))}
		if it.kind < itemGone {
			it.holds = bytes.Repeat([]byte{byte(r.Uint32())}, r.IntN(300))
			it.at = p.item(it.seq, it.kind, it.holds)
		} else {
			p.item(it.seq, it.kind, nil)
		}
		want = append(want, it)
	}
	return binary.LittleEndian.AppendUint32(p.b, crc32.Update(p.sum, castagnoli, seqKey(commit))), want
}

func itemsOf(key, v []byte) (got []item, err error) {
	err = eachItem(key, v, func(it item) { got = append(got, it) })
	return got, err
}

func TestEntriesComeBackAsTheyWere(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	for commit := range uint64(2000) {
		v, want := entryOf(r, commit)
		got, err := itemsOf(seqKey(commit), v)
		require.NoError(t, err)
		require.Equal(t, want, got)
		for _, it := range got {
			require.True(t, bytes.Equal(it.holds, v[it.at:int(it.at)+len(it.holds)]))
		}
		_, err = itemsOf(seqKey(commit+1), v)
		require.ErrorIs(t, err, errLog, "another commit's")
	}
}

// Whatever bit of an entry flips: it is noticed, unless it is within what an item holds, which has a checksum of its own. No
// other item changes then.
func TestFlippedBitsOfAnEntry(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	for commit := range uint64(40) {
		v, want := entryOf(r, commit)
		for at := range v {
			bad := bytes.Clone(v)
			bad[at] ^= 1 << r.IntN(8)
			got, err := itemsOf(seqKey(commit), bad)
			within := -1
			for i, it := range want {
				if at >= int(it.at) && at < int(it.at)+len(it.holds) {
					within = i
				}
			}
			require.Equal(t, within < 0, err != nil, "byte %d", at)
			for i := range want {
				if err == nil && i != within {
					require.Equal(t, want[i], got[i])
				}
			}
		}
		for n := range v {
			_, err := itemsOf(seqKey(commit), v[:n])
			require.ErrorIs(t, err, errLog, "%d of %d bytes", n, len(v))
		}
	}
}

// Whatever the bytes are, taking an entry apart ends, and what it answers makes the same entry again.
func FuzzEachItem(f *testing.F) {
	r := rand.New(rand.NewPCG(10, 10))
	for range 40 {
		v, _ := entryOf(r, 7)
		f.Add(v[:len(v)-4])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		whole := binary.LittleEndian.AppendUint32(b[:len(b):len(b)], 0)
		again := func() (p page, err error) {
			p.reset(7)
			err = eachItem(seqKey(7), whole, func(it item) {
				at := p.item(it.seq, it.kind, it.holds)
				if it.kind < itemGone && !bytes.Equal(whole[it.at:int(it.at)+len(it.holds)], p.b[at:]) {
					t.Fatal("what an item holds isn't where it says")
				}
			})
			return p, err
		}
		p, _ := again()
		binary.LittleEndian.PutUint32(whole[len(b):], crc32.Update(p.sum, castagnoli, seqKey(7)))
		p, err := again()
		if (err == nil) != bytes.Equal(p.b, b) { // a number may be written in more ways than one, of which only ours has the sum
			t.Fatalf("%v\nread  %x\nagain %x", err, b, p.b)
		}
	})
}
