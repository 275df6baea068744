//go:build e2e

package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"pushrelay/wire"
)

// poller is a daemon of the example that polls, one request at a time.
type poller struct {
	r  *relay
	id string
}

func (r *relay) poller(id string) *poller { return &poller{r, id} }

func (p *poller) post(endpoint, members string) []byte {
	p.r.t.Helper()
	body := fmt.Appendf(nil, `{"protocolVersion":"2","runnerId":%q,%s}`, p.id, members)
	req, err := http.NewRequestWithContext(p.r.t.Context(), http.MethodPost, p.r.url+"/byollm/"+endpoint, bytes.NewReader(body))
	if err != nil {
		p.r.t.Fatal(err)
	}
	at := time.Now().UnixMilli()
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Byollm-Runner", p.id)
	req.Header.Set("X-Byollm-Issued-At", strconv.FormatInt(at, 10))
	req.Header.Set("X-Byollm-Signature", p.r.keys[p.id].SignRequest(endpoint, p.id, at, body))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.r.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		p.r.t.Fatalf("%s: %d, %v: %s", endpoint, resp.StatusCode, err, raw)
	}
	return raw
}

// claim answers the one job that there is.
func (p *poller) claim() wire.Grant {
	p.r.t.Helper()
	raw := p.post("claim", `"capabilities":[{"kind":"llm.generate","backendId":"b","backendClass":"process","service":"s","model":"m","offerScope":"private"}],"max":1`)
	got, err := wire.ParseClaimResponse(wire.Dialect2, raw)
	if err != nil || len(got.Jobs) != 1 {
		p.r.t.Fatalf("%v: %s", err, raw)
	}
	job, err := wire.ParseClaimed(wire.Dialect2, got.Jobs[0])
	if err != nil {
		p.r.t.Fatal(err)
	}
	return wire.Grant{JobID: job.Stub.ID, LeaseID: job.Lease.ID}
}

func (p *poller) fetch(g wire.Grant) {
	p.r.t.Helper()
	p.post("fetch", fmt.Sprintf(`"jobId":%q,"leaseId":%q`, g.JobID, g.LeaseID))
}

func (p *poller) release(g wire.Grant) {
	p.r.t.Helper()
	p.post("release", fmt.Sprintf(`"leases":[{"jobId":%q,"leaseId":%q}],"reason":"shutdown"`, g.JobID, g.LeaseID))
}
