package disk

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"slices"

	"pushrelay/store/memory"
)

// A record is a version, a state, flags, texts and numbers, and a checksum of all that. Texts have their length before
// them; what stands in the stub's own text is written as a place in it. Times are distances from the enqueueing.
const recordVersion = 1

var (
	errUnreadable = errors.New("it isn't what this build writes")
	castagnoli    = crc32.MakeTable(crc32.Castagnoli)
)

// Flags of a record.
const (
	flagCancelled = 1 << iota
	flagCollected
	flagStreaming
	flagRaw
	flagDropped
	flagLease
	flagGrant
	flagOffered
	flagSealed
	flagWidened
	flagPayload
	flagResult
	flagShun
)

func flagsOf(r *memory.Record) (flags uint64) {
	set := func(flag uint64, on bool) {
		if on {
			flags |= flag
		}
	}
	set(flagCancelled, r.Cancelled)
	set(flagCollected, r.Collected)
	set(flagStreaming, r.Stub.Streaming)
	set(flagRaw, r.Stub.Raw != nil)
	set(flagDropped, r.Dropped != "")
	set(flagLease, r.Lease != "")
	set(flagGrant, r.Runner != "")
	set(flagOffered, r.Offered)
	set(flagSealed, r.Sealed)
	set(flagWidened, r.Widened)
	set(flagPayload, r.Payload != nil)
	set(flagResult, r.Result != nil)
	set(flagShun, len(r.Shun) > 0)
	return flags
}

// appendRecord encodes all but the envelopes' text. down is how long the store was closed so far: a lease counts the time
// that it was open.
func appendRecord(b []byte, r *memory.Record, down uint64) []byte {
	from := len(b)
	flags := flagsOf(r)
	b = append(b, recordVersion, byte(r.State))
	b = binary.AppendUvarint(b, flags)
	raw := r.Stub.Raw
	if flags&flagRaw != 0 {
		b = appendBytes(b, raw)
	}
	f := r.Stub.Form
	for _, s := range []string{r.Key.Site, r.Key.Job, f.Kind, f.Owner, f.Site, f.Audience, f.Purpose, f.SizeClass, string(f.Dialect)} {
		b = appendWithin(b, s, raw)
	}
	b = binary.AppendVarint(b, r.EnqueuedAt)
	b = binary.AppendVarint(b, r.Stub.DeadlineAt)
	for _, at := range []int64{r.Since, r.Deadline, r.KeepUntil} {
		b = appendTime(b, at, r.EnqueuedAt)
	}
	for _, n := range []uint64{uint64(r.Waits), uint64(r.Lapses), r.Served} {
		b = binary.AppendUvarint(b, n)
	}
	if flags&flagDropped != 0 {
		b = appendBytes(b, string(r.Dropped))
	}
	if flags&flagLease != 0 {
		b = appendLease(b, r.Lease)
	}
	if flags&flagGrant != 0 {
		b = binary.AppendUvarint(appendGrant(b, r), down)
	}
	for _, e := range []*memory.Sealed{r.Payload, r.Result} {
		if e != nil {
			b = appendSealed(b, e, r)
		}
	}
	if flags&flagShun != 0 {
		b = appendShun(b, r.Shun)
	}
	var key [8]byte
	binary.BigEndian.PutUint64(key[:], r.Seq)
	return appendSum(b, from, key[:])
}

// appendSum ends a value, which begins at from, with a checksum of it and of the key that it stands under.
func appendSum(b []byte, from int, key []byte) []byte {
	return binary.LittleEndian.AppendUint32(b, crc32.Update(crc32.Checksum(b[from:], castagnoli), castagnoli, key))
}

// checked answers a value without its checksum; false when that isn't right.
func checked(key, v []byte) ([]byte, bool) {
	if len(v) < 4 {
		return nil, false
	}
	body, sum := v[:len(v)-4], binary.LittleEndian.Uint32(v[len(v)-4:])
	return body, crc32.Update(crc32.Checksum(body, castagnoli), castagnoli, key) == sum
}

func appendGrant(b []byte, r *memory.Record) []byte {
	for _, s := range []string{r.Runner, r.Owner, r.Device, r.Disposition} {
		b = appendBytes(b, s)
	}
	b = appendIdentity(b, r.Identity)
	for _, n := range []uint64{r.Number, uint64(r.Takes), uint64(r.LeaseFor)} {
		b = binary.AppendUvarint(b, n)
	}
	return appendTime(appendTime(b, r.Lapse, r.EnqueuedAt), r.Window, r.EnqueuedAt)
}

func appendSealed(b []byte, e *memory.Sealed, r *memory.Record) []byte {
	b = appendParty(appendParty(b, e.RecipientKeyID, r), e.SenderKeyID, r)
	b = appendBytes(b, string(e.Direction))
	b = binary.AppendVarint(b, e.DeadlineAt-r.Stub.DeadlineAt)
	b = binary.AppendUvarint(b, uint64(e.Bytes))
	return binary.LittleEndian.AppendUint32(b, e.Sum)
}

func appendShun(b []byte, shun map[string]int64) []byte {
	names := make([]string, 0, len(shun))
	for name := range shun {
		names = append(names, name)
	}
	slices.Sort(names)
	b = binary.AppendUvarint(b, uint64(len(names)))
	for _, name := range names {
		b = binary.AppendVarint(appendBytes(b, name), shun[name])
	}
	return b
}
