package wire

import "github.com/go-json-experiment/json/jsontext"

// The checks here run after a frame's JSON was decoded. What needs a dialect (stubs, capabilities) is read by its own
// parser, and so are envelopes.

func checkGrants(what string, grants []Grant) error {
	if len(grants) > MaxList {
		return BadRequest("%s has more than %d entries", what, MaxList)
	}
	return checkEach(grants)
}

func checkEach(grants []Grant) error {
	for i := range grants {
		if err := grants[i].check(); err != nil {
			return err
		}
	}
	return nil
}

func (g *Grant) check() error {
	if err := checkID("jobId", g.JobID); err != nil {
		return err
	}
	return checkID("leaseId", g.LeaseID)
}

// checkObject asks for an object, so that an absent or null envelope is told from one that doesn't parse.
func checkObject(what string, v jsontext.Value) error {
	if len(v) == 0 || v.Kind() != '{' {
		return BadRequest("%s must be an object", what)
	}
	return nil
}

func checkSlots(slots int) error {
	if slots < 1 || slots > MaxSlots {
		return BadRequest("slots must be 1 to %d", MaxSlots)
	}
	return nil
}

func checkWord(what, s string, words ...string) error {
	for _, w := range words {
		if s == w {
			return nil
		}
	}
	return BadRequest("%s is not one of its words", what)
}

func (f *Ready) check() error {
	if len(f.Capabilities) == 0 || f.Capabilities.Kind() != '[' {
		return BadRequest("capabilities must be a list")
	}
	return checkSlots(f.Slots)
}

func (f *Grants) check() error {
	if f.Grants == nil {
		return BadRequest("grants is missing")
	}
	return checkGrants("grants", f.Grants)
}

func (f *Fetch) check() error { return f.Grant.check() }

func (f *Heartbeat) check() error {
	if f.ActiveLeases == nil {
		return BadRequest("activeLeases is missing")
	}
	if len(f.ActiveLeases) > MaxActiveLeases {
		return BadRequest("activeLeases has more than %d entries", MaxActiveLeases)
	}
	return checkEach(f.ActiveLeases)
}

func (f *Result) check() error {
	if err := f.Grant.check(); err != nil {
		return err
	}
	if err := checkWord("disposition", f.Disposition, dispositions()...); err != nil {
		return err
	}
	return checkObject("envelope", f.Envelope)
}

func (f *Release) check() error {
	if f.Grants == nil {
		return BadRequest("grants is missing")
	}
	if err := checkWord("reason", f.Reason, releaseReasons()...); err != nil {
		return err
	}
	return checkGrants("grants", f.Grants)
}

func (f *Enqueue) check() error {
	if len(f.Stubs) == 0 || len(f.Stubs) > MaxList {
		return BadRequest("stubs must have 1 to %d entries", MaxList)
	}
	return nil
}

func (f *Seal) check() error {
	if err := (&Grant{JobID: f.JobID, LeaseID: f.LeaseID}).check(); err != nil {
		return err
	}
	return checkObject("envelope", f.Envelope)
}

func (f *CancelJobs) check() error {
	if len(f.JobIDs) == 0 || len(f.JobIDs) > MaxList {
		return BadRequest("jobIds must have 1 to %d entries", MaxList)
	}
	for _, id := range f.JobIDs {
		if err := checkID("jobIds", id); err != nil {
			return err
		}
	}
	return nil
}

func (f *Credit) check() error {
	if f.Bytes < 1 || f.Bytes > MaxFrameBytes {
		return BadRequest("bytes must be 1 to %d", MaxFrameBytes)
	}
	return nil
}

func (f *Hello) check() error {
	if err := checkID("caller", f.Caller); err != nil {
		return err
	}
	if f.IssuedAt < 0 || f.IssuedAt > maxSafeInteger || f.Signature == "" || f.Body == "" {
		return BadRequest("hello is incomplete")
	}
	return nil
}

func (f *Payload) check() error { return checkObject("envelope", f.Envelope) }

func (f *FetchReply) check() error { return checkObject("envelope", f.Envelope) }

func dispositions() []string {
	return []string{DispositionOK, DispositionError, DispositionCanceled}
}

func releaseReasons() []string {
	return []string{ReleaseShutdown, ReleasePause, ReleaseRevoked, ReleaseBackendDown, ReleaseRefused}
}
