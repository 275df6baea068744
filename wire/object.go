package wire

import (
	"bytes"
	"errors"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// The readers here are for closed shapes: stubs, envelopes, identities, polling bodies. Unknown members, duplicate
// names, null, invalid UTF-8 and numbers that JavaScript couldn't hold exactly are refused; messages name the member
// and never repeat what a peer wrote.

// maxSafeInteger is 2^53-1, the largest integer that JavaScript's numbers hold exactly.
const maxSafeInteger = 1<<53 - 1

// maxOpenList bounds lists that the design gives no bound of their own, in entries.
const maxOpenList = 4096

// reader takes one member's value; what is the member's path, for messages.
type reader func(what string, v jsontext.Value) error

// within completes the path of a member, with which the messages of readers begin, by what encloses it. Paths are
// written only when there is something to say.
func within(path string, err error) error {
	if e, ok := err.(*Error); ok { //nolint:errorlint // readers wrap nothing
		e.Message = path + e.Message
	}
	return err
}

// field is one member of a closed object.
type field struct {
	name     string
	required bool
	read     reader
}

func need(name string, r reader) field { return field{name, true, r} }
func may(name string, r reader) field  { return field{name, false, r} }

// readObject reads raw as one object of exactly these fields (at most 32); others are refused when strict.
func readObject(what string, raw []byte, strict bool, fields ...field) error {
	var seen uint32
	err := eachMember(what, raw, func(name []byte, v jsontext.Value) error {
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == string(name) })
		if i < 0 {
			if strict {
				return BadRequest("%s has an unknown member", what)
			}
			return nil
		}
		seen |= 1 << i
		return within(what+".", fields[i].read(fields[i].name, v))
	})
	if err != nil {
		return err
	}
	for i, f := range fields {
		if f.required && seen&(1<<i) == 0 {
			return BadRequest("%s.%s is missing", what, f.name)
		}
	}
	return nil
}

// eachMember calls f for each member of the one object that raw must be. Names and values alias raw.
func eachMember(what string, raw []byte, f func(name []byte, v jsontext.Value) error) error {
	m := members{raw: raw}
	if !m.open() {
		return BadRequest("%s must be a JSON object", what)
	}
	for first := true; ; first = false {
		name, v, ok := m.next(first)
		if !ok {
			return malformed(what)
		}
		if v == nil {
			return nil
		}
		if err := f(name, v); err != nil {
			return err
		}
	}
}

// readAliased reads the next value as a slice of raw itself, with no room to grow into what follows.
func readAliased(dec *jsontext.Decoder, raw []byte) (jsontext.Value, error) {
	v, err := dec.ReadValue()
	if err != nil {
		return nil, err
	}
	end := int(dec.InputOffset())
	return jsontext.Value(raw[end-len(v) : end : end]), nil
}

// endOf reads the closing delimiter and makes sure that nothing follows.
func endOf(what string, dec *jsontext.Decoder) error {
	if _, err := dec.ReadToken(); err != nil {
		return malformed(what)
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return malformed(what)
	}
	return nil
}

func malformed(what string) error {
	return BadRequest("%s is not valid JSON, or names a member twice", what)
}

// readList calls f for each element of the array that v must be; over limit elements are refused.
func readList(what string, v jsontext.Value, limit int, f reader) error {
	dec := jsontext.NewDecoder(bytes.NewBuffer(v))
	if dec.PeekKind() != '[' {
		return BadRequest("%s must be a list", what)
	}
	if _, err := dec.ReadToken(); err != nil {
		return malformed(what)
	}
	for n := 0; dec.PeekKind() != ']'; n++ {
		if n == limit {
			return BadRequest("%s has more than %d entries", what, limit)
		}
		item, err := readAliased(dec, v)
		if err != nil {
			return malformed(what)
		}
		if err := f("", item); err != nil {
			return within(what+"["+strconv.Itoa(n)+"]", err)
		}
	}
	return endOf(what, dec)
}

// text decodes a JSON string; ok is false for any other kind.
func text(v jsontext.Value) (s string, ok bool) {
	if v.Kind() != '"' {
		return "", false
	}
	if inner := v[1 : len(v)-1]; bytes.IndexByte(inner, '\\') < 0 {
		return string(inner), true
	}
	b, err := jsontext.AppendUnquote(nil, []byte(v))
	return string(b), err == nil
}

// nonEmpty reads a string of at least one character.
func nonEmpty(dst *string) reader {
	return func(what string, v jsontext.Value) error {
		s, ok := text(v)
		if !ok || s == "" {
			return BadRequest("%s must be a non-empty string", what)
		}
		*dst = s
		return nil
	}
}

// identifier reads a string that CheckID accepts.
func identifier(dst *string) reader {
	return func(what string, v jsontext.Value) error {
		s, ok := text(v)
		if !ok {
			return BadRequest("%s must be a string", what)
		}
		*dst = s
		return checkID(what, s)
	}
}

// units reads a string of a length in UTF-16 code units, as JavaScript counts.
func units(dst *string, least, most int) reader {
	return func(what string, v jsontext.Value) error {
		s, ok := text(v)
		n := 0
		for _, r := range s {
			n++
			if r > 0xFFFF {
				n++
			}
		}
		if !ok || n < least || n > most {
			return BadRequest("%s must be a string of %d to %d characters", what, least, most)
		}
		*dst = s
		return nil
	}
}

// word reads one of a closed list of strings.
func word(dst *string, words ...string) reader {
	return func(what string, v jsontext.Value) error {
		s, ok := text(v)
		i := slices.Index(words, s)
		if !ok || i < 0 {
			return BadRequest("%s must be one of %s", what, strings.Join(words, ", "))
		}
		*dst = words[i] // the constant: records that wait for long needn't keep a copy each
		return nil
	}
}

// integer reads a whole number from least to 2^53-1.
func integer(dst *int64, least int64) reader { return integerTo(dst, least, maxSafeInteger) }

func integerTo(dst *int64, least, most int64) reader {
	return func(what string, v jsontext.Value) error {
		n, ok := whole(v)
		if !ok || n < least || n > most {
			return BadRequest("%s must be a whole number from %d to %d", what, least, most)
		}
		*dst = n
		return nil
	}
}

// whole judges a number as JavaScript does: 1e3 and 1.0 are whole, and the value is what a double holds.
func whole(v jsontext.Value) (int64, bool) {
	if v.Kind() != '0' {
		return 0, false
	}
	if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
		return n, n >= -maxSafeInteger && n <= maxSafeInteger
	}
	f, err := strconv.ParseFloat(string(v), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > maxSafeInteger {
		return 0, false
	}
	return int64(f), true
}

func boolean(dst *bool) reader {
	return func(what string, v jsontext.Value) error {
		if k := v.Kind(); k != 't' && k != 'f' {
			return BadRequest("%s must be true or false", what)
		}
		*dst = v.Kind() == 't'
		return nil
	}
}

// CheckID refuses, as bad-request, ids that aren't 1 to 256 bytes of valid UTF-8 without U+0000.
func CheckID(id string) error { return checkID("an id", id) }

func checkID(what, id string) error {
	if id == "" || len(id) > MaxIDBytes || strings.IndexByte(id, 0) >= 0 || !utf8.ValidString(id) {
		return BadRequest("%s must have 1 to %d bytes and no U+0000", what, MaxIDBytes)
	}
	return nil
}
