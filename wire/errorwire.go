package wire

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// AppendErrorFrame appends the error frame that refuses request re; an empty re is left out.
func AppendErrorFrame(dst []byte, re string, e *Error) []byte {
	dst = append(dst, `{"type":"error"`...)
	if re != "" {
		dst = append(dst, `,"re":`...)
		dst = AppendString(dst, re)
	}
	dst = append(dst, ',')
	return append(e.appendMembers(dst, true), '}')
}

// AppendJSON appends the body that a daemon's polling plane sends: a closed shape there, so too-late has no extras.
func (e *Error) AppendJSON(dst []byte) []byte {
	return append(e.appendMembers(append(dst, '{'), false), '}')
}

// AppendSiteJSON appends the body that the site's polling plane sends, where too-late keeps serverTime and state.
func (e *Error) AppendSiteJSON(dst []byte) []byte {
	return append(e.appendMembers(append(dst, '{'), true), '}')
}

func (e *Error) appendMembers(dst []byte, open bool) []byte {
	message := e.Message
	if message == "" {
		message = string(e.Code) // the shape wants one character at least
	}
	dst = append(dst, `"error":`...)
	dst = AppendString(dst, string(e.Code))
	dst = append(dst, `,"message":`...)
	dst = AppendString(dst, message)
	switch e.Code {
	case CodeClockSkew:
		dst = appendIntMember(dst, "serverTime", e.ServerTime)
		dst = appendIntMember(dst, "maxSkewMs", e.MaxSkewMs)
	case CodeTooLate:
		if open {
			dst = appendIntMember(dst, "serverTime", e.ServerTime)
			dst = appendTextMember(dst, "state", e.State)
		}
	case CodeRateLimited, CodeServerError:
		dst = appendIntMember(dst, "retryAfter", int64(e.RetryAfter))
	case CodeUnsupportedVersion:
		dst = append(dst, `,"supported":[`...)
		for i, v := range e.Supported {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = AppendString(dst, v)
		}
		dst = append(dst, ']')
		dst = appendTextMember(dst, "minimum", e.Minimum)
	case CodeBelowFloor:
		dst = appendTextMember(dst, "floor", e.Floor)
	}
	return dst
}

func appendIntMember(dst []byte, name string, v int64) []byte {
	if v == 0 {
		return dst
	}
	dst = append(append(append(dst, `,"`...), name...), `":`...)
	return strconv.AppendInt(dst, v, 10)
}

func appendTextMember(dst []byte, name, v string) []byte {
	if v == "" {
		return dst
	}
	dst = append(append(append(dst, `,"`...), name...), `":`...)
	return AppendString(dst, v)
}

// errorFrame is the error frame as a client reads it.
type errorFrame struct {
	Type       FrameType `json:"type"`
	Re         string    `json:"re,omitzero"`
	Code       ErrorCode `json:"error"`
	Message    string    `json:"message"`
	ServerTime int64     `json:"serverTime,omitzero"`
	MaxSkewMs  int64     `json:"maxSkewMs,omitzero"`
	RetryAfter int       `json:"retryAfter,omitzero"`
	Supported  []string  `json:"supported,omitzero"`
	Minimum    string    `json:"minimum,omitzero"`
	State      string    `json:"state,omitzero"`
	Floor      string    `json:"floor,omitzero"`
}

// ParseErrorFrame reads an error frame on a client: the request it answers (may be empty) and the refusal, whose code
// may be unknown.
func ParseErrorFrame(frame []byte) (re string, refusal *Error, err error) {
	f, err := Decode[errorFrame](frame)
	if err != nil {
		return "", nil, err
	}
	if f.Type != TypeError || f.Code == "" {
		return "", nil, BadRequest("this is not an error frame")
	}
	return f.Re, &Error{
		Code: f.Code, Message: f.Message, ServerTime: f.ServerTime, MaxSkewMs: f.MaxSkewMs, RetryAfter: f.RetryAfter,
		Supported: f.Supported, Minimum: f.Minimum, State: f.State, Floor: f.Floor,
	}, nil
}

// ParseWireError reads the error body of a polling plane, strictly: a known code, and extras only on their own.
func ParseWireError(d Dialect, raw []byte) (*Error, error) {
	var e Error
	var code string
	var retry int64
	err := readObject("error", raw, true,
		need("error", nonEmpty(&code)), need("message", nonEmpty(&e.Message)),
		may("supported", texts(&e.Supported)), may("minimum", nonEmpty(&e.Minimum)),
		may("floor", nonEmpty(&e.Floor)), may("retryAfter", integer(&retry, 0)),
		may("serverTime", integer(&e.ServerTime, 1)), may("maxSkewMs", integer(&e.MaxSkewMs, 1)))
	if err != nil {
		return nil, err
	}
	e.Code = ErrorCode(code)
	e.RetryAfter = int(retry)
	return &e, e.checkExtras(d)
}

func (e *Error) checkExtras(d Dialect) error {
	switch e.Code {
	case CodeBadRequest, CodeUnsupportedVersion, CodeUnauthorized, CodeClockSkew, CodeForbidden, CodeRevoked,
		CodeNotFound, CodeNotReady, CodeTooLate, CodeRateLimited, CodeServerError:
	case CodeBelowFloor:
		if !d.vocabulary().floor {
			return BadRequest("error.error is not a known code")
		}
	default:
		return BadRequest("error.error is not a known code")
	}
	carried := []struct {
		code ErrorCode
		has  bool
	}{
		{CodeClockSkew, e.ServerTime != 0 || e.MaxSkewMs != 0},
		{CodeUnsupportedVersion, e.Supported != nil || e.Minimum != ""},
		{CodeBelowFloor, e.Floor != ""},
	}
	for _, c := range carried {
		if c.has != (e.Code == c.code) {
			return BadRequest("error: the extras do not belong to the code")
		}
	}
	return nil
}

// texts reads a list of non-empty strings; an empty list stays distinct from an absent one.
func texts(dst *[]string) reader {
	return func(what string, v jsontext.Value) error {
		*dst = []string{}
		return readList(what, v, maxOpenList, func(item string, v jsontext.Value) error {
			var s string
			if err := nonEmpty(&s)(item, v); err != nil {
				return err
			}
			*dst = append(*dst, s)
			return nil
		})
	}
}
