package wire

import (
	"bytes"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// DecodeHead reads a frame's type and id wherever they stand and checks that all of it is one JSON object; else bad-
// request.
func DecodeHead(frame []byte) (Head, error) { return decodeHead(frame, false) }

// PeekHead is DecodeHead for frames that Decode reads next: it stops at the id, so that a large member is scanned
// once.
func PeekHead(frame []byte) (Head, error) { return decodeHead(frame, true) }

// decodeHead leaves what follows the id unjudged when it peeks; frames without an id are scanned whole. The head that
// was read so far comes with an error too, so that the refusal can name the request.
func decodeHead(frame []byte, peek bool) (Head, error) {
	var h Head
	dec := jsontext.NewDecoder(bytes.NewBuffer(frame))
	if dec.PeekKind() != '{' {
		return Head{}, BadRequest("a frame must be a JSON object")
	}
	if _, err := dec.ReadToken(); err != nil {
		return Head{}, malformed("the frame")
	}
	for dec.PeekKind() != '}' {
		if peek && h.Type != "" && h.ID != "" {
			return h, nil
		}
		name, err := dec.ReadToken()
		if err != nil {
			return h, malformed("the frame")
		}
		member := headMember(name)
		v, err := dec.ReadValue()
		if err != nil {
			return h, malformed("the frame")
		}
		if err := h.set(member, v); err != nil {
			return h, err
		}
	}
	if h.Type == "" {
		return h, BadRequest("a frame must have a type")
	}
	return h, endOf("the frame", dec)
}

// headMember keeps the names that matter; a token's text is void after the next read, and most need no copy.
func headMember(name jsontext.Token) string {
	switch name.String() {
	case "type":
		return "type"
	case "id":
		return "id"
	}
	return ""
}

func (h *Head) set(member string, v jsontext.Value) error {
	switch member {
	case "type":
		s, ok := text(v)
		if !ok || s == "" {
			return BadRequest("type must be a non-empty string")
		}
		h.Type = FrameType(s)
	case "id":
		s, ok := text(v)
		if !ok || s == "" || len(s) > MaxRequestID {
			return BadRequest("id must be a string of 1 to %d bytes", MaxRequestID)
		}
		h.ID = s
	}
	return nil
}

// checker is a frame with limits beyond its JSON types.
type checker interface{ check() error }

// Decode reads a frame as T and checks T's limits, else bad-request. Members of type jsontext.Value alias the frame,
// which must not change.
func Decode[T any](frame []byte) (T, error) {
	var v T
	if err := json.Unmarshal(frame, &v, aliasing); err != nil {
		var zero T
		return zero, BadRequest("the frame is not what its type promises")
	}
	if c, ok := any(&v).(checker); ok {
		if err := c.check(); err != nil {
			var zero T
			return zero, err
		}
	}
	return v, nil
}

// aliasing is made once, because the codec caches by it what it knows of types.
var aliasing = json.WithUnmarshalers(aliasValues())

// aliasValues keeps raw members as slices of the frame: envelopes have up to 6 MiB, and the frame outlives them.
func aliasValues() *json.Unmarshalers {
	return json.UnmarshalFromFunc(func(dec *jsontext.Decoder, v *jsontext.Value) error {
		raw, err := dec.ReadValue()
		if err != nil {
			return err
		}
		*v = raw[:len(raw):len(raw)]
		return nil
	})
}
