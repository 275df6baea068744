package app

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
)

// Build says what this binary was made from.
type Build struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// BuildInfo reads what the Go tool recorded; a build without version control says "devel" and "unknown".
func BuildInfo() Build {
	b := Build{Version: "devel", Revision: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		b.Version = v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && s.Value != "" {
			b.Revision = s.Value
		}
	}
	return b
}

// Version is the command that prints what this binary is.
type Version struct {
	JSON bool `help:"Print it as JSON." name:"json" env:"-"`
}

// Help shows examples.
func (Version) Help() string {
	return `Examples:

  pushrelay version
  pushrelay version --json`
}

// Run prints the version.
func (v Version) Run(s Streams) error {
	b := BuildInfo()
	if v.JSON {
		return json.NewEncoder(s.Out).Encode(b)
	}
	_, err := fmt.Fprintf(s.Out, "pushrelay %s (%s, %s, %s)\n", b.Version, b.Revision, b.Go, b.Platform)
	return err
}
