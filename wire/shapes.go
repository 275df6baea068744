package wire

// Shape returns a check of a closed shape by the name that the public packages give it; nil for an unknown name.
func Shape(name string) func(d Dialect, raw []byte) error {
	switch name {
	case "JobStub":
		return check(ParseStub)
	case "SealedEnvelope":
		return func(_ Dialect, raw []byte) error { _, err := ParseEnvelope(raw); return err }
	case "PublicIdentity":
		return func(_ Dialect, raw []byte) error { _, err := ParsePublicIdentity(raw); return err }
	case "PairStartRequest":
		return check(ParsePairStartRequest)
	case "PairPollRequest":
		return check(ParsePairPollRequest)
	case "ClaimRequest":
		return check(ParseClaimRequest)
	case "ClaimResponse":
		return check(ParseClaimResponse)
	case "FetchRequest":
		return check(ParseFetchRequest)
	case "HeartbeatRequest":
		return check(ParseHeartbeatRequest)
	case "HeartbeatResponse":
		return check(ParseHeartbeatResponse)
	case "ReleaseRequest":
		return check(ParseReleaseRequest)
	case "ResultRequest":
		return check(ParseResultRequest)
	case "WireError":
		return check(ParseWireError)
	}
	return nil
}

func check[T any](parse func(Dialect, []byte) (T, error)) func(Dialect, []byte) error {
	return func(d Dialect, raw []byte) error {
		_, err := parse(d, raw)
		return err
	}
}
