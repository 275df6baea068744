package wire

import (
	"bytes"
	"encoding/binary"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// ParseEnvelope reads a sealed message's outside strictly, at most MaxEnvelopeBytes of JSON. Nothing large is copied:
// Raw aliases raw, which must not change afterwards.
func ParseEnvelope(raw []byte) (Envelope, error) {
	var e Envelope
	return e, envelope(&e)("envelope", raw)
}

func envelope(dst *Envelope) reader {
	return func(what string, v jsontext.Value) error {
		raw := bytes.Trim(v, " \t\r\n")
		if len(raw) > MaxEnvelopeBytes {
			return BadRequest("%s has over %d bytes", what, MaxEnvelopeBytes)
		}
		var e Envelope
		var direction string
		err := readObject(what, elided(raw), true, need("ciphertext", opaque),
			need("recipientKeyId", identifier(&e.RecipientKeyID)), need("senderKeyId", identifier(&e.SenderKeyID)),
			need("direction", word(&direction, string(DirectionPayload), string(DirectionResult))),
			need("deadlineAt", integer(&e.DeadlineAt, 1)))
		if err != nil {
			return err
		}
		e.Direction = Direction(direction)
		e.Raw = raw[:len(raw):len(raw)]
		*dst = e
		return nil
	}
}

// elided returns the envelope with a long plain ciphertext cut to its first character, or raw where that isn't possible.
// Members decide the same way in both, but the strict reader would look at each of up to 6 MiB, one by one.
func elided(raw []byte) []byte {
	const head, long = `{"ciphertext":"`, 4 << 10
	if len(raw) < long || string(raw[:len(head)]) != head {
		return raw
	}
	rest := raw[len(head):]
	end := bytes.IndexByte(rest, '"')
	if end < 1 || !plain(rest[:end]) {
		return raw
	}
	return append([]byte(head+"A"), rest[end:]...)
}

// plain reports whether b has printable ASCII without a backslash only, looking at eight bytes at a time.
func plain(b []byte) bool {
	const high, space = 0x8080808080808080, 0x2020202020202020
	if bytes.IndexByte(b, '\\') >= 0 {
		return false
	}
	for ; len(b) >= 8; b = b[8:] {
		// A byte below the space borrows into its own high bit; what it does to the bytes above doesn't matter then.
		if w := binary.LittleEndian.Uint64(b); (w|(w-space))&high != 0 {
			return false
		}
	}
	for _, c := range b {
		if c < ' ' || c >= 0x80 {
			return false
		}
	}
	return true
}

// opaque accepts any non-empty string where it stands: the relay has no use for a ciphertext's bytes.
func opaque(what string, v jsontext.Value) error {
	if v.Kind() != '"' || len(v) == len(`""`) {
		return BadRequest("%s must be a non-empty string", what)
	}
	return nil
}

// Ciphertext finds the ciphertext's text in Raw, aliasing it where the text has no escapes; for the ends only.
func (e Envelope) Ciphertext() ([]byte, error) {
	var found []byte
	err := eachMember("envelope", e.Raw, func(name []byte, v jsontext.Value) error {
		if string(name) != "ciphertext" || v.Kind() != '"' {
			return nil
		}
		found = v[1 : len(v)-1]
		if bytes.IndexByte(found, '\\') < 0 {
			return nil
		}
		unquoted, err := jsontext.AppendUnquote(nil, []byte(v))
		found = unquoted
		return err
	})
	return found, err
}

// AppendEnvelope appends the text of an envelope around a base64url ciphertext; e.Raw is ignored.
func AppendEnvelope(dst []byte, e Envelope, ciphertext string) []byte {
	dst = append(dst, `{"ciphertext":`...)
	dst = AppendString(dst, ciphertext)
	dst = append(dst, `,"recipientKeyId":`...)
	dst = AppendString(dst, e.RecipientKeyID)
	dst = append(dst, `,"senderKeyId":`...)
	dst = AppendString(dst, e.SenderKeyID)
	dst = append(dst, `,"direction":`...)
	dst = AppendString(dst, string(e.Direction))
	dst = append(dst, `,"deadlineAt":`...)
	return append(strconv.AppendInt(dst, e.DeadlineAt, 10), '}')
}
