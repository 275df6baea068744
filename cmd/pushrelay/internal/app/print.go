package app

import (
	"encoding/json"
	"io"
)

// List is a list of settings that is printed as [] when it is empty: null is no setting that a file may hold.
func List(values []string) []string {
	if values == nil {
		return []string{}
	}
	return values
}

// Print writes v as indented JSON, as --check-config shows settings.
func Print(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
