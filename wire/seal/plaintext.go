package seal

import (
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"pushrelay/wire"
)

// Limits of a payload, in UTF-16 code units as JavaScript counts them, and in messages.
const (
	MaxTextUnits  = 1_000_000 // of one text
	MaxTotalUnits = 4_000_000 // of all texts together
	MaxMessages   = 256
)

// ErrBadPlaintext means that a plaintext isn't the shape that its job's kind or direction asks for.
var ErrBadPlaintext = errors.New("seal: plaintext is not of its shape")

func bad(what string) error { return fmt.Errorf("%w: %s", ErrBadPlaintext, what) }

// GeneratePayload is what llm.generate runs: a prompt, never empty, and an optional system text.
type GeneratePayload struct {
	Prompt string `json:"prompt"`
	System string `json:"system,omitzero"`
}

// Message is one turn of a chat; Role is system, user or assistant.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// ChatPayload is what llm.chat runs: 1 to 256 messages and an optional system text.
type ChatPayload struct {
	Messages []Message `json:"messages"`
	System   string    `json:"system,omitzero"`
}

// Encode checks the payload's limits and writes it as JavaScript would; else ErrBadPlaintext.
func (p GeneratePayload) Encode() ([]byte, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	return encode(p)
}

// Encode checks the payload's limits and writes it as JavaScript would; else ErrBadPlaintext.
func (p ChatPayload) Encode() ([]byte, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	return encode(p)
}

// ParseGenerate reads an opened llm.generate payload strictly and within the limits; else ErrBadPlaintext.
func ParseGenerate(plaintext []byte) (GeneratePayload, error) {
	p, err := decode[GeneratePayload](plaintext)
	if err == nil {
		err = p.check()
	}
	return p, err
}

// ParseChat reads an opened llm.chat payload strictly and within the limits; else ErrBadPlaintext.
func ParseChat(plaintext []byte) (ChatPayload, error) {
	p, err := decode[ChatPayload](plaintext)
	if err == nil {
		err = p.check()
	}
	return p, err
}

func (p GeneratePayload) check() error {
	if p.Prompt == "" {
		return bad("prompt is empty")
	}
	return checkTexts(p.Prompt, p.System)
}

func (p ChatPayload) check() error {
	if len(p.Messages) == 0 || len(p.Messages) > MaxMessages {
		return bad("messages must have 1 to 256 entries")
	}
	texts := append(make([]string, 0, len(p.Messages)+1), p.System)
	for _, m := range p.Messages {
		if m.Role != "system" && m.Role != "user" && m.Role != "assistant" {
			return bad("role must be system, user or assistant")
		}
		texts = append(texts, m.Content)
	}
	return checkTexts(texts...)
}

func checkTexts(texts ...string) error {
	total := 0
	for _, s := range texts {
		n := units(s)
		if n > MaxTextUnits {
			return bad("a text is too long")
		}
		total += n
	}
	if total > MaxTotalUnits {
		return bad("the texts are too long together")
	}
	return nil
}

func units(s string) int {
	n := 0
	for _, r := range s {
		n++
		if r > 0xFFFF {
			n++
		}
	}
	return n
}

// encode and decode let broken UTF-16 pass as U+FFFD: JavaScript cuts strings between surrogates, and such a text is
// better run than refused.
func encode[T any](v T) ([]byte, error) {
	b, err := json.Marshal(v, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return nil, bad("not encodable")
	}
	return b, nil
}

func decode[T any](plaintext []byte) (T, error) {
	var v T
	err := json.Unmarshal(plaintext, &v, json.RejectUnknownMembers(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		var zero T
		return zero, bad("not its JSON")
	}
	return v, nil
}

// SizeClass is the size class of a payload of so many UTF-16 units of text: small to 4,000, medium to 64,000, else large.
func SizeClass(units int) string {
	switch {
	case units <= 4_000:
		return "small"
	case units <= 64_000:
		return "medium"
	}
	return "large"
}

// Units counts the payload's text in UTF-16 code units, for SizeClass.
func (p GeneratePayload) Units() int { return units(p.Prompt) + units(p.System) }

// Units counts the payload's text in UTF-16 code units, for SizeClass.
func (p ChatPayload) Units() int {
	n := units(p.System)
	for _, m := range p.Messages {
		n += units(m.Content)
	}
	return n
}

// disposition words are the wire's; a result's outcome must be one of them.
func known(outcome string) bool {
	switch outcome {
	case wire.DispositionOK, wire.DispositionError, wire.DispositionCanceled:
		return true
	}
	return false
}
