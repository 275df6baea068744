package disk

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"

	"pushrelay/store"
	"pushrelay/store/memory"
	"pushrelay/wire"
)

// maxText is more than any envelope has; keys of chunks end there.
const maxText = chunkBytes << 16

func appendBytes[T string | []byte](b []byte, s T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// appendWithin writes a text as its place in the stub's own when it stands there. The lowest bit of the length says which.
func appendWithin(b []byte, s string, raw []byte) []byte {
	if len(s) > 2 {
		if at := bytes.Index(raw, []byte(s)); at >= 0 {
			return binary.AppendUvarint(binary.AppendUvarint(b, uint64(len(s))<<1|1), uint64(at))
		}
	}
	return append(binary.AppendUvarint(b, uint64(len(s))<<1), s...)
}

// appendTime writes a time as its distance from another; 0 is none.
func appendTime(b []byte, at, from int64) []byte {
	if at == 0 {
		return append(b, 0)
	}
	d := at - from
	return binary.AppendUvarint(b, (uint64(d)<<1^uint64(d>>63))+1)
}

// packedLease stands where a lease's length would, for a UUID in 16 bytes. A longer text than a byte can tell is no lease of
// ours.
const packedLease = 255

func appendLease(b []byte, lease string) []byte {
	if len(lease) == 36 {
		var id [16]byte
		packed := append(b, packedLease)
		packed = append(packed, id[:]...)
		into := packed[len(packed)-16:]
		if packLease(into, lease) {
			return packed
		}
	}
	n := min(len(lease), packedLease-1)
	return append(append(b, byte(n)), lease[:n]...)
}

// packLease takes a UUID of the usual form apart; false for any other text.
func packLease(to []byte, lease string) bool {
	var digits [32]byte
	n := 0
	for i := range len(lease) {
		c := lease[i]
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if c != '-' {
				return false
			}
			continue
		}
		if c < '0' || c > '9' && c < 'a' || c > 'f' {
			return false
		}
		digits[n] = c
		n++
	}
	_, err := hex.Decode(to, digits[:])
	return err == nil
}

func unpackLease(id []byte) string {
	if len(id) != 16 {
		return ""
	}
	var b [36]byte
	hex.Encode(b[:8], id[:4])
	hex.Encode(b[9:13], id[4:6])
	hex.Encode(b[14:18], id[6:8])
	hex.Encode(b[19:23], id[8:10])
	hex.Encode(b[24:], id[10:])
	b[8], b[13], b[18], b[23] = '-', '-', '-', '-'
	return string(b[:])
}

// How an identity is written: its keys and its signature as bytes when they are what they should be.
const (
	noIdentity byte = iota
	packedIdentity
	plainIdentity

	identityBytes = 32 + 32 + 64
)

func appendIdentity(b []byte, id *wire.PublicIdentity) []byte {
	if id == nil {
		return append(b, noIdentity)
	}
	packed, ok := append(b, packedIdentity), true
	for _, part := range []struct {
		text  string
		bytes int
	}{{id.Identity, 32}, {id.Encryption, 32}, {id.EncryptionSig, 64}} {
		from := len(packed)
		raw, err := base64.RawURLEncoding.Strict().AppendDecode(packed, []byte(part.text))
		if ok = err == nil && len(raw)-from == part.bytes; !ok {
			break
		}
		packed = raw
	}
	if ok {
		return packed
	}
	b = append(b, plainIdentity)
	return appendBytes(appendBytes(appendBytes(b, id.Identity), id.Encryption), id.EncryptionSig)
}

// Who an envelope is from or for: mostly one whom the record names already.
const (
	asNamed byte = iota
	asDevice
	asSite
)

func appendParty(b []byte, keyID string, r *memory.Record) []byte {
	switch keyID {
	case r.Device:
		return append(b, asDevice)
	case r.Stub.Site:
		return append(b, asSite)
	}
	return appendBytes(append(b, asNamed), keyID)
}

// appendStreakKey writes whose streak it is in which queue.
func appendStreakKey(b []byte, runner string, q store.Queue) []byte {
	for _, s := range []string{runner, q.Site, q.Owner, q.Kind, string(q.Dialect)} {
		b = appendBytes(b, s)
	}
	if q.Private {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendStreak(b, key []byte, s *memory.Streak) []byte {
	from := len(b)
	b = append(b, 1)
	b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(s.Row)), uint64(s.Waits))
	b = binary.AppendVarint(binary.AppendVarint(b, s.Until), s.Touched)
	return appendSum(binary.AppendUvarint(b, s.Stamp), from, key)
}

func decodeStreak(k, v []byte) (s memory.Streak, err error) {
	body, ok := checked(k, v)
	key, in := reader{b: k, bad: !ok}, reader{b: body}
	text := func() string { return string(key.bytes()) }
	s.Runner, s.Queue.Site, s.Queue.Owner, s.Queue.Kind, s.Queue.Dialect = text(), text(), text(), text(), wire.Dialect(text())
	s.Queue.Private = key.byte() == 1
	version := in.byte()
	s.Row, s.Waits, s.Until, s.Touched, s.Stamp = in.count(), in.count(), in.int(), in.int(), in.uint()
	if key.bad || in.bad || len(key.b) > 0 || len(in.b) > 0 || version != 1 || s.Runner == "" {
		return s, errUnreadable
	}
	return s, nil
}
