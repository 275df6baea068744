package poll

import (
	"strconv"

	"pushrelay/wire"
)

// Headers of a signed request.
const (
	headerRunner    = "X-Byollm-Runner"
	headerSite      = "X-Byollm-Site"
	headerIssuedAt  = "X-Byollm-Issued-At"
	headerSignature = "X-Byollm-Signature"
)

// The checks of section 8, after the path: version, signed at all, caller known, fresh, signature, revoked. Then the
// endpoint judges the schema, that the body's id is the signer's, and does the work. An early one never says what only a
// later one may: who isn't authenticated learns nothing of schemas and jobs.
func (q *request) check() error {
	if err := q.version(); err != nil {
		return err
	}
	if q.e.signed == "" {
		return nil
	}
	if err := q.signer(); err != nil {
		return err
	}
	return q.verify()
}

// version reads what the request declares, wherever its method has it.
func (q *request) version() error {
	var declared string
	if q.http.Method == "GET" {
		declared = q.http.URL.Query().Get("protocolVersion")
	} else {
		var err error
		if declared, err = wire.DeclaredVersion(q.body.text); err != nil {
			return err
		}
	}
	d, err := wire.ParseDialect(declared)
	q.Dialect = d
	return err
}

// signer is the checks that the headers alone decide: signed at all, caller known, fresh. It fills Caller and who.
func (q *request) signer() error {
	if q.known {
		return nil // they were made before the body was read
	}
	name := headerRunner
	if q.e.role == wire.RoleSite {
		name = headerSite
	}
	h := q.http.Header
	caller := h.Get(name)
	issuedAt, err := strconv.ParseInt(h.Get(headerIssuedAt), 10, 64)
	if err != nil || h.Get(headerSignature) == "" || wire.CheckID(caller) != nil {
		return wire.Errorf(wire.CodeUnauthorized, "this request is not signed")
	}
	q.who, q.known = q.planes.opts.Hub.Caller(q.e.role, caller)
	if !q.known {
		return wire.Errorf(wire.CodeUnauthorized, "this relay does not know this caller; is it approved, and is this the right relay?")
	}
	q.Caller, q.issuedAt = caller, issuedAt
	now := q.planes.opts.Hub.Now().UnixMilli()
	if issuedAt < now-wire.MaxSkewMs || issuedAt > now+wire.MaxSkewMs {
		return wire.ClockSkew(now)
	}
	return nil
}

// verify is the checks that need the whole body: the signature, and then whether its caller is revoked. It fills Key.
func (q *request) verify() error {
	endpoint := q.e.signed
	if q.e.role == wire.RoleSite {
		endpoint = wire.SiteEndpoint(endpoint)
	}
	for _, key := range q.who.Keys {
		if wire.VerifySignature(key, endpoint, q.Caller, q.issuedAt, q.body.text, q.http.Header.Get(headerSignature)) == nil {
			q.Key, q.Signature = key, q.http.Header.Get(headerSignature)
			break
		}
	}
	switch {
	case q.Key == nil:
		return wire.Errorf(wire.CodeUnauthorized, "this request's signature is not valid")
	case q.who.Revoked:
		return wire.Errorf(wire.CodeRevoked, "this caller is revoked; pair again to come back")
	}
	return nil
}

// signedBy makes sure that the id in a body is the signer's.
func (q *request) signedBy(id string) error {
	if id != q.Caller {
		return wire.Errorf(wire.CodeForbidden, "the id in this request is not the signer's")
	}
	return nil
}
