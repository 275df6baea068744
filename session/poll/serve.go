package poll

import (
	"errors"
	"net/http"
	"time"

	"pushrelay/session"
	"pushrelay/wire"
)

// request is one request on its way through the checks.
type request struct {
	session.Call // filled as the checks go on

	planes *Planes
	e      *endpoint
	http   *http.Request
	w      http.ResponseWriter
	body   body

	known    bool // Caller is one that the projection knows
	who      session.Caller
	issuedAt int64 // epoch ms, as signed
}

// errGone is the end of a request whose client hung up: there is nobody to answer.
var errGone = errors.New("poll: the client is gone")

// errMethod and errUnpaired have statuses that wire's codes don't have.
var (
	errMethod   = wire.BadRequest("this path has another method")
	errUnpaired = wire.BadRequest("this relay doesn't pair devices; whoever runs it approves them elsewhere")
)

// ServeHTTP answers one request. It blocks for as long as the request is held.
func (p *Planes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p.underWay.begin() {
		defer p.underWay.end()
	}
	began := time.Now()
	q := &request{planes: p, http: r, w: w}
	rep, err := p.answer(q)
	q.free()
	a := answer{w: w, control: http.NewResponseController(w), closing: p.draining.Load()}
	outcome := outcomeOK
	if err == nil {
		if !a.reply(r.Context(), rep) {
			outcome = outcomeGone
		}
	} else {
		outcome = p.refuse(&a, q, err)
	}
	p.opts.Observer.Polled(q.name(), outcome, time.Since(began))
}

func (q *request) name() string {
	if q.e == nil {
		return unknownEndpoint
	}
	return q.e.name
}

// answer takes a request through the checks and lets its endpoint work.
func (p *Planes) answer(q *request) (session.Answer, error) {
	err := p.route(q)
	if err == nil && p.draining.Load() && q.e.fresh {
		err = errDraining()
	}
	if err != nil {
		q.leave(restStall)
		return session.Answer{}, err
	}
	if err := q.read(); err != nil {
		return session.Answer{}, err
	}
	if err := q.check(); err != nil {
		return session.Answer{}, err
	}
	return q.e.work(q.http.Context(), p, q)
}

func errDraining() *wire.Error {
	return wire.Unavailable(1, "this relay is going away; ask again, another one answers")
}

// route finds the endpoint. A path that is written differently isn't it.
func (p *Planes) route(q *request) error {
	e := p.endpoints[q.http.URL.EscapedPath()]
	if e == nil {
		return wire.Errorf(wire.CodeNotFound, "nothing is served at this path")
	}
	q.e = e
	switch {
	case q.http.Method != e.method:
		return errMethod
	case e.method == http.MethodPost && (q.http.URL.RawQuery != "" || q.http.URL.ForceQuery):
		return wire.BadRequest("no query is allowed here: credentials never go into a URL")
	}
	return nil
}

// refuse answers a request with its error and tells the outcome's word.
func (p *Planes) refuse(a *answer, q *request, err error) string {
	broken := isBroken(err)
	gone := errors.Is(err, errGone) || q.http.Context().Err() != nil && !broken
	a.closing = a.closing || broken || gone // what may still come on this connection isn't where a request begins
	if gone {
		a.refusal(http.StatusServiceUnavailable, 1, errDraining().AppendJSON(nil))
		return outcomeGone
	}
	e := wire.AsError(err)
	status := e.HTTPStatus()
	switch {
	case errors.Is(err, errMethod):
		status = http.StatusMethodNotAllowed
		a.w.Header().Set("Allow", q.e.method)
	case errors.Is(err, errUnpaired):
		status = http.StatusNotImplemented
	}
	var text []byte
	if q.e != nil && q.e.role == wire.RoleSite {
		text = e.AppendSiteJSON(nil)
	} else {
		text = e.AppendJSON(nil)
	}
	p.refusals.note(q, e.Code)
	a.refusal(status, e.RetryAfter, text)
	return string(e.Code)
}
