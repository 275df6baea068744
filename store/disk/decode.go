package disk

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"math"

	"pushrelay/store"
	"pushrelay/store/memory"
	"pushrelay/wire"
)

// decodeRecord answers a record without its envelopes' text. It shares with others what known knows. down is how long the
// store was closed so far; what it was since the record was written is added to its grant.
func decodeRecord(seq uint64, b []byte, known *sharer, down uint64) (r memory.Record, err error) {
	body, ok := checked(seqKey(seq), b)
	if !ok || len(body) < 2 || body[0] != recordVersion {
		return r, errUnreadable
	}
	in := reader{b: body[1:], known: known}
	r.Seq, r.State = seq, store.State(in.byte())
	flags := in.uint()
	r.Cancelled, r.Collected, r.Stub.Streaming = flags&flagCancelled != 0, flags&flagCollected != 0, flags&flagStreaming != 0
	if flags&flagRaw != 0 {
		r.Stub.Raw = bytes.Clone(in.bytes())
		if r.Stub.Raw == nil {
			r.Stub.Raw = []byte{}
		}
	}
	r.Key.Site, r.Key.Job = in.shared(r.Stub.Raw), in.within(r.Stub.Raw)
	r.Stub.Form = in.form(r.Stub.Raw)
	r.EnqueuedAt, r.Stub.DeadlineAt = in.int(), in.int()
	r.Since, r.Deadline, r.KeepUntil = in.time(r.EnqueuedAt), in.time(r.EnqueuedAt), in.time(r.EnqueuedAt)
	r.Waits, r.Lapses, r.Served = in.count(), in.count(), in.uint()
	if flags&flagDropped != 0 {
		r.Dropped = store.Why(in.name())
	}
	if flags&flagLease != 0 {
		r.Lease = in.lease()
	}
	if flags&flagGrant != 0 {
		r.Offered, r.Sealed, r.Widened = flags&flagOffered != 0, flags&flagSealed != 0, flags&flagWidened != 0
		in.grant(&r)
		if since := int64(down - in.uint()); r.State < store.Done {
			r.Lapse += since
			if r.Window != 0 && !r.Offered {
				r.Window += since
			}
		}
	}
	if flags&flagPayload != 0 {
		r.Payload = in.sealed(&r)
	}
	if flags&flagResult != 0 {
		r.Result = in.sealed(&r)
	}
	if flags&flagShun != 0 {
		r.Shun = in.shun()
	}
	if in.bad || len(in.b) > 0 || !sound(&r) {
		return r, errUnreadable
	}
	return r, nil
}

// sound reports whether a machine could have made the record.
func sound(r *memory.Record) bool {
	granted := r.State > store.Queued && r.Dropped == ""
	switch {
	case r.State < store.Queued || r.State > store.Done, r.Key.Site == "" || r.Key.Job == "" || r.Stub.Owner == "":
		return false
	case (r.Dropped != "" || r.Collected) && r.State != store.Done:
		return false
	case granted != (r.Runner != "") || granted && r.Lease == "" || r.Dropped != "" && r.Lease == "":
		return false
	}
	return !(r.Payload != nil && r.State != store.Ready && r.State != store.Running) && !(r.Result != nil && r.State != store.Done)
}

// reader takes a value apart; after the first fault it answers zero values.
type reader struct {
	b     []byte
	bad   bool
	known *sharer
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.bad = true
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *reader) uint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) int() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

// count is a small number.
func (r *reader) count() int {
	v := r.uint()
	if v > math.MaxInt32 {
		r.bad = true
		return 0
	}
	return int(v)
}

func (r *reader) sum() uint32 {
	b := r.take(4)
	if b == nil {
		return 0
	}
	return binary.LittleEndian.Uint32(b)
}

// take answers the next n bytes, which belong to the file; nil when there are fewer.
func (r *reader) take(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return nil
	}
	v := r.b[:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) bytes() []byte { return r.take(r.uint()) }

// name is a text that many records have.
func (r *reader) name() string { return r.known.text(r.bytes()) }

// part is a text or its place in the stub's.
func (r *reader) part(raw []byte) []byte {
	n := r.uint()
	if n&1 == 0 {
		return r.take(n >> 1)
	}
	at := r.uint()
	if n >>= 1; at > uint64(len(raw)) || n > uint64(len(raw))-at {
		r.bad = true
		return nil
	}
	return raw[at : at+n]
}

func (r *reader) within(raw []byte) string { return string(r.part(raw)) }
func (r *reader) shared(raw []byte) string { return r.known.text(r.part(raw)) }

func (r *reader) form(raw []byte) *memory.Form {
	return &memory.Form{
		Kind: r.shared(raw), Owner: r.shared(raw), Site: r.shared(raw), Audience: r.shared(raw), Purpose: r.shared(raw),
		SizeClass: r.shared(raw), Dialect: wire.Dialect(r.shared(raw)),
	}
}

// time is a time told by its distance from another.
func (r *reader) time(from int64) int64 {
	v := r.uint()
	if v == 0 {
		return 0
	}
	v--
	return from + (int64(v>>1) ^ -int64(v&1))
}

func (r *reader) lease() string {
	if n := r.byte(); n != packedLease {
		return string(r.take(uint64(n)))
	}
	return unpackLease(r.take(16))
}

func (r *reader) grant(to *memory.Record) {
	to.Runner, to.Owner, to.Device, to.Disposition = r.name(), r.name(), r.name(), r.name()
	to.Identity = r.identity()
	to.Number, to.Takes, to.LeaseFor = r.uint(), r.count(), int64(r.uint())
	to.Lapse, to.Window = r.time(to.EnqueuedAt), r.time(to.EnqueuedAt)
}

func (r *reader) identity() *wire.PublicIdentity {
	var id wire.PublicIdentity
	switch r.byte() {
	case noIdentity:
		return nil
	case packedIdentity:
		b := r.take(identityBytes)
		if b == nil {
			return nil
		}
		enc := base64.RawURLEncoding
		id.Identity, id.Encryption, id.EncryptionSig = enc.EncodeToString(b[:32]), enc.EncodeToString(b[32:64]), enc.EncodeToString(b[64:])
	default:
		id.Identity, id.Encryption, id.EncryptionSig = string(r.bytes()), string(r.bytes()), string(r.bytes())
	}
	return r.known.identity(id)
}

func (r *reader) sealed(of *memory.Record) *memory.Sealed {
	e := &memory.Sealed{Seq: of.Seq}
	e.RecipientKeyID, e.SenderKeyID = r.party(of), r.party(of)
	e.Direction = wire.Direction(r.name())
	e.DeadlineAt = r.int() + of.Stub.DeadlineAt
	size := r.uint()
	e.Sum = r.sum()
	if size > maxText {
		r.bad = true
		return e
	}
	e.Bytes = int64(size)
	return e
}

func (r *reader) party(of *memory.Record) string {
	switch r.byte() {
	case asDevice:
		return of.Device
	case asSite:
		return of.Stub.Site
	}
	return r.name()
}

func (r *reader) shun() map[string]int64 {
	n := r.uint()
	if n > uint64(len(r.b)) {
		r.bad = true
		return nil
	}
	m := make(map[string]int64, n)
	for ; n > 0 && !r.bad; n-- {
		who := r.name()
		m[who] = r.int()
	}
	return m
}

// sharer answers one string for all that are alike, so that records that were read share what those that were made do.
type sharer struct {
	texts      map[string]string
	identities map[wire.PublicIdentity]*wire.PublicIdentity
}

func newSharer() *sharer {
	return &sharer{texts: make(map[string]string), identities: make(map[wire.PublicIdentity]*wire.PublicIdentity)}
}

func (s *sharer) text(b []byte) string {
	if t, ok := s.texts[string(b)]; ok {
		return t
	}
	t := string(b)
	s.texts[t] = t
	return t
}

func (s *sharer) identity(id wire.PublicIdentity) *wire.PublicIdentity {
	if known := s.identities[id]; known != nil {
		return known
	}
	s.identities[id] = &id
	return &id
}
