package wire

// appendRequest opens a client's request frame.
func appendRequest(dst []byte, t FrameType, id string) []byte {
	dst = append(dst, `{"type":`...)
	dst = AppendString(dst, string(t))
	dst = append(dst, `,"id":`...)
	return AppendString(dst, id)
}

// AppendGrants appends a request that is a list of grants: accept, sealing, decline or collected.
func AppendGrants(dst []byte, t FrameType, id string, grants []Grant) []byte {
	dst = append(appendRequest(dst, t, id), `,"grants":`...)
	return append(appendGrantList(dst, grants), '}')
}

// AppendRelease appends a daemon's release; reason is one of the Release words.
func AppendRelease(dst []byte, id string, grants []Grant, reason string) []byte {
	dst = append(appendRequest(dst, TypeRelease, id), `,"grants":`...)
	dst = append(appendGrantList(dst, grants), `,"reason":`...)
	return append(AppendString(dst, reason), '}')
}

// AppendFetch appends a daemon's request for the payload of one grant.
func AppendFetch(dst []byte, id string, g Grant) []byte {
	dst = append(appendRequest(dst, TypeFetch, id), `,"grant":`...)
	return append(appendGrant(dst, g), '}')
}

// AppendResultHead appends a daemon's result up to its envelope; the envelope's bytes and AppendTail follow.
func AppendResultHead(dst []byte, id string, g Grant, disposition string) []byte {
	dst = append(appendRequest(dst, TypeResult, id), `,"grant":`...)
	dst = append(appendGrant(dst, g), `,"disposition":`...)
	dst = AppendString(dst, disposition)
	return append(dst, `,"envelope":`...)
}

// AppendSealHead appends a site's seal up to its envelope; the envelope's bytes and AppendTail follow.
func AppendSealHead(dst []byte, id, jobID, leaseID string) []byte {
	dst = append(appendRequest(dst, TypeSeal, id), `,"jobId":`...)
	dst = append(AppendString(dst, jobID), `,"leaseId":`...)
	dst = AppendString(dst, leaseID)
	return append(dst, `,"envelope":`...)
}

// AppendEnqueue appends a site's enqueue of up to 256 stubs, each the text of AppendStub.
func AppendEnqueue[S ~[]byte](dst []byte, id string, stubs []S) []byte {
	dst = append(appendRequest(dst, TypeEnqueue, id), `,"stubs":[`...)
	for i, s := range stubs {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, s...)
	}
	return append(dst, ']', '}')
}

// AppendCancelJobs appends a site's request to cancel up to 256 jobs.
func AppendCancelJobs(dst []byte, id string, jobIDs []string) []byte {
	dst = append(appendRequest(dst, TypeCancel, id), `,"jobIds":[`...)
	for i, job := range jobIDs {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = AppendString(dst, job)
	}
	return append(dst, ']', '}')
}
