package wire

import "github.com/go-json-experiment/json/jsontext"

// The bodies of the site's polling plane (design, section 8): closed shapes like those of the daemon's.

// EnqueueRequest publishes one job; its stub's text is a private copy.
type EnqueueRequest struct {
	ProtocolVersion string
	SiteID          string
	Stub            Stub
}

// EnqueueResponse answers an enqueue with the state that the job has now.
type EnqueueResponse struct {
	JobID string `json:"jobId"`
	State string `json:"state"`
}

// PayloadRequest seals a job to the device that its envelope names; it doesn't name the grant.
type PayloadRequest struct {
	ProtocolVersion string
	SiteID          string
	JobID           string
	Envelope        Envelope // aliases the body
}

// StateResponse answers a payload with the state that the job has now.
type StateResponse struct {
	State string `json:"state"`
}

// CancelRequest asks to stop one job.
type CancelRequest struct {
	ProtocolVersion string
	SiteID          string
	JobID           string
}

// CancelResponse answers a cancel; false when the relay knows no such job of the site.
type CancelResponse struct {
	Cancelled bool `json:"cancelled"`
}

// PendingResponse lists the grants that wait for the site's seal, never null.
type PendingResponse struct {
	Jobs []SealJob `json:"jobs"`
}

// ResultsResponse lists finished jobs with their sealed results, never null.
type ResultsResponse struct {
	Jobs []ResultJob `json:"jobs"`
}

// ParseEnqueueRequest reads a polled enqueue, strictly in its dialect, its stub included; else a bad-request Error.
func ParseEnqueueRequest(d Dialect, raw []byte) (EnqueueRequest, error) {
	var r EnqueueRequest
	err := readObject("enqueue", raw, true, declared(d, &r.ProtocolVersion), need("siteId", identifier(&r.SiteID)),
		need("stub", func(_ string, v jsontext.Value) (err error) {
			r.Stub, err = ParseStub(d, v)
			return err
		}))
	return r, err
}

// ParsePayloadRequest reads a polled seal, strictly; the envelope aliases raw.
func ParsePayloadRequest(d Dialect, raw []byte) (PayloadRequest, error) {
	var r PayloadRequest
	err := readObject("payload", raw, true, declared(d, &r.ProtocolVersion), need("siteId", identifier(&r.SiteID)),
		need("jobId", identifier(&r.JobID)), need("envelope", envelope(&r.Envelope)))
	return r, err
}

// ParseCancelRequest reads a polled cancel, strictly.
func ParseCancelRequest(d Dialect, raw []byte) (CancelRequest, error) {
	var r CancelRequest
	err := readObject("cancel", raw, true, declared(d, &r.ProtocolVersion), need("siteId", identifier(&r.SiteID)),
		need("jobId", identifier(&r.JobID)))
	return r, err
}

// ParsePendingResponse reads what awaits a seal on a site, strictly; devices aren't verified here.
func ParsePendingResponse(raw []byte) (PendingResponse, error) {
	r := PendingResponse{Jobs: []SealJob{}}
	return r, readObject("pending", raw, true, need("jobs", func(what string, v jsontext.Value) error {
		return readList(what, v, maxOpenList, func(item string, v jsontext.Value) error {
			var j SealJob
			err := readObject(item, v, true, need("jobId", identifier(&j.JobID)), need("leaseId", identifier(&j.LeaseID)),
				need("runnerId", identifier(&j.RunnerID)), need("device", publicIdentity(&j.Device)),
				need("awaitingUntil", integer(&j.AwaitingUntil, 1)), need("leaseExpiresAt", integer(&j.LeaseExpiresAt, 1)))
			r.Jobs = append(r.Jobs, j)
			return err
		})
	}))
}

// ParseResultsResponse reads finished jobs on a site, strictly; envelopes alias raw, devices aren't verified here.
func ParseResultsResponse(raw []byte) (ResultsResponse, error) {
	r := ResultsResponse{Jobs: []ResultJob{}}
	return r, readObject("results", raw, true, need("jobs", func(what string, v jsontext.Value) error {
		return readList(what, v, maxOpenList, func(item string, v jsontext.Value) error {
			var j ResultJob
			var e Envelope
			err := readObject(item, v, true, need("jobId", identifier(&j.JobID)), need("leaseId", identifier(&j.LeaseID)),
				need("envelope", envelope(&e)), need("disposition", word(&j.Disposition, dispositions()...)),
				need("runnerId", identifier(&j.RunnerID)), need("runnerOwner", identifier(&j.RunnerOwner)),
				need("device", publicIdentity(&j.Device)))
			j.Envelope = e.Raw
			r.Jobs = append(r.Jobs, j)
			return err
		})
	}))
}
