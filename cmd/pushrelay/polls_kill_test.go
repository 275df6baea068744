package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"pushrelay/cmd/pushrelay/internal/setup"
	"pushrelay/wire"
)

// pollers are a site and a daemon of the example that poll as the public ones do, whatever becomes of their relay. What is
// sealed is nothing to that.
type pollers struct {
	url  string
	keys setup.Made

	mu    sync.Mutex
	ended map[string]string // the lease of each job's result
	more  chan struct{}     // closed and replaced with each job that ended
}

// ask makes a signed request; 0: nobody answered.
func (p *pollers) ask(ctx context.Context, party, method, endpoint, body string) (int, []byte) {
	path, signed, header := "/byollm/"+endpoint, endpoint, "X-Byollm-Runner"
	if party == "site-one" {
		path, signed, header = "/relay/site/"+endpoint, "site/"+endpoint, "X-Byollm-Site"
	}
	if method == http.MethodGet {
		path += "?siteId=" + party + "&protocolVersion=2"
	}
	req, err := http.NewRequestWithContext(ctx, method, p.url+path, strings.NewReader(body))
	if err != nil {
		return 0, nil
	}
	at := time.Now().UnixMilli()
	req.Header.Set(header, party)
	req.Header.Set("X-Byollm-Issued-At", strconv.FormatInt(at, 10))
	req.Header.Set("X-Byollm-Signature", p.keys[party].SignRequest(signed, party, at, []byte(body)))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, nil
	}
	return resp.StatusCode, raw
}

// rest is what a client leaves between two tries.
func rest(ctx context.Context) {
	select {
	case <-time.After(20 * time.Millisecond):
	case <-ctx.Done():
	}
}

func (p *pollers) envelope(from, to string, direction wire.Direction) []byte {
	return wire.AppendEnvelope(nil, wire.Envelope{
		RecipientKeyID: p.keys[to].KeyID(), SenderKeyID: p.keys[from].KeyID(), Direction: direction, DeadlineAt: time.Now().Add(time.Hour).UnixMilli(),
	}, strings.Repeat("A", 100))
}

func (p *pollers) publish(ctx context.Context, id string) {
	stub := wire.AppendStub(nil, wire.Stub{
		ID: id, Kind: "llm.generate", Owner: "owner-a", Site: p.keys["site-one"].KeyID(), Audience: "team", SizeClass: "small",
		DeadlineAt: time.Now().Add(time.Hour).UnixMilli(),
	})
	for ctx.Err() == nil {
		code, _ := p.ask(ctx, "site-one", http.MethodPost, "enqueue", string(wire.AppendEnqueueRequest(nil, wire.Dialect2, "site-one", stub)))
		if code == http.StatusOK {
			return
		}
		rest(ctx)
	}
}

// pump is the site's loop.
func (p *pollers) pump(ctx context.Context, t *testing.T) {
	for ctx.Err() == nil {
		code, raw := p.ask(ctx, "site-one", http.MethodGet, "pending", "")
		pending, err := wire.ParsePendingResponse(raw)
		if code != http.StatusOK || err != nil {
			rest(ctx)
			continue
		}
		for _, j := range pending.Jobs {
			p.ask(ctx, "site-one", http.MethodPost, "payload",
				string(wire.AppendPayloadRequest(nil, wire.Dialect2, "site-one", j.JobID, p.envelope("site-one", j.RunnerID, wire.DirectionPayload))))
		}
		_, raw = p.ask(ctx, "site-one", http.MethodGet, "results", "")
		results, err := wire.ParseResultsResponse(raw)
		if err != nil {
			continue
		}
		for _, j := range results.Jobs {
			p.mu.Lock()
			if was := p.ended[j.JobID]; was != "" && was != j.LeaseID {
				t.Errorf("%s has two results", j.JobID)
			} else if was == "" {
				p.ended[j.JobID] = j.LeaseID
				close(p.more)
				p.more = make(chan struct{})
			}
			p.mu.Unlock()
		}
	}
}

// serve is the daemon's loop: it posts a result once, and forgets a job whose fetch fails.
func (p *pollers) serve(ctx context.Context) {
	const id = "runner-a1"
	const caps = `"capabilities":[{"kind":"llm.generate","backendId":"b","backendClass":"process","service":"s","model":"m","offerScope":"team"}]`
	of := `{"protocolVersion":"2","runnerId":"` + id + `",`
	for ctx.Err() == nil {
		p.ask(ctx, id, http.MethodPost, "heartbeat", of+caps+`,"daemonVersion":"1","withheld":[],"activeLeases":[]}`)
		_, raw := p.ask(ctx, id, http.MethodPost, "claim", of+caps+`,"max":2}`)
		claimed, err := wire.ParseClaimResponse(wire.Dialect2, raw)
		if err != nil || len(claimed.Jobs) == 0 {
			rest(ctx)
			continue
		}
		for _, raw := range claimed.Jobs {
			j, err := wire.ParseClaimed(wire.Dialect2, raw)
			if err != nil {
				continue
			}
			grant := fmt.Sprintf(`"jobId":%q,"leaseId":%q`, j.Stub.ID, j.Lease.ID)
			code, answer := p.ask(ctx, id, http.MethodPost, "fetch", of+grant+"}")
			for code == http.StatusConflict && bytes.Contains(answer, []byte(`"not-ready"`)) {
				code, answer = p.ask(ctx, id, http.MethodPost, "fetch", of+grant+"}")
			}
			if code == http.StatusOK {
				p.ask(ctx, id, http.MethodPost, "result", fmt.Sprintf(`%s%s,"envelope":%s,"disposition":"ok"}`, of, grant, p.envelope(id, "site-one", wire.DirectionResult)))
			}
		}
	}
}

// await waits until so many jobs have ended.
func (p *pollers) await(t *testing.T, n int) {
	t.Helper()
	timeout := time.After(patience)
	for {
		p.mu.Lock()
		got, more := len(p.ended), p.more
		p.mu.Unlock()
		if got >= n {
			return
		}
		select {
		case <-more:
		case <-timeout:
			t.Fatalf("%d of %d jobs ended", got, n)
		}
	}
}

// Clients that poll go on with the relay that comes back: each job has its one result.
func TestPollsOutliveKilledRelays(t *testing.T) {
	t.Parallel()
	const jobs = 30
	dir := t.TempDir()
	made, err := setup.Make(dir)
	if err != nil {
		t.Fatal(err)
	}
	listen := "127.0.0.1:0"
	serve := func() *process {
		r := start(t, "", "serve", "--projection", setup.ProjectionFile(dir), "--listen", listen, "--admin-listen", "off", "--log-format", "json",
			"--data", filepath.Join(dir, "data"), "--lease", "2s", "--payload-window", "1s")
		var l struct{ URL string }
		if err := json.Unmarshal([]byte(r.await(r.err, `"event":"listening"`)), &l); err != nil {
			t.Fatal(err)
		}
		listen = strings.TrimPrefix(l.URL, "http://")
		return r
	}
	r := serve()
	p := &pollers{url: "http://" + listen, keys: made, ended: map[string]string{}, more: make(chan struct{})}
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() { p.pump(ctx, t) })
	all.Go(func() { p.serve(ctx) })
	all.Go(func() {
		for i := range jobs {
			p.publish(ctx, "job-"+strconv.Itoa(i))
			rest(ctx)
		}
	})
	defer all.Wait()
	defer stop()
	for _, n := range []int{jobs / 3, 2 * jobs / 3} {
		p.await(t, n)
		if err := r.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		r.exit()
		r = serve()
	}
	p.await(t, jobs)
}
