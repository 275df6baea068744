package wire

import (
	"encoding/binary"
	"errors"
)

// Refusals of a part; each ends the session as a bad or too large frame.
var (
	// ErrBadPart means that a binary message isn't a part: too short, unknown flags, or flags that contradict.
	ErrBadPart = errors.New("wire: malformed part")
	// ErrPartTooLarge means that a part has over MaxPartBytes of data, or a frame over MaxFrameBytes.
	ErrPartTooLarge = errors.New("wire: part or frame too large")
)

// PartHeader opens every binary message: the stream it belongs to, and the Part flags.
type PartHeader struct {
	Stream uint32
	Flags  byte
}

// First reports whether the part opens its stream and so carries the frame's whole length.
func (h PartHeader) First() bool { return h.Flags&PartFirst != 0 }

// Last reports whether the part completes its frame and ends its stream.
func (h PartHeader) Last() bool { return h.Flags&PartLast != 0 }

// Abort reports whether the sender gives the stream up; nothing of its frame counts.
func (h PartHeader) Abort() bool { return h.Flags&PartAbort != 0 }

// AppendPartHeader appends the five bytes of a header and, for a first part, total, the frame's length in bytes.
func AppendPartHeader(dst []byte, h PartHeader, total uint32) []byte {
	dst = append(binary.BigEndian.AppendUint32(dst, h.Stream), h.Flags)
	if h.First() {
		dst = binary.BigEndian.AppendUint32(dst, total)
	}
	return dst
}

// ParsePart splits a binary message; total is zero but in a first part, data aliases msg. Refusals: ErrBadPart,
// ErrPartTooLarge.
func ParsePart(msg []byte) (h PartHeader, total uint32, data []byte, err error) {
	if len(msg) < PartHeaderBytes {
		return PartHeader{}, 0, nil, ErrBadPart
	}
	h = PartHeader{Stream: binary.BigEndian.Uint32(msg), Flags: msg[4]}
	data = msg[PartHeaderBytes:]
	if h.Flags&^(PartLast|PartAbort|PartFirst) != 0 {
		return PartHeader{}, 0, nil, ErrBadPart
	}
	if h.Abort() {
		if h.Flags != PartAbort || len(data) > 0 {
			return PartHeader{}, 0, nil, ErrBadPart
		}
		return h, 0, nil, nil
	}
	if h.First() {
		if len(data) < 4 {
			return PartHeader{}, 0, nil, ErrBadPart
		}
		total, data = binary.BigEndian.Uint32(data), data[4:]
		if total > MaxFrameBytes {
			return PartHeader{}, 0, nil, ErrPartTooLarge
		}
		if uint64(len(data)) > uint64(total) || h.Last() && uint64(len(data)) != uint64(total) {
			return PartHeader{}, 0, nil, ErrBadPart
		}
	}
	if len(data) > MaxPartBytes {
		return PartHeader{}, 0, nil, ErrPartTooLarge
	}
	if len(data) == 0 {
		return PartHeader{}, 0, nil, ErrBadPart
	}
	return h, total, data, nil
}
