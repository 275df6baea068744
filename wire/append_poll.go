package wire

import "strconv"

// The appenders here write the polling planes' frequent answers; where one carries an envelope they write what stands around
// it, as those of frames do.

// AppendClaimResponse appends the answer to a polled claim; leaseMs is the leases' length.
func AppendClaimResponse(dst []byte, jobs []ClaimedJob, leaseMs int64) []byte {
	dst = append(dst, `{"jobs":[`...)
	for i := range jobs {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = jobs[i].Append(dst)
	}
	dst = append(dst, `],"leaseMs":`...)
	return append(strconv.AppendInt(dst, leaseMs, 10), '}')
}

// AppendFetchResponseHead appends the answer to a polled fetch up to its envelope; the envelope's bytes and AppendTail follow.
func AppendFetchResponseHead(dst []byte) []byte { return append(dst, `{"envelope":`...) }

// AppendResultResponse appends the answer to a polled result; duplicate is written only when it is true.
func AppendResultResponse(dst []byte, accepted, duplicate bool, state string) []byte {
	dst = append(dst, `{"accepted":`...)
	dst = strconv.AppendBool(dst, accepted)
	if duplicate {
		dst = append(dst, `,"duplicate":true`...)
	}
	dst = append(dst, `,"state":`...)
	return append(AppendString(dst, state), '}')
}

// AppendPendingResponse appends the answer to a site's pending.
func AppendPendingResponse(dst []byte, jobs []SealJob) []byte {
	dst = append(dst, `{"jobs":[`...)
	for i, j := range jobs {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendSealJob(dst, j)
	}
	return append(dst, ']', '}')
}

// AppendResultsResponseHead appends the start of the answer to a site's results; the jobs of AppendResultJobHead and
// AppendResultsTail follow.
func AppendResultsResponseHead(dst []byte) []byte { return append(dst, `{"jobs":[`...) }

// AppendEnqueueRequest appends a site's polled enqueue around the text of AppendStub.
func AppendEnqueueRequest(dst []byte, d Dialect, siteID string, stub []byte) []byte {
	dst = append(appendSiteRequest(dst, d, siteID), `,"stub":`...)
	return append(append(dst, stub...), '}')
}

// AppendPayloadRequest appends a site's polled seal around the text of its envelope.
func AppendPayloadRequest(dst []byte, d Dialect, siteID, jobID string, envelope []byte) []byte {
	dst = appendTextMember(appendSiteRequest(dst, d, siteID), "jobId", jobID)
	dst = append(dst, `,"envelope":`...)
	return append(append(dst, envelope...), '}')
}

// AppendCancelRequest appends a site's polled cancel.
func AppendCancelRequest(dst []byte, d Dialect, siteID, jobID string) []byte {
	return append(appendTextMember(appendSiteRequest(dst, d, siteID), "jobId", jobID), '}')
}

func appendSiteRequest(dst []byte, d Dialect, siteID string) []byte {
	dst = append(dst, `{"protocolVersion":`...)
	return appendTextMember(AppendString(dst, string(d)), "siteId", siteID)
}
