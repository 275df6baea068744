package app

import (
	"encoding/json"
	"io"
)

// Print writes v as indented JSON, as --check-config shows settings.
func Print(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
