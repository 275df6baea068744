package wire

import "strconv"

// AppendSealRequest appends the push that asks a site to seal to devices that accepted.
func AppendSealRequest(dst []byte, jobs []SealJob) []byte {
	dst = append(dst, `{"type":"seal-request","jobs":[`...)
	for i, j := range jobs {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendSealJob(dst, j)
	}
	return append(dst, ']', '}')
}

func appendSealJob(dst []byte, j SealJob) []byte {
	dst = append(dst, `{"jobId":`...)
	dst = AppendString(dst, j.JobID)
	dst = append(dst, `,"leaseId":`...)
	dst = AppendString(dst, j.LeaseID)
	dst = append(dst, `,"runnerId":`...)
	dst = AppendString(dst, j.RunnerID)
	dst = append(dst, `,"device":`...)
	dst = appendIdentity(dst, j.Device)
	dst = append(dst, `,"awaitingUntil":`...)
	dst = strconv.AppendInt(dst, j.AwaitingUntil, 10)
	dst = append(dst, `,"leaseExpiresAt":`...)
	return append(strconv.AppendInt(dst, j.LeaseExpiresAt, 10), '}')
}

// AppendStateReply appends the answer to a seal: the state of the job, or of the grant that took the first one.
func AppendStateReply(dst []byte, re, state string) []byte {
	dst = append(appendReply(dst, re), `,"state":`...)
	return append(AppendString(dst, state), '}')
}

// AppendEnqueueReply appends the answer to an enqueue: one entry for each stub, in its order.
func AppendEnqueueReply(dst []byte, re string, jobs []EnqueueState) []byte {
	dst = append(appendReply(dst, re), `,"jobs":[`...)
	for i, j := range jobs {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"jobId":`...)
		dst = AppendString(dst, j.JobID)
		dst = appendTextMember(dst, "state", j.State)
		dst = appendTextMember(dst, "error", j.Error)
		dst = appendTextMember(dst, "message", j.Message)
		dst = appendIntMember(dst, "serverTime", j.ServerTime)
		dst = append(appendIntMember(dst, "retryAfter", int64(j.RetryAfter)), '}')
	}
	return append(dst, ']', '}')
}

// AppendResultsHead appends the start of a results push; its jobs and AppendResultsTail follow.
func AppendResultsHead(dst []byte) []byte { return append(dst, `{"type":"results","jobs":[`...) }

// AppendResultJobHead appends one finished job up to its envelope, which follows with AppendTail; j.Envelope is
// ignored. first is false for every job but the frame's first.
func AppendResultJobHead(dst []byte, first bool, j ResultJob) []byte {
	if !first {
		dst = append(dst, ',')
	}
	dst = append(dst, `{"jobId":`...)
	dst = AppendString(dst, j.JobID)
	dst = append(dst, `,"leaseId":`...)
	dst = AppendString(dst, j.LeaseID)
	dst = append(dst, `,"disposition":`...)
	dst = AppendString(dst, j.Disposition)
	dst = append(dst, `,"runnerId":`...)
	dst = AppendString(dst, j.RunnerID)
	dst = append(dst, `,"runnerOwner":`...)
	dst = AppendString(dst, j.RunnerOwner)
	dst = append(dst, `,"device":`...)
	dst = appendIdentity(dst, j.Device)
	return append(dst, `,"envelope":`...)
}

// AppendResultJobTail closes one finished job behind its envelope; it is AppendTail by the name of its place.
func AppendResultJobTail(dst []byte) []byte { return append(dst, '}') }

// AppendResultsTail closes a results push behind the tail of its last job.
func AppendResultsTail(dst []byte) []byte { return append(dst, ']', '}') }
