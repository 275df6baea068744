package session

import (
	"crypto/rand"
	"encoding/binary"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/coder/websocket"
)

// What leaves is framed here (RFC 6455, section 5.2) and not by the library: its writer ends the connection when a
// context or its own fixed 5 s run out, waits for a peer inside Close, and can't put several frames into one write. What
// arrives, and the upgrade on both ends, is the library's.

// opcodes of RFC 6455, section 11.8.
const (
	opText   = 1
	opBinary = 2
	opClose  = 8
	opPing   = 9
	opPong   = 10
)

const (
	finBit        = 0x80
	maskBit       = 0x80
	maxControl    = 125
	maxCloseText  = maxControl - 2               // behind the code
	noStatus      = websocket.StatusNoStatusRcvd // a close frame without a code
	statusNormal  = websocket.StatusNormalClosure
	longestInByte = 125
	longestInTwo  = 1<<16 - 1
)

// appendMessage appends one whole message of the pieces; masked is what a client does (section 5.3).
func appendMessage(dst []byte, op byte, masked bool, pieces ...[]byte) []byte {
	n := 0
	for _, p := range pieces {
		n += len(p)
	}
	dst, key := appendFrameHead(dst, op, n, masked)
	start := len(dst)
	for _, p := range pieces {
		dst = append(dst, p...)
	}
	if masked {
		maskBytes(dst[start:], key)
	}
	return dst
}

func appendFrameHead(dst []byte, op byte, n int, masked bool) (_ []byte, key uint32) {
	var bit byte
	if masked {
		bit = maskBit
	}
	dst = append(dst, finBit|op)
	switch {
	case n <= longestInByte:
		dst = append(dst, bit|byte(n))
	case n <= longestInTwo:
		dst = binary.BigEndian.AppendUint16(append(dst, bit|126), uint16(n))
	default:
		dst = binary.BigEndian.AppendUint64(append(dst, bit|127), uint64(n))
	}
	if masked {
		var b [4]byte
		_, _ = rand.Read(b[:]) // never fails
		dst = append(dst, b[:]...)
		key = binary.LittleEndian.Uint32(b[:])
	}
	return dst, key
}

// maskBytes is section 5.3's xor, eight bytes at a time.
func maskBytes(b []byte, key uint32) {
	wide := uint64(key)<<32 | uint64(key)
	for len(b) >= 8 {
		binary.LittleEndian.PutUint64(b, binary.LittleEndian.Uint64(b)^wide)
		b = b[8:]
	}
	for i := range b {
		b[i] ^= byte(key >> (8 * (i % 4)))
	}
}

// appendClose appends a close frame; code noStatus sends none. text must fit already (closeText).
func appendClose(dst []byte, masked bool, code websocket.StatusCode, text string) []byte {
	if code == noStatus {
		return appendMessage(dst, opClose, masked)
	}
	return appendMessage(dst, opClose, masked, binary.BigEndian.AppendUint16(nil, uint16(code)), []byte(text))
}

// cutText makes text fit a close frame: valid UTF-8, at most 123 bytes, cut at a rune.
func cutText(text string) string {
	if !utf8.ValidString(text) {
		text = string([]rune(text)) // replaces each broken byte
	}
	if len(text) <= maxCloseText {
		return text
	}
	n := maxCloseText
	for !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// retryStream is after how many seconds a refused stream may be tried again.
const retryStream = 5

// appendStream closes an error frame, whose last brace is cut off, with the stream that it refuses.
func appendStream(dst []byte, stream uint32) []byte {
	dst = append(dst, `,"stream":`...)
	return append(strconv.AppendUint(dst, uint64(stream), 10), '}')
}

// closeText makes the reason of a close frame. It begins with the word of the reason, whatever else is said.
func closeText(r Reason, text string) string {
	if text == "" || text == string(r) {
		return string(r)
	}
	if !strings.HasPrefix(text, string(r)) {
		text = string(r) + ": " + text
	}
	return cutText(text)
}
