package wire

import (
	"github.com/go-json-experiment/json/jsontext"
)

// maxBefore is how many members may stand before protocolVersion; no body has half as many.
const maxBefore = 32

// DeclaredVersion finds the protocolVersion of a polling body, wherever among its first 32 members it stands; what follows
// it isn't judged. Empty when JSON declares none there, in whatever shape; bad-request when the body isn't JSON so far. It
// reads what nobody has signed: it needs no memory for what it skips, names that come twice within it included.
func DeclaredVersion(body []byte) (string, error) {
	m := members{raw: body, skips: true}
	if !m.open() {
		if !jsontext.Value(body).IsValid(jsontext.AllowDuplicateNames(true)) {
			return "", malformed("the body")
		}
		return "", nil
	}
	for n := range maxBefore + 1 {
		name, v, ok := m.next(n == 0)
		switch {
		case !ok:
			return "", malformed("the body")
		case v == nil:
			return "", nil
		case string(name) == "protocolVersion":
			s, _ := text(v)
			return s, nil
		}
	}
	return "", nil
}

func declared(d Dialect, dst *string) field {
	return need("protocolVersion", word(dst, string(d)))
}

// grant reads one of the grants of a list; loose ones may carry more members.
func grant(loose bool, dst *Grant) reader {
	return func(what string, v jsontext.Value) error {
		return readObject(what, v, !loose, need("jobId", identifier(&dst.JobID)), need("leaseId", identifier(&dst.LeaseID)))
	}
}

func grants(loose bool, limit int, dst *[]Grant) reader {
	return func(what string, v jsontext.Value) error {
		*dst = []Grant{}
		return readList(what, v, limit, func(item string, v jsontext.Value) error {
			var g Grant
			err := grant(loose, &g)(item, v)
			*dst = append(*dst, g)
			return err
		})
	}
}

// ParseClaimRequest reads a polled claim, strictly in its dialect; else a bad-request Error.
func ParseClaimRequest(d Dialect, raw []byte) (ClaimRequest, error) {
	var r ClaimRequest
	var most int64
	err := readObject("claim", raw, true, declared(d, &r.ProtocolVersion), need("runnerId", identifier(&r.RunnerID)),
		need("capabilities", capabilities(d, &r.Capabilities)), need("max", integerTo(&most, 1, 64)))
	r.Max = int(most)
	return r, err
}

// ParseClaimResponse reads a claim's answer on a client, strictly; each job is checked as ParseClaimed does.
func ParseClaimResponse(d Dialect, raw []byte) (ClaimResponse, error) {
	r := ClaimResponse{Jobs: []jsontext.Value{}}
	err := readObject("claim", raw, true, need("leaseMs", integer(&r.LeaseMs, 1)),
		need("jobs", func(what string, v jsontext.Value) error {
			return readList(what, v, maxOpenList, func(_ string, v jsontext.Value) error {
				_, err := ParseClaimed(d, v)
				r.Jobs = append(r.Jobs, v)
				return err
			})
		}))
	return r, err
}

// ParseFetchRequest reads a polled fetch; dialect 0 lets it declare any version.
func ParseFetchRequest(d Dialect, raw []byte) (FetchRequest, error) {
	var r FetchRequest
	version := declared(d, &r.ProtocolVersion)
	if d.vocabulary().fetchAnyVersion {
		version = need("protocolVersion", nonEmpty(&r.ProtocolVersion))
	}
	err := readObject("fetch", raw, true, version, need("runnerId", identifier(&r.RunnerID)),
		need("jobId", identifier(&r.Grant.JobID)), need("leaseId", identifier(&r.Grant.LeaseID)))
	return r, err
}

// ParseFetchResponse reads a fetch's answer on a client, strictly; the envelope aliases raw.
func ParseFetchResponse(raw []byte) (Envelope, error) {
	var e Envelope
	return e, readObject("fetch", raw, true, need("envelope", envelope(&e)))
}

// ParseHeartbeatRequest reads a polled heartbeat, strictly in its dialect; at most 1024 active leases.
func ParseHeartbeatRequest(d Dialect, raw []byte) (HeartbeatRequest, error) {
	var r HeartbeatRequest
	voc := d.vocabulary()
	fields := []field{
		declared(d, &r.ProtocolVersion),
		need("runnerId", identifier(&r.RunnerID)),
		need("daemonVersion", nonEmpty(&r.DaemonVersion)),
		need("capabilities", capabilities(d, &r.Capabilities)),
		need("activeLeases", grants(voc.looseParts, MaxActiveLeases, &r.ActiveLeases)),
	}
	if voc.paused {
		fields = append(fields, need("paused", boolean(&r.Paused)))
	}
	if voc.withheld {
		fields = append(fields, may("withheld", withheld(voc)))
	}
	return r, readObject("heartbeat", raw, true, fields...)
}

// withheld checks kinds that a daemon holds back because two or more of its services claim them.
func withheld(voc vocabulary) reader {
	return func(what string, v jsontext.Value) error {
		return readList(what, v, MaxList, func(item string, v jsontext.Value) error {
			var kind string
			return readObject(item, v, true, need("kind", identifier(&kind)), need("claimants", claimants(voc)))
		})
	}
}

func claimants(voc vocabulary) reader {
	return func(what string, v jsontext.Value) error {
		n := 0
		err := readList(what, v, MaxList, func(item string, v jsontext.Value) error {
			n++
			var service, offer string
			return readObject(item, v, true,
				need("service", nonEmpty(&service)), need("offer", word(&offer, voc.audiences...)))
		})
		if err == nil && n < 2 {
			return BadRequest("%s must have two entries at least", what)
		}
		return err
	}
}

// ParseHeartbeatResponse reads a heartbeat's answer on a client, strictly in its dialect.
func ParseHeartbeatResponse(d Dialect, raw []byte) (HeartbeatResponse, error) {
	var r HeartbeatResponse
	fields := []field{
		need("sites", identities(&r.Sites)),
		need("cancel", grants(false, maxOpenList, &r.Cancel)),
		need("lost", grants(false, maxOpenList, &r.Lost)),
		need("serverTime", integer(&r.ServerTime, 1)),
		need("awaitingConsent", texts(&r.AwaitingConsent)),
	}
	if d.vocabulary().successions {
		fields = append(fields, may("successions", successionLines(&r.Successions)), may("updateTo", nonEmpty(&r.UpdateTo)))
	}
	return r, readObject("heartbeat", raw, true, fields...)
}

func identities(dst *map[string]PublicIdentity) reader {
	return func(what string, v jsontext.Value) error {
		*dst = map[string]PublicIdentity{}
		return eachMember(what, v, func(name []byte, v jsontext.Value) error {
			var p PublicIdentity
			if len(name) == 0 {
				return BadRequest("%s has an empty key id", what)
			}
			err := publicIdentity(&p)(what+" entry", v)
			(*dst)[string(name)] = p
			return err
		})
	}
}

func successionLines(dst *map[string]SuccessionLine) reader {
	return func(what string, v jsontext.Value) error {
		*dst = map[string]SuccessionLine{}
		return eachMember(what, v, func(name []byte, v jsontext.Value) error {
			if len(name) == 0 {
				return BadRequest("%s has an empty key id", what)
			}
			line := SuccessionLine{Succeeds: []Succession{}}
			err := readObject(what+" entry", v, true, may("retiringUntil", integer(&line.RetiringUntil, 1)),
				need("succeeds", func(what string, v jsontext.Value) error {
					return readList(what, v, MaxSuccessionLinks, func(item string, v jsontext.Value) error {
						var s Succession
						err := succession(&s)(item, v)
						line.Succeeds = append(line.Succeeds, s)
						return err
					})
				}))
			(*dst)[string(name)] = line
			return err
		})
	}
}

// ParseResultRequest reads a polled result, strictly; the envelope aliases raw.
func ParseResultRequest(d Dialect, raw []byte) (ResultRequest, error) {
	var r ResultRequest
	err := readObject("result", raw, true, declared(d, &r.ProtocolVersion), need("runnerId", identifier(&r.RunnerID)),
		need("jobId", identifier(&r.Grant.JobID)), need("leaseId", identifier(&r.Grant.LeaseID)),
		need("envelope", envelope(&r.Envelope)), need("disposition", word(&r.Disposition, dispositions()...)))
	return r, err
}

// ParseReleaseRequest reads a polled release, strictly in its dialect; at most 1024 leases.
func ParseReleaseRequest(d Dialect, raw []byte) (ReleaseRequest, error) {
	var r ReleaseRequest
	err := readObject("release", raw, true, declared(d, &r.ProtocolVersion), need("runnerId", identifier(&r.RunnerID)),
		need("leases", grants(d.vocabulary().looseParts, MaxActiveLeases, &r.Leases)),
		need("reason", word(&r.Reason, releaseReasons()...)))
	return r, err
}

// ParsePairStartRequest reads a pairing's start, strictly in its dialect; the device isn't verified here.
func ParsePairStartRequest(d Dialect, raw []byte) (PairStartRequest, error) {
	var r PairStartRequest
	var action string
	err := readObject("pair", raw, true, declared(d, &r.ProtocolVersion), need("action", word(&action, "start")),
		need("device", publicIdentity(&r.Device)), need("capabilities", capabilities(d, &r.Capabilities)),
		need("daemon", func(what string, v jsontext.Value) error {
			return readObject(what, v, !d.vocabulary().looseParts, need("version", nonEmpty(&r.Version)),
				need("label", units(&r.Label, 1, 120)), need("platform", word(&r.Platform, "darwin", "linux", "win32")))
		}))
	return r, err
}

// ParsePairPollRequest reads a pairing's poll, strictly; codes have 20 to 256 characters.
func ParsePairPollRequest(d Dialect, raw []byte) (PairPollRequest, error) {
	var r PairPollRequest
	var action string
	err := readObject("pair", raw, true, declared(d, &r.ProtocolVersion), need("action", word(&action, "poll")),
		need("deviceCode", units(&r.DeviceCode, 20, MaxIDBytes)))
	return r, err
}

// ParsePairRequest reads a pairing request of whichever form: action says start or poll, and is absent in the direct form.
func ParsePairRequest(d Dialect, raw []byte) (r PairRequest, err error) {
	action, named := "", false
	err = eachMember("pair", raw, func(name []byte, v jsontext.Value) error {
		if string(name) == "action" {
			action, _ = text(v)
			named = true
		}
		return nil
	})
	switch {
	case err != nil:
	case !named:
		r.Direct, err = parsed(ParsePairDirectRequest(d, raw))
	case action == "start":
		r.Start, err = parsed(ParsePairStartRequest(d, raw))
	case action == "poll":
		r.Poll, err = parsed(ParsePairPollRequest(d, raw))
	default:
		err = BadRequest("pair.action must be start or poll")
	}
	return r, err
}

func parsed[T any](v T, err error) (*T, error) { return &v, err }

// ParsePairDirectRequest reads a pairing without a code, strictly; the device isn't verified here.
func ParsePairDirectRequest(d Dialect, raw []byte) (PairDirectRequest, error) {
	var r PairDirectRequest
	err := readObject("pair", raw, true, declared(d, &r.ProtocolVersion), need("owner", identifier(&r.Owner)),
		need("device", publicIdentity(&r.Device)))
	return r, err
}
