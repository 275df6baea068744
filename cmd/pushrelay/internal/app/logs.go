package app

import (
	"io"
	"time"

	"github.com/rs/zerolog"
)

// LogSettings are the settings of logs; embed them in commands that log, with the tag `set:"loglevel=..."`.
type LogSettings struct {
	LogFormat string `help:"Format of logs on stderr: json, text, or auto (text on a terminal)." enum:"auto,json,text" default:"auto"`
	LogLevel  string `help:"Least level that is logged: debug, info, warn or error." enum:"debug,info,warn,error" default:"${loglevel}"`
}

// Logger builds the logger: one line an event, UTC with milliseconds.
func (l LogSettings) Logger(w io.Writer) zerolog.Logger {
	if l.LogFormat == "text" || l.LogFormat == "auto" && IsTerminal(w) {
		w = zerolog.ConsoleWriter{Out: w, NoColor: !IsTerminal(w), TimeFormat: "15:04:05.000", TimeLocation: time.UTC}
	}
	level, err := zerolog.ParseLevel(l.LogLevel)
	if err != nil {
		level = zerolog.InfoLevel
	}
	return zerolog.New(w).Level(level).Hook(stamp{})
}

// stamp adds the time with milliseconds; the library's own format is a setting of the whole process.
type stamp struct{}

// Run implements zerolog.Hook.
func (stamp) Run(e *zerolog.Event, _ zerolog.Level, _ string) {
	e.Str(zerolog.TimestampFieldName, time.Now().UTC().Format("2006-01-02T15:04:05.000Z"))
}
