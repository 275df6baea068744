package wire

import "strconv"

// The appenders here write the relay's frequent frames without reflection. Where a frame carries an envelope they write
// what stands around it, so that the stored bytes are sent as they are: head, envelope, AppendTail.

// AppendTail closes a frame that one of the Head appenders opened, behind its envelope.
func AppendTail(dst []byte) []byte { return append(dst, '}') }

func appendReply(dst []byte, re string) []byte {
	dst = append(dst, `{"type":"reply","re":`...)
	return AppendString(dst, re)
}

func appendGrant(dst []byte, g Grant) []byte {
	dst = append(dst, `{"jobId":`...)
	dst = AppendString(dst, g.JobID)
	dst = append(dst, `,"leaseId":`...)
	return append(AppendString(dst, g.LeaseID), '}')
}

func appendGrantList(dst []byte, grants []Grant) []byte {
	dst = append(dst, '[')
	for i, g := range grants {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendGrant(dst, g)
	}
	return append(dst, ']')
}

func appendIdentity(dst []byte, p PublicIdentity) []byte {
	dst = append(dst, `{"identity":`...)
	dst = AppendString(dst, p.Identity)
	dst = append(dst, `,"encryption":`...)
	dst = AppendString(dst, p.Encryption)
	dst = append(dst, `,"encryptionSig":`...)
	return append(AppendString(dst, p.EncryptionSig), '}')
}

// AppendReplyOK appends the empty answer to request re: for ready, sealing, decline and collected.
func AppendReplyOK(dst []byte, re string) []byte { return append(appendReply(dst, re), '}') }

// ClaimedJob is one job of a claimed frame or of a polled claim's answer: the stub as its site wrote it, the lease that is
// offered and, with a control plane that signs them, its grant.
type ClaimedJob struct {
	Stub  *Stub
	Lease ClaimLease
	Grant *SignedGrant // nil: none; dialect 0 has none
}

// Append appends the job: the stub's own text with a lease and a grant spliced in.
func (j *ClaimedJob) Append(dst []byte) []byte {
	dst = j.Stub.AppendClaimed(dst, j.Lease.ID, j.Lease.RunnerID, j.Lease.ExpiresAt)
	if j.Grant == nil {
		return dst
	}
	dst = append(dst[:len(dst)-1], `,"grant":`...)
	return append(AppendSignedGrant(dst, j.Grant), '}')
}

// AppendClaimed appends the push that offers jobs to a daemon; leaseMs is the leases' length.
func AppendClaimed(dst []byte, jobs []ClaimedJob, leaseMs int64) []byte {
	dst = append(dst, `{"type":"claimed","jobs":[`...)
	for i := range jobs {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = jobs[i].Append(dst)
	}
	dst = append(dst, `],"leaseMs":`...)
	return append(strconv.AppendInt(dst, leaseMs, 10), '}')
}

// AppendAcceptReply appends the answer to an accept; lost are the grants that were gone already.
func AppendAcceptReply(dst []byte, re string, lost []Grant) []byte {
	dst = append(appendReply(dst, re), `,"lost":`...)
	return append(appendGrantList(dst, lost), '}')
}

// AppendReleaseReply appends the answer to a release; released are the grants that were given back.
func AppendReleaseReply(dst []byte, re string, released []Grant) []byte {
	dst = append(appendReply(dst, re), `,"released":`...)
	return append(appendGrantList(dst, released), '}')
}

// AppendGrantsPush appends a cancel or lost push to a daemon; reason is one of the Lost words, empty on cancel.
func AppendGrantsPush(dst []byte, t FrameType, grants []Grant, reason string) []byte {
	dst = append(dst, `{"type":`...)
	dst = append(AppendString(dst, string(t)), `,"grants":`...)
	dst = appendGrantList(dst, grants)
	return append(appendTextMember(dst, "reason", reason), '}')
}

// AppendPayloadHead appends a payload push up to its envelope; the envelope's bytes and AppendTail follow.
func AppendPayloadHead(dst []byte, jobID, leaseID string) []byte {
	dst = append(dst, `{"type":"payload","jobId":`...)
	dst = AppendString(dst, jobID)
	dst = append(dst, `,"leaseId":`...)
	dst = AppendString(dst, leaseID)
	return append(dst, `,"envelope":`...)
}

// AppendFetchReplyHead appends a fetch's answer up to its envelope; the envelope's bytes and AppendTail follow.
func AppendFetchReplyHead(dst []byte, re string) []byte {
	return append(appendReply(dst, re), `,"envelope":`...)
}

// AppendResultReply appends the answer to a result; duplicate is written only when it is true.
func AppendResultReply(dst []byte, re string, accepted, duplicate bool, state string) []byte {
	dst = append(appendReply(dst, re), `,"accepted":`...)
	dst = strconv.AppendBool(dst, accepted)
	if duplicate {
		dst = append(dst, `,"duplicate":true`...)
	}
	dst = append(dst, `,"state":`...)
	return append(AppendString(dst, state), '}')
}

// AppendHeartbeatReply appends the answer to a heartbeat; serverTime is epoch ms, nil lists are [].
func AppendHeartbeatReply(dst []byte, re string, cancel, lost []Grant, serverTime int64, awaiting []string) []byte {
	dst = append(appendReply(dst, re), `,"cancel":`...)
	dst = append(appendGrantList(dst, cancel), `,"lost":`...)
	dst = append(appendGrantList(dst, lost), `,"serverTime":`...)
	dst = append(strconv.AppendInt(dst, serverTime, 10), `,"awaitingConsent":[`...)
	for i, site := range awaiting {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = AppendString(dst, site)
	}
	return append(dst, ']', '}')
}

// AppendCredit appends a credit frame that lets the peer send n more bytes of stream.
func AppendCredit(dst []byte, stream uint32, n int) []byte {
	dst = append(dst, `{"type":"credit","stream":`...)
	dst = strconv.AppendUint(dst, uint64(stream), 10)
	dst = append(dst, `,"bytes":`...)
	return append(strconv.AppendInt(dst, int64(n), 10), '}')
}
