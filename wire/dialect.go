package wire

import "slices"

// ParseDialect returns the dialect that a protocolVersion names; anything else is an unsupported-protocol-version Error.
func ParseDialect(v string) (Dialect, error) {
	if d := Dialect(v); slices.Contains(dialects(), d) {
		return d, nil
	}
	return "", UnsupportedVersion(v)
}

// Supported lists the protocolVersions that this build reads, oldest first; the caller may keep the slice.
func Supported() []string {
	var out []string
	for _, d := range dialects() {
		out = append(out, string(d))
	}
	return out
}

// Minimum is the oldest protocolVersion that this build reads, for the answer to an unknown one.
func Minimum() string { return string(dialects()[0]) }

func dialects() []Dialect { return []Dialect{Dialect0, Dialect2} }

// vocabulary is everything that differs between dialects. Readers ask it; none of them compares versions.
type vocabulary struct {
	audiences       []string // also the offer scopes of a capability
	purpose         bool     // a stub may name a purpose
	service         bool     // a capability names its service and may list known models
	withheld        bool     // a heartbeat may list withheld kinds
	paused          bool     // a heartbeat must say whether it is paused
	signedGrant     bool     // a claimed job may carry the control plane's grant
	successions     bool     // a heartbeat's answer may carry successions and an update offer
	floor           bool     // an error may be daemon-below-floor
	looseParts      bool     // leases, grants in requests and the pairing's daemon may carry unknown members
	fetchAnyVersion bool     // a fetch may declare any protocolVersion
}

func (d Dialect) vocabulary() vocabulary {
	if d == Dialect0 {
		return vocabulary{
			audiences: []string{"self", "named", "public"}, paused: true, looseParts: true, fetchAnyVersion: true,
		}
	}
	return vocabulary{
		audiences: []string{"private", "team"}, purpose: true, service: true, withheld: true,
		signedGrant: true, successions: true, floor: true,
	}
}

// Audiences lists the words that a stub's audience and a capability's offer scope may take in this dialect.
func (d Dialect) Audiences() []string { return d.vocabulary().audiences }

// Successions reports whether a heartbeat's answer may carry successions; in dialect 0 they would make it unreadable.
func (d Dialect) Successions() bool { return d.vocabulary().successions }

// SignedGrants reports whether claimed jobs may carry the control plane's grant in this dialect.
func (d Dialect) SignedGrants() bool { return d.vocabulary().signedGrant }
