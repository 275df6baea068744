package wire

import (
	"errors"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

var errEmptyValue = errors.New("wire: a raw member is empty")

// Encode writes a cold frame or body: nothing is null, maps are sorted, raw members keep their text; an empty raw
// member is an error.
func Encode[T any](v T) ([]byte, error) {
	return json.Marshal(v, json.Deterministic(true), jsontext.PreserveRawStrings(true),
		json.WithMarshalers(json.MarshalToFunc(writeRaw)))
}

// writeRaw refuses the empty value, which would otherwise be written as null.
func writeRaw(enc *jsontext.Encoder, v jsontext.Value) error {
	if len(v) == 0 {
		return errEmptyValue
	}
	return enc.WriteValue(v)
}
