package wire

import (
	"github.com/go-json-experiment/json/jsontext"
)

// The bodies of the control plane's grant endpoint, which the relay asks after each claim (docs/operation.md):
//
//	POST, relay to control plane   {protocolVersion, runners: [{runnerId, owner, keyId, capabilities, jobs: [{leaseId, siteId, stub}]}]}
//	200, control plane to relay    {answers: [{leaseId, grant} or {leaseId, decline: permanent|temporary}]}
//
// Both are closed shapes. Jobs without an answer are declined for the time being.

// MaxGrantJobs is the most jobs in one request to the grant endpoint, over all its runners.
const MaxGrantJobs = 64

// MaxGrantAnswerBytes bounds the endpoint's answer.
const MaxGrantAnswerBytes = 1 << 20

// Words of a decline.
const (
	DeclinePermanent = "permanent" // this device never gets the job
	DeclineTemporary = "temporary" // not now
)

// GrantRunner is one device that claimed jobs.
type GrantRunner struct {
	RunnerID     string
	Owner        string // the device's
	KeyID        string // of the device
	Capabilities []Capability
	Jobs         []GrantJob
}

// GrantJob is one job that a device claimed.
type GrantJob struct {
	LeaseID string // names the job in the answer
	SiteID  string
	Stub    *Stub // as the site published it
}

// GrantAnswer is what the endpoint says of one job: exactly one of Grant, Decline and Err is set.
type GrantAnswer struct {
	LeaseID string
	Grant   *SignedGrant
	Decline string // one of the Decline words
	Err     error  // there is a grant, and it isn't one
}

// AppendGrantRequest appends the body that asks for the grants of what these runners claimed.
func AppendGrantRequest(dst []byte, runners []*GrantRunner) []byte {
	dst = append(dst, `{"protocolVersion":"`+Dialect2+`","runners":[`...)
	for i, r := range runners {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"runnerId":`...)
		dst = AppendString(dst, r.RunnerID)
		dst = appendTextMember(dst, "owner", r.Owner)
		dst = appendTextMember(dst, "keyId", r.KeyID)
		dst = append(dst, `,"capabilities":`...)
		dst = AppendCapabilities(dst, Dialect2, r.Capabilities)
		dst = append(dst, `,"jobs":[`...)
		for j, job := range r.Jobs {
			if j > 0 {
				dst = append(dst, ',')
			}
			dst = append(dst, `{"leaseId":`...)
			dst = AppendString(dst, job.LeaseID)
			dst = appendTextMember(dst, "siteId", job.SiteID)
			dst = append(append(append(dst, `,"stub":`...), job.Stub.Raw...), '}')
		}
		dst = append(dst, ']', '}')
	}
	return append(dst, ']', '}')
}

// ParseGrantRequest reads the body of AppendGrantRequest strictly, for endpoints that are written in Go.
func ParseGrantRequest(raw []byte) ([]*GrantRunner, error) {
	var version string
	out := []*GrantRunner{}
	jobs := 0
	err := readObject("request", raw, true, declared(Dialect2, &version),
		need("runners", func(what string, v jsontext.Value) error {
			return readList(what, v, MaxGrantJobs, func(item string, v jsontext.Value) error {
				r := new(GrantRunner)
				out = append(out, r)
				return readObject(item, v, true, need("runnerId", identifier(&r.RunnerID)), need("owner", identifier(&r.Owner)),
					need("keyId", identifier(&r.KeyID)), need("capabilities", capabilities(Dialect2, &r.Capabilities)),
					need("jobs", grantJobs(&r.Jobs, &jobs)))
			})
		}))
	return out, err
}

func grantJobs(dst *[]GrantJob, n *int) reader {
	return func(what string, v jsontext.Value) error {
		return readList(what, v, MaxGrantJobs, func(item string, v jsontext.Value) error {
			if *n++; *n > MaxGrantJobs {
				return BadRequest("%s is one of over %d jobs", item, MaxGrantJobs)
			}
			var j GrantJob
			err := readObject(item, v, true, need("leaseId", identifier(&j.LeaseID)), need("siteId", identifier(&j.SiteID)),
				need("stub", func(what string, v jsontext.Value) error {
					s, err := ParseStub(Dialect2, v)
					j.Stub = &s
					return err
				}))
			*dst = append(*dst, j)
			return err
		})
	}
}

// AppendGrantAnswers appends the endpoint's body, for endpoints that are written in Go; Err is ignored.
func AppendGrantAnswers(dst []byte, answers []GrantAnswer) []byte {
	dst = append(dst, `{"answers":[`...)
	for i := range answers {
		a := &answers[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"leaseId":`...)
		dst = AppendString(dst, a.LeaseID)
		if a.Grant != nil {
			dst = AppendSignedGrant(append(dst, `,"grant":`...), a.Grant)
		}
		dst = append(appendTextMember(dst, "decline", a.Decline), '}')
	}
	return append(dst, ']', '}')
}

// ParseGrantAnswers reads the endpoint's body strictly. A grant that can't be read spoils its own answer only; two answers
// for one lease spoil the body.
func ParseGrantAnswers(raw []byte) ([]GrantAnswer, error) {
	out := []GrantAnswer{}
	seen := map[string]bool{}
	err := readObject("answer", raw, true, need("answers", func(what string, v jsontext.Value) error {
		return readList(what, v, MaxGrantJobs, func(item string, v jsontext.Value) error {
			var a GrantAnswer
			if err := grantAnswer(item, v, &a); err != nil {
				return err
			}
			if seen[a.LeaseID] {
				return BadRequest("%s answers for a lease again", item)
			}
			seen[a.LeaseID] = true
			out = append(out, a)
			return nil
		})
	}))
	return out, err
}

func grantAnswer(what string, v jsontext.Value, a *GrantAnswer) error {
	granted := false
	err := readObject(what, v, true, need("leaseId", identifier(&a.LeaseID)),
		may("decline", word(&a.Decline, DeclinePermanent, DeclineTemporary)),
		may("grant", func(_ string, v jsontext.Value) error {
			granted = true
			g, err := ParseSignedGrant(v)
			if err != nil {
				a.Err = err
				return nil
			}
			a.Grant = &g
			return nil
		}))
	if err == nil && granted == (a.Decline != "") {
		return BadRequest("%s must have either a grant or a decline", what)
	}
	return err
}
