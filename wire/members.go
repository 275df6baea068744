package wire

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// members walks over the members of one object. What is simple (ASCII strings without escapes, short whole numbers,
// true, false) is judged here, byte by byte; everything else is left to the JSON codec, value by value. Both refuse the
// same texts, which a fuzz test holds them to.
type members struct {
	raw   []byte
	at    int
	skips bool       // values are passed over: a name that comes twice within one isn't looked for
	few   [12][]byte // names that came, unquoted
	n     int
	many  map[string]struct{} // instead of few, when there are more
}

// open enters the object; false: there is none.
func (m *members) open() bool {
	m.space()
	if m.peek() != '{' {
		return false
	}
	m.at++
	return true
}

// next answers the next member's name, unquoted, and value; both alias raw. ok false: the text isn't valid. A nil
// value: there are no more, and nothing follows the object.
func (m *members) next(first bool) (name []byte, v jsontext.Value, ok bool) {
	m.space()
	switch c := m.peek(); {
	case c == '}':
		m.at++
		m.space()
		return nil, nil, m.at == len(m.raw)
	case first:
	case c == ',':
		m.at++
		m.space()
	default:
		return nil, nil, false
	}
	if m.peek() != '"' {
		return nil, nil, false
	}
	quoted, ok := m.value()
	if !ok {
		return nil, nil, false
	}
	if name, ok = unquoted(quoted); !ok || !m.fresh(name) {
		return nil, nil, false
	}
	m.space()
	if m.peek() != ':' {
		return nil, nil, false
	}
	m.at++
	m.space()
	v, ok = m.value()
	return name, v, ok
}

func (m *members) peek() byte {
	if m.at < len(m.raw) {
		return m.raw[m.at]
	}
	return 0
}

func (m *members) space() {
	for m.at < len(m.raw) {
		switch m.raw[m.at] {
		case ' ', '\t', '\r', '\n':
			m.at++
		default:
			return
		}
	}
}

// value takes the value that begins here, with no room to grow into what follows.
func (m *members) value() (jsontext.Value, bool) {
	n := simple(m.raw[m.at:])
	if n == 0 {
		dec := jsontext.NewDecoder(bytes.NewBuffer(m.raw[m.at:]), jsontext.AllowDuplicateNames(m.skips))
		if _, err := dec.ReadValue(); err != nil {
			return nil, false
		}
		n = int(dec.InputOffset())
	}
	v := m.raw[m.at : m.at+n : m.at+n]
	m.at += n
	return v, true
}

// simple answers the length of a value that needs no codec to be judged, else 0.
func simple(b []byte) int {
	if len(b) == 0 {
		return 0
	}
	switch c := b[0]; {
	case c == '"':
		if end := bytes.IndexByte(b[1:], '"'); end >= 0 && plain(b[1:1+end]) {
			return 1 + end + 1
		}
	case c >= '1' && c <= '9':
		n := 1
		for n < len(b) && b[n] >= '0' && b[n] <= '9' {
			n++
		}
		if n < len(b) && (b[n] == ',' || b[n] == '}') {
			return n
		}
	case bytes.HasPrefix(b, []byte("true")):
		return len("true")
	case bytes.HasPrefix(b, []byte("false")):
		return len("false")
	}
	return 0
}

// unquoted answers a JSON string's text, which aliases it where it has no escapes.
func unquoted(v jsontext.Value) ([]byte, bool) {
	if inner := v[1 : len(v)-1]; bytes.IndexByte(inner, '\\') < 0 {
		return inner, true
	}
	b, err := jsontext.AppendUnquote(nil, []byte(v))
	return b, err == nil
}

// fresh notes a name; false: it came before.
func (m *members) fresh(name []byte) bool {
	if m.many != nil {
		_, came := m.many[string(name)]
		m.many[string(name)] = struct{}{}
		return !came
	}
	for _, other := range m.few[:m.n] {
		if bytes.Equal(other, name) {
			return false
		}
	}
	if m.n < len(m.few) {
		m.few[m.n] = name
		m.n++
		return true
	}
	m.many = make(map[string]struct{}, 2*len(m.few))
	for _, other := range m.few {
		m.many[string(other)] = struct{}{}
	}
	m.many[string(name)] = struct{}{}
	return true
}
