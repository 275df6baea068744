package submit

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode"

	"pushrelay/cmd/pushrelay/internal/app"
)

// stateDone is the state of a job whose text an earlier submission had.
const stateDone = "done"

// ending is how a job ended.
type ending struct {
	id            string
	line          int
	ok            bool
	state         string // ok, error, canceled, dropped, refused, unanswered, or done by an earlier submission
	text          string
	code, message string // why there is no text
	runner, owner string // of what a device answered
	model         string
	took          time.Duration
}

// record is an ending as a line of JSON. Its names are an interface for programs.
type record struct {
	ID      string `json:"id"`
	Line    int    `json:"line"`
	OK      bool   `json:"ok"`
	State   string `json:"state"`
	Text    string `json:"text,omitempty"`
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
	Runner  string `json:"runner,omitempty"`
	Owner   string `json:"runnerOwner,omitempty"`
	Model   string `json:"model,omitempty"`
	TookMs  int64  `json:"tookMs"`
}

// printer writes endings, one at a time.
type printer struct {
	json     bool
	terminal bool
	bar      *progress

	mu  sync.Mutex
	w   io.Writer
	err error // the first that writing met
}

func newPrinter(w io.Writer, asJSON bool, bar *progress) *printer {
	return &printer{w: w, json: asJSON, terminal: app.IsTerminal(w), bar: bar}
}

func (p *printer) print(e ending) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bar.clear()
	var err error
	if p.json {
		enc := json.NewEncoder(p.w)
		enc.SetEscapeHTML(false)
		err = enc.Encode(record{
			ID: e.id, Line: e.line, OK: e.ok, State: e.state, Text: e.text, Code: e.code, Message: e.message,
			Runner: e.runner, Owner: e.owner, Model: e.model, TookMs: e.took.Milliseconds(),
		})
	} else {
		_, err = io.WriteString(p.w, p.plain(e))
	}
	if p.err == nil {
		p.err = err
	}
}

func (p *printer) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// plain writes the id, the state and the text, or why there is none; further lines of the text are set in, so that each job
// begins a line.
func (p *printer) plain(e ending) string {
	text := e.text
	if !e.ok || e.state == stateDone {
		text = strings.Trim(e.code+": "+e.message, ": ")
	}
	if text == "" && !e.ok {
		return fmt.Sprintf("%s %s\n", harmless(e.id), harmless(e.state))
	}
	text = strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n    ")
	if p.terminal {
		text = harmless(text)
	}
	return fmt.Sprintf("%s %s: %s\n", harmless(e.id), harmless(e.state), text)
}

// harmless takes away what could move a terminal's cursor or change its title: texts come from devices of others.
func harmless(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}
