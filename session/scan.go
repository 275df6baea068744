package session

import (
	"bytes"
	"math"

	"github.com/go-json-experiment/json/jsontext"

	"pushrelay/wire"
)

// mostEntries is how many members or elements an object or a list in a long frame may have. The protocol's own have at most
// 1,024, and 8 MiB of `{},` would become a hundred when they are decoded.
const mostEntries = 4096

// crowded reports whether an object or a list in the frame has more entries; it stops at the first that has.
func crowded(frame []byte) bool {
	if bytes.Count(frame, []byte{','}) < mostEntries {
		return false
	}
	dec := jsontext.NewDecoder(bytes.NewBuffer(frame))
	for {
		if _, err := dec.ReadToken(); err != nil {
			return false // it ends, or the scanner will say what is wrong with it
		}
		kind, n := dec.StackIndex(dec.StackDepth())
		if kind == '{' {
			n /= 2 // names and values
		}
		if n > mostEntries {
			return true
		}
	}
}

// head is what the transport must know of a frame before anybody handles it.
type head struct {
	Type   wire.FrameType
	ID     string // of a request
	Re     string // of an answer
	Stream uint32 // of an error that refuses a stream
	Job    string // the one job that a request concerns; empty when there are several, or none
}

// scanner reads heads. It stops as soon as it knows enough: envelopes stand last and have megabytes, and whoever
// handles the frame reads it whole and judges it. So a frame that is broken further on is found there.
type scanner struct {
	dec jsontext.Decoder
	buf bytes.Buffer
	h   head
	has uint8
}

// What has been seen.
const (
	hasType = 1 << iota
	hasID
	hasRe
	hasJob
	hasStream
)

// scan answers a frame's head; a bad-request Error says that it isn't a JSON object with a type.
func (e *engine) scan(frame []byte) (head, error) {
	s := e.scanners.Get().(*scanner)
	s.buf = *bytes.NewBuffer(frame) // the decoder reads a Buffer in place
	s.dec.Reset(&s.buf)
	s.h, s.has = head{}, 0
	err := s.object()
	h := s.h
	s.h, s.buf = head{}, bytes.Buffer{}
	e.scanners.Put(s)
	if err != nil {
		return head{}, wire.BadRequest("the frame is not a JSON object with a type, in UTF-8, naming each member once")
	}
	return h, nil
}

func (s *scanner) object() error {
	if err := s.open('{'); err != nil {
		return err
	}
	for s.dec.PeekKind() != '}' {
		name, err := s.dec.ReadToken()
		if err != nil {
			return err
		}
		if err := s.member(name.String()); err != nil {
			return err
		}
		if s.enough() {
			return nil
		}
	}
	if _, err := s.dec.ReadToken(); err != nil {
		return err
	}
	if s.has&hasType == 0 {
		return errNoType
	}
	return nil
}

func (s *scanner) open(k jsontext.Kind) error {
	if s.dec.PeekKind() != k {
		return errShape
	}
	_, err := s.dec.ReadToken()
	return err
}

// enough says what each type needs: the other members are its handler's.
func (s *scanner) enough() bool {
	var need uint8
	switch s.h.Type {
	case "":
		return false
	case wire.TypeReply, wire.TypeError:
		need = hasRe // an error may have neither: then it is read to its end
	case wire.TypeFetch, wire.TypeResult, wire.TypeSeal, wire.TypeSealing, wire.TypeDecline, wire.TypeCollected:
		need = hasID | hasJob
	case wire.TypeCancel:
		need = hasID | hasJob // as a push to a daemon it has no id, and is short
	case wire.TypeReady, wire.TypeAccept, wire.TypeHeartbeat, wire.TypeRelease, wire.TypeEnqueue:
		need = hasID
	case wire.TypeChallenge, wire.TypeHello, wire.TypeWelcome, wire.TypeCredit, wire.TypeGoaway,
		wire.TypeClaimed, wire.TypePayload, wire.TypeLost, wire.TypeSites, wire.TypeRevoked,
		wire.TypeSealRequest, wire.TypeResults, wire.TypeNotices, wire.TypeRequeued:
	default:
		return false // nobody knows it, but its refusal should name its id
	}
	return s.has&need == need
}

func (s *scanner) member(name string) (err error) {
	switch name {
	case "type":
		var t string
		t, err = s.text()
		s.h.Type = wire.FrameType(t)
		s.has |= hasType
		if t == "" {
			return errNoType
		}
	case "id":
		s.h.ID, err = s.text()
		s.has |= hasID
	case "re":
		s.h.Re, err = s.text()
		s.has |= hasRe
	case "jobId":
		s.h.Job, err = s.text()
		s.has |= hasJob
	case "stream":
		err = s.number()
		s.has |= hasStream
	case "grant":
		err = s.grant()
		s.has |= hasJob
	case "grants", "jobIds":
		err = s.list()
		s.has |= hasJob
	default:
		err = s.dec.SkipValue()
	}
	return err
}

// text reads a string; any other value counts as an empty one, which its handler refuses.
func (s *scanner) text() (string, error) {
	if s.dec.PeekKind() != '"' {
		return "", s.dec.SkipValue()
	}
	t, err := s.dec.ReadToken()
	if err != nil {
		return "", err
	}
	return t.String(), nil
}

func (s *scanner) number() error {
	if s.dec.PeekKind() != '0' {
		return s.dec.SkipValue()
	}
	t, err := s.dec.ReadToken()
	if err != nil {
		return err
	}
	n, err := t.Uint()
	if err != nil || n > math.MaxUint32 {
		s.has &^= hasStream // nobody's stream
		return nil
	}
	s.h.Stream = uint32(n)
	return nil
}

// grant reads the job of {jobId, leaseId}.
func (s *scanner) grant() error {
	if s.dec.PeekKind() != '{' {
		return s.dec.SkipValue()
	}
	if err := s.open('{'); err != nil {
		return err
	}
	for s.dec.PeekKind() != '}' {
		name, err := s.dec.ReadToken()
		if err != nil {
			return err
		}
		if name.String() == "jobId" {
			s.h.Job, err = s.text()
		} else {
			err = s.dec.SkipValue()
		}
		if err != nil {
			return err
		}
	}
	_, err := s.dec.ReadToken()
	return err
}

// list reads the job of a list with one entry; a longer list concerns several.
func (s *scanner) list() error {
	if s.dec.PeekKind() != '[' {
		return s.dec.SkipValue()
	}
	if err := s.open('['); err != nil {
		return err
	}
	for n := 0; s.dec.PeekKind() != ']'; n++ {
		var err error
		switch {
		case n > 0:
			s.h.Job = ""
			err = s.dec.SkipValue()
		case s.dec.PeekKind() == '"':
			s.h.Job, err = s.text()
		default:
			err = s.grant()
		}
		if err != nil {
			return err
		}
	}
	_, err := s.dec.ReadToken()
	return err
}
