package wire

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// MaxStubBytes bounds a stub's text without its white space: its strings have bounds of their own, a number's digits don't.
const MaxStubBytes = 16 << 10

// ParseStub reads a stub strictly in its dialect; else bad-request. Raw becomes a private, compact copy, members in
// the site's order.
func ParseStub(d Dialect, raw []byte) (Stub, error) {
	var s Stub
	if err := readObject("stub", raw, true, stubFields(d, &s)...); err != nil {
		return Stub{}, err
	}
	compact := jsontext.Value(append(make([]byte, 0, len(raw)), raw...))
	if err := compact.Compact(); err != nil {
		return Stub{}, malformed("stub")
	}
	if len(compact) > MaxStubBytes {
		return Stub{}, BadRequest("stub has over %d bytes", MaxStubBytes)
	}
	s.Raw = compact
	return s, nil
}

// stubFields are a stub's members. Kind stays an open word, but it keys queues, so it is bounded like an id.
func stubFields(d Dialect, s *Stub) []field {
	voc := d.vocabulary()
	fields := make([]field, 0, 11) // two more for a claimed job
	fields = append(fields,
		need("id", identifier(&s.ID)), need("kind", identifier(&s.Kind)), need("owner", identifier(&s.Owner)),
		need("site", identifier(&s.Site)), need("audience", word(&s.Audience, voc.audiences...)),
		need("sizeClass", word(&s.SizeClass, "small", "medium", "large", "unbounded")),
		need("streaming", boolean(&s.Streaming)), need("deadlineAt", integer(&s.DeadlineAt, 1)))
	if voc.purpose {
		fields = append(fields, may("purpose", identifier(&s.Purpose)))
	}
	return fields
}

// AppendStub appends the text of a stub for a site to publish; Raw is ignored, an empty purpose left out.
func AppendStub(dst []byte, s Stub) []byte {
	dst = append(dst, `{"id":`...)
	dst = AppendString(dst, s.ID)
	dst = appendTextMember(dst, "kind", s.Kind)
	dst = appendTextMember(dst, "owner", s.Owner)
	dst = appendTextMember(dst, "site", s.Site)
	dst = appendTextMember(dst, "audience", s.Audience)
	dst = appendTextMember(dst, "purpose", s.Purpose)
	dst = appendTextMember(dst, "sizeClass", s.SizeClass)
	dst = append(dst, `,"streaming":`...)
	dst = strconv.AppendBool(dst, s.Streaming)
	dst = append(dst, `,"deadlineAt":`...)
	return append(strconv.AppendInt(dst, s.DeadlineAt, 10), '}')
}

// AppendClaimed appends the stub's own text with a lease member spliced in; expiresAt is epoch ms. ClaimedJob.Append adds a
// grant.
func (s *Stub) AppendClaimed(dst []byte, leaseID, runnerID string, expiresAt int64) []byte {
	if n := len(s.Raw); n > 0 {
		dst = append(dst, s.Raw[:n-1]...)
	}
	dst = append(dst, `,"lease":{"id":`...)
	dst = AppendString(dst, leaseID)
	dst = append(dst, `,"runnerId":`...)
	dst = AppendString(dst, runnerID)
	dst = append(dst, `,"expiresAt":`...)
	return append(strconv.AppendInt(dst, expiresAt, 10), '}', '}')
}
