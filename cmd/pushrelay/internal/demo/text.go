package demo

import (
	"fmt"
	"os"
	"strings"

	"pushrelay/cmd/pushrelay/internal/app"
)

const (
	maxTexts     = 24
	maxTextBytes = 64 << 10
)

// texts answers the lines of --file, or the built-in ones.
func (c *Command) texts() ([]string, error) {
	if c.File == "" {
		return builtIn(), nil
	}
	raw, err := os.ReadFile(c.File)
	if err != nil {
		return nil, app.Usagef("--file can't be read: %w", err)
	}
	var out []string
	for line := range strings.Lines(string(raw)) {
		line = strings.ToValidUTF8(strings.TrimSpace(line), "\uFFFD")
		if line != "" && len(line) <= maxTextBytes && len(out) < maxTexts {
			out = append(out, line)
		}
	}
	if len(out) == 0 {
		return nil, app.Usagef("--file %s has no line of text; name another file", c.File)
	}
	return out, nil
}

func builtIn() []string {
	return []string{
		"A lighthouse keeper writes down each ship that passes and never reads the letters on board.",
		"The ferry carries sealed crates; only the two harbours hold the keys.",
		"When fog hides the far shore, the crates wait on the quay and nobody opens them.",
		"If one boat turns back, the next boat takes its cargo, once, and says so.",
		"A harbour that closed for the night finds its crates in the morning, in order.",
		"Whoever calls a crate home again is heard, even in the middle of the crossing.",
		"The keeper's lamp blinks every few seconds, so that silence always means something.",
		"In the end the log has a line for everything, and not one word of the letters.",
	}
}

// wordCount is what the built-in command answers to a text.
func wordCount(text string) string {
	words := strings.Fields(text)
	longest := ""
	for _, w := range words {
		if w = strings.Trim(w, ".,;:!?"); len(w) > len(longest) {
			longest = w
		}
	}
	return fmt.Sprintf("%d words, longest %q", len(words), longest)
}
