package wire

import (
	"github.com/go-json-experiment/json/jsontext"
)

// ParseClaimed reads a claimed job on a daemon, strictly. Raw becomes the stub's text without lease and grant, which
// this build doesn't judge.
func ParseClaimed(d Dialect, raw []byte) (Stub, ClaimLease, error) {
	var s Stub
	var lease ClaimLease
	voc := d.vocabulary()
	fields := append(stubFields(d, &s), need("lease", claimLease(voc, &lease)))
	if voc.signedGrant {
		fields = append(fields, may("grant", signedGrant))
	}
	if err := readObject("job", raw, true, fields...); err != nil {
		return Stub{}, ClaimLease{}, err
	}
	text, err := withoutLease(raw)
	if err != nil {
		return Stub{}, ClaimLease{}, err
	}
	s.Raw = text
	return s, lease, nil
}

func claimLease(voc vocabulary, dst *ClaimLease) reader {
	return func(what string, v jsontext.Value) error {
		return readObject(what, v, !voc.looseParts, need("id", identifier(&dst.ID)),
			need("runnerId", identifier(&dst.RunnerID)), need("expiresAt", integer(&dst.ExpiresAt, 1)))
	}
}

// signedGrant checks the shape of a control plane's grant only.
func signedGrant(what string, v jsontext.Value) error {
	var s string
	var at int64
	return readObject(what, v, true, need("grantId", nonEmpty(&s)), need("jobId", nonEmpty(&s)), need("site", nonEmpty(&s)),
		need("user", nonEmpty(&s)), need("owner", nonEmpty(&s)), need("purpose", nonEmpty(&s)), need("kind", nonEmpty(&s)),
		need("service", nonEmpty(&s)), need("issuedAt", integer(&at, 1)), need("signature", nonEmpty(&s)))
}

func withoutLease(raw []byte) ([]byte, error) {
	out := append(make([]byte, 0, len(raw)), '{')
	err := eachMember("job", raw, func(name []byte, v jsontext.Value) error {
		if string(name) == "lease" || string(name) == "grant" {
			return nil
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(AppendString(out, string(name)), ':')
		out = append(out, v...)
		return nil
	})
	return append(out, '}'), err
}
