package poll

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"pushrelay/session"
	"pushrelay/wire"
)

const (
	writeChunk = 64 << 10         // must move within writeStall
	writeStall = 10 * time.Second // as a write of a session
)

// Outcomes beside the codes of errors.
const (
	outcomeOK   = "ok"
	outcomeGone = "gone" // the client hung up before it was answered
)

// Outcomes answers the words of all outcomes, so that every series exists from the start.
func Outcomes() []string {
	return []string{
		outcomeOK, outcomeGone, string(wire.CodeBadRequest), string(wire.CodeUnsupportedVersion), string(wire.CodeUnauthorized),
		string(wire.CodeClockSkew), string(wire.CodeForbidden), string(wire.CodeRevoked), string(wire.CodeNotFound),
		string(wire.CodeNotReady), string(wire.CodeTooLate), string(wire.CodeRateLimited), string(wire.CodeServerError),
	}
}

// answer writes one answer. Writes may take as long as they move.
type answer struct {
	w       http.ResponseWriter
	control *http.ResponseController
	closing bool // the connection isn't used again
}

func (a *answer) header() http.Header {
	h := a.w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if a.closing {
		h.Set("Connection", "close")
	}
	return h
}

// refusal writes the text of an error; retryAfter is seconds, 0 for none.
func (a *answer) refusal(status, retryAfter int, text []byte) {
	h := a.header()
	if retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(retryAfter))
	}
	h.Set("Content-Length", strconv.Itoa(len(text)))
	a.w.WriteHeader(status)
	_ = a.write(text) // nobody waits for the outcome of a refusal
}

// reply writes a 200 and reports whether all of it was handed to the connection of a client that was there.
func (a *answer) reply(ctx context.Context, r session.Answer) (written bool) {
	if r.Over != nil {
		defer func() { r.Over(written) }()
	}
	if ctx.Err() != nil {
		return false
	}
	h := a.header()
	if r.More == nil {
		n := 0
		for _, p := range r.Body {
			n += len(p)
		}
		h.Set("Content-Length", strconv.Itoa(n))
	}
	if a.pieces(r.Body) != nil {
		return false
	}
	for r.More != nil {
		pieces, err := r.More(ctx)
		if err != nil {
			return false
		}
		if pieces == nil {
			break
		}
		if a.pieces(pieces) != nil {
			return false
		}
	}
	return a.flush() == nil
}

func (a *answer) pieces(pieces [][]byte) error {
	for _, p := range pieces {
		if err := a.write(p); err != nil {
			return err
		}
	}
	return nil
}

// write hands p to the connection, a chunk at a time.
func (a *answer) write(p []byte) error {
	for len(p) > 0 {
		n := min(len(p), writeChunk)
		_ = a.control.SetWriteDeadline(time.Now().Add(writeStall))
		if _, err := a.w.Write(p[:n]); err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

func (a *answer) flush() error {
	_ = a.control.SetWriteDeadline(time.Now().Add(writeStall))
	return a.control.Flush()
}
