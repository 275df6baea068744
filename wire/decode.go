package wire

import (
	"bytes"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// DecodeHead reads a frame's type and id wherever they stand and makes sure that the whole frame is one valid JSON
// object; a frame without a type or with an id over MaxRequestID bytes is bad-request.
func DecodeHead(frame []byte) (Head, error) { return decodeHead(frame, false) }

// PeekHead is DecodeHead for frames that Decode reads next: it stops at the id, so that a large member behind it
// is scanned once. What follows is not judged here; frames without an id are scanned whole.
func PeekHead(frame []byte) (Head, error) { return decodeHead(frame, true) }

func decodeHead(frame []byte, peek bool) (Head, error) {
	var h Head
	hasType, hasID := false, false
	dec := jsontext.NewDecoder(bytes.NewBuffer(frame))
	if dec.PeekKind() != '{' {
		return Head{}, BadRequest("a frame must be a JSON object")
	}
	if _, err := dec.ReadToken(); err != nil {
		return Head{}, malformed("the frame")
	}
	for dec.PeekKind() != '}' && (!peek || !hasType || !hasID) {
		name, err := dec.ReadToken()
		if err != nil {
			return h, malformed("the frame")
		}
		isType, isID := name.String() == "type", name.String() == "id"
		v, err := dec.ReadValue()
		if err != nil {
			return h, malformed("the frame")
		}
		if isType {
			s, ok := text(v)
			if !ok {
				return h, BadRequest("type must be a string")
			}
			h.Type, hasType = FrameType(s), true
		}
		if isID {
			s, ok := text(v)
			if !ok || s == "" || len(s) > MaxRequestID {
				return h, BadRequest("id must be a string of 1 to %d bytes", MaxRequestID)
			}
			h.ID, hasID = s, true
		}
	}
	if h.Type == "" {
		return h, BadRequest("a frame must have a type")
	}
	if peek && hasID {
		return h, nil
	}
	return h, endOf("the frame", dec)
}

// checker is a frame with limits beyond its JSON types.
type checker interface{ check() error }

// Decode reads a frame as T; unknown members are ignored, duplicate names and broken UTF-8 are bad-request, and so are
// values beyond T's limits. Members of type jsontext.Value alias the frame, which must not change afterwards.
func Decode[T any](frame []byte) (T, error) {
	var v T
	if err := json.Unmarshal(frame, &v, json.WithUnmarshalers(aliasValues())); err != nil {
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
