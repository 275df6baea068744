package disk

import (
	"encoding/binary"
	"errors"

	"pushrelay/store"
	"pushrelay/store/memory"
	"pushrelay/wire"
)

// recordVersion is the first byte of each record.
const recordVersion = 1

var errRecord = errors.New("a record that this build can't read")

// Flags of a record.
const (
	flagCancelled = 1 << iota
	flagCollected
	flagOffered
	flagSealed
	flagWidened
	flagStreaming
	flagPayload
	flagResult
)

func appendText(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// appendRecord encodes all but the envelopes' text.
func appendRecord(b []byte, r *memory.Record) []byte {
	flags := uint64(0)
	for i, on := range []bool{r.Cancelled, r.Collected, r.Offered, r.Sealed, r.Widened, r.Stub.Streaming, r.Payload != nil, r.Result != nil} {
		if on {
			flags |= 1 << i
		}
	}
	b = append(b, recordVersion, byte(r.State))
	b = binary.AppendUvarint(b, flags)
	for _, s := range []string{
		r.Key.Site, r.Key.Job, r.Stub.Kind, r.Stub.Owner, r.Stub.Site, r.Stub.Audience, r.Stub.Purpose, r.Stub.SizeClass,
		string(r.Stub.Raw), string(r.Stub.Dialect), string(r.Dropped), r.Disposition, r.Lease, r.Runner, r.Owner, r.Device,
	} {
		b = appendText(b, s)
	}
	for _, n := range []int64{
		r.Stub.DeadlineAt, r.EnqueuedAt, r.Since, r.Deadline, r.KeepUntil, int64(r.Waits), int64(r.Lapses), int64(r.Number),
		int64(r.Takes), r.LeaseFor, r.Lapse, r.Window,
	} {
		b = binary.AppendVarint(b, n)
	}
	b = binary.AppendUvarint(b, uint64(len(r.Shun)))
	for who, until := range r.Shun {
		b = binary.AppendVarint(appendText(b, who), until)
	}
	for _, e := range []*wire.Envelope{r.Payload, r.Result} {
		if e != nil {
			b = appendText(appendText(appendText(b, e.RecipientKeyID), e.SenderKeyID), string(e.Direction))
			b = binary.AppendVarint(b, e.DeadlineAt)
			b = binary.AppendUvarint(b, uint64(len(e.Raw)))
		}
	}
	return b
}

// reader takes a record apart; after the first fault it answers zero values.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) uint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad = true
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) int() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.bad = true
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) text() string {
	n := r.uint()
	if r.bad || n > uint64(len(r.b)) {
		r.bad = true
		return ""
	}
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}

// decodeRecord answers a record without its envelopes' text, and how long those are.
func decodeRecord(seq uint64, b []byte) (r memory.Record, payload, result uint64, err error) {
	if len(b) < 2 || b[0] != recordVersion {
		return r, 0, 0, errRecord
	}
	in := reader{b: b[2:]}
	r.Seq, r.State, r.Stub.Form = seq, store.State(b[1]), &memory.Form{}
	flags := in.uint()
	for i, at := range []*bool{&r.Cancelled, &r.Collected, &r.Offered, &r.Sealed, &r.Widened, &r.Stub.Streaming} {
		*at = flags&(1<<i) != 0
	}
	var raw, dialect, dropped string
	for _, at := range []*string{
		&r.Key.Site, &r.Key.Job, &r.Stub.Kind, &r.Stub.Owner, &r.Stub.Site, &r.Stub.Audience, &r.Stub.Purpose, &r.Stub.SizeClass,
		&raw, &dialect, &dropped, &r.Disposition, &r.Lease, &r.Runner, &r.Owner, &r.Device,
	} {
		*at = in.text()
	}
	r.Stub.Dialect, r.Dropped = wire.Dialect(dialect), store.Why(dropped)
	if raw != "" {
		r.Stub.Raw = []byte(raw)
	}
	var waits, lapses, number, takes int64
	for _, at := range []*int64{
		&r.Stub.DeadlineAt, &r.EnqueuedAt, &r.Since, &r.Deadline, &r.KeepUntil, &waits, &lapses, &number, &takes,
		&r.LeaseFor, &r.Lapse, &r.Window,
	} {
		*at = in.int()
	}
	r.Waits, r.Lapses, r.Takes, r.Number = int(waits), int(lapses), int(takes), uint64(number)
	for n := in.uint(); n > 0 && !in.bad; n-- {
		if r.Shun == nil {
			r.Shun = make(map[string]int64, 1)
		}
		who := in.text()
		r.Shun[who] = in.int()
	}
	envelope := func(flag uint64) (*wire.Envelope, uint64) {
		if flags&flag == 0 {
			return nil, 0
		}
		e := &wire.Envelope{RecipientKeyID: in.text(), SenderKeyID: in.text(), Direction: wire.Direction(in.text())}
		e.DeadlineAt = in.int()
		return e, in.uint()
	}
	r.Payload, payload = envelope(flagPayload)
	r.Result, result = envelope(flagResult)
	if in.bad || len(in.b) > 0 || r.State < store.Queued || r.State > store.Done {
		return r, 0, 0, errRecord
	}
	return r, payload, result, nil
}
