package serve

import "github.com/alecthomas/kong"

// Defaults answers the settings of a relay that nothing was said about; the projection's file is still to be named. The
// environment isn't asked.
func Defaults() (Settings, error) {
	var s Settings
	parser, err := kong.New(&s)
	if err != nil {
		return s, err
	}
	parsed, err := kong.Trace(parser, nil)
	if err != nil {
		return s, err
	}
	return s, parsed.ApplyDefaults()
}
