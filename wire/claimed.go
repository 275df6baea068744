package wire

import (
	"github.com/go-json-experiment/json/jsontext"
)

// ParseClaimed reads a claimed job on a daemon, strictly. The stub's Raw becomes its text without lease and grant; a grant is
// not judged here.
func ParseClaimed(d Dialect, raw []byte) (ClaimedJob, error) {
	var s Stub
	var j ClaimedJob
	voc := d.vocabulary()
	fields := append(stubFields(d, &s), need("lease", claimLease(voc, &j.Lease)))
	if voc.signedGrant {
		fields = append(fields, may("grant", func(what string, v jsontext.Value) error {
			j.Grant = new(SignedGrant)
			return signedGrant(j.Grant)(what, v)
		}))
	}
	if err := readObject("job", raw, true, fields...); err != nil {
		return ClaimedJob{}, err
	}
	text, err := withoutLease(raw)
	if err != nil {
		return ClaimedJob{}, err
	}
	s.Raw = text
	j.Stub = &s
	return j, nil
}

func claimLease(voc vocabulary, dst *ClaimLease) reader {
	return func(what string, v jsontext.Value) error {
		return readObject(what, v, !voc.looseParts, need("id", identifier(&dst.ID)),
			need("runnerId", identifier(&dst.RunnerID)), need("expiresAt", integer(&dst.ExpiresAt, 1)))
	}
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
