package serve

import (
	"log"
	"strings"

	"github.com/rs/zerolog"
)

// quiet takes the HTTP server's own lines, which are about single broken connections, to the debug level.
func quiet(l zerolog.Logger) *log.Logger { return log.New(lines{l}, "", 0) }

type lines struct{ log zerolog.Logger }

// Write logs one line.
func (l lines) Write(p []byte) (int, error) {
	l.log.Debug().Str("event", "http").Str("line", strings.TrimSpace(string(p))).Msg("http")
	return len(p), nil
}
