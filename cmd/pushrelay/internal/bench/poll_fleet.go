package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"pushrelay/wire"
)

// polled is sites and daemons that poll, as public clients do: a daemon sends a heartbeat, claims, and has all its jobs
// fetched and reported before it claims again; a site asks what is pending, seals, collects, and publishes a job for each
// that came back.
type polled struct {
	http      *http.Client
	url       string
	w         *world
	envelopes *sealed
	slots     int
	daemons   map[string]int // by runner id

	running  sync.WaitGroup
	requests atomic.Int64
	lives    atomic.Int64
	ledger   *ledger
	failed   chan struct{} // the ledger's
	next     []atomic.Int64

	mu   sync.Mutex
	took []time.Duration // of requests that are never held
}

// sealsAtOnce is how many requests a site has under way for what one poll told it.
const sealsAtOnce = 8

// polledJobs provides for the jobs of one round.
const polledJobs = 1 << 20

func newPolled(addr string, w *world, envelopes *sealed, slots, depth int) *polled {
	l := newLedger(len(w.sites), (polledJobs+depth)/len(w.sites)+1)
	p := &polled{
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1024, DisableCompression: true}},
		url:  "http://" + addr, w: w, envelopes: envelopes, slots: slots, daemons: map[string]int{}, ledger: l, failed: l.failed,
		next: make([]atomic.Int64, len(w.sites)),
	}
	for i, d := range w.daemons {
		p.daemons[d.id] = i
	}
	return p
}

// open publishes the jobs that are open at once, in turns over sites and owners.
func (p *polled) open(ctx context.Context, depth int) error {
	return parallel(depth, 32, func(i int) error { return p.publish(ctx, i%len(p.w.sites)) })
}

func (p *polled) start(ctx context.Context) {
	for i := range p.w.sites {
		p.running.Go(func() { p.loop(ctx, func() error { return p.pump(ctx, i) }) })
	}
	for i := range p.w.daemons {
		p.running.Go(func() { p.loop(ctx, func() error { return p.serve(ctx, i) }) })
	}
}

func (p *polled) loop(ctx context.Context, turn func() error) {
	for ctx.Err() == nil {
		if err := turn(); err != nil {
			if ctx.Err() == nil {
				p.ledger.fail(err)
			}
			return
		}
	}
}

func (p *polled) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.took = p.took[:0]
}

func (p *polled) latencies() []time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]time.Duration{}, p.took...)
}

// verdict is the first error, or a job that was collected without having lived.
func (p *polled) verdict() error {
	select {
	case <-p.failed:
		return p.ledger.err
	default:
	}
	const whole = 1<<stepEnqueued | 1<<stepClaimed | 1<<stepAsked | 1<<stepSealed | 1<<stepPayload | 1<<stepReported | 1<<stepResult
	for site := range p.ledger.jobs {
		for n := range p.next[site].Load() {
			if got := p.ledger.jobs[site][n].Load(); got&(1<<stepResult) != 0 && got|1<<stepReported|1<<stepSealed|1<<stepEnqueued != whole {
				return fmt.Errorf("job %s came back with steps %010b only", jobID(site, int(n)), got)
			}
		}
	}
	return nil
}

// publish enqueues the next job of a site.
func (p *polled) publish(ctx context.Context, site int) error {
	n := int(p.next[site].Add(1) - 1)
	id := jobID(site, n)
	s := p.w.sites[site]
	body := wire.AppendEnqueueRequest(nil, wire.Dialect0, s.id, p.w.stub(site, id, ownerID(n%p.w.owners)))
	if _, err := p.post(ctx, s, true, "enqueue", body, true); err != nil {
		return err
	}
	p.ledger.took(id, stepEnqueued)
	return nil
}

// pump is one cycle of a site.
func (p *polled) pump(ctx context.Context, site int) error {
	s := p.w.sites[site]
	text, err := p.get(ctx, s, "pending", false)
	if err != nil {
		return err
	}
	pending, err := wire.ParsePendingResponse(text)
	if err != nil {
		return err
	}
	err = parallel(len(pending.Jobs), sealsAtOnce, func(i int) error {
		j := &pending.Jobs[i]
		p.ledger.told(j.JobID, stepAsked)
		env := p.envelopes.payloads[site][p.daemons[j.RunnerID]]
		if _, err := p.post(ctx, s, true, "payload", wire.AppendPayloadRequest(nil, wire.Dialect0, s.id, j.JobID, env.Raw), true); err != nil {
			return err
		}
		p.ledger.told(j.JobID, stepSealed)
		return nil
	})
	if err != nil {
		return err
	}
	if text, err = p.get(ctx, s, "results", true); err != nil {
		return err
	}
	results, err := wire.ParseResultsResponse(text)
	if err != nil {
		return err
	}
	return parallel(len(results.Jobs), sealsAtOnce, func(i int) error {
		j := &results.Jobs[i]
		if !bytes.Equal(j.Envelope, p.envelopes.results[site][p.daemons[j.RunnerID]].Raw) {
			return fmt.Errorf("the result of %s isn't what its daemon sent", j.JobID)
		}
		if !p.ledger.told(j.JobID, stepResult) {
			return nil // it comes again, as nobody can say that it was seen
		}
		p.lives.Add(1)
		return p.publish(ctx, site)
	})
}

// serve is one cycle of a daemon.
func (p *polled) serve(ctx context.Context, daemon int) error {
	d := p.w.daemons[daemon]
	if _, err := p.post(ctx, d, false, "heartbeat", heartbeatBody(d), true); err != nil {
		return err
	}
	text, err := p.post(ctx, d, false, "claim", claimBody(d, p.slots), false)
	if err != nil {
		return err
	}
	claimed, err := wire.ParseClaimResponse(wire.Dialect0, text)
	if err != nil {
		return err
	}
	return parallel(len(claimed.Jobs), p.slots, func(i int) error {
		j, err := wire.ParseClaimed(wire.Dialect0, claimed.Jobs[i])
		if err != nil {
			return err
		}
		return p.run(ctx, daemon, wire.Grant{JobID: j.Stub.ID, LeaseID: j.Lease.ID})
	})
}

func (p *polled) run(ctx context.Context, daemon int, g wire.Grant) error {
	d := p.w.daemons[daemon]
	p.ledger.took(g.JobID, stepClaimed)
	site, _, err := p.ledger.parseJobID(g.JobID)
	if err != nil {
		return err
	}
	head := fmt.Sprintf(`{"protocolVersion":"0","runnerId":%q,"jobId":%q,"leaseId":%q`, d.id, g.JobID, g.LeaseID)
	text, err := p.post(ctx, d, false, "fetch", []byte(head+"}"), false)
	if err != nil {
		return err
	}
	env, err := wire.ParseFetchResponse(text)
	if err != nil {
		return err
	}
	if !bytes.Equal(env.Raw, p.envelopes.payloads[site][daemon].Raw) {
		return fmt.Errorf("the payload of %s isn't what its site sealed", g.JobID)
	}
	p.ledger.took(g.JobID, stepPayload)
	body := append([]byte(head+`,"disposition":"ok","envelope":`), p.envelopes.results[site][daemon].Raw...)
	if _, err := p.post(ctx, d, false, "result", append(body, '}'), true); err != nil {
		return err
	}
	p.ledger.took(g.JobID, stepReported)
	return nil
}

func claimBody(d *party, slots int) []byte {
	return fmt.Appendf(nil, `{"protocolVersion":"0","runnerId":%q,"capabilities":%s,"max":%d}`, d.id, capabilities(), slots)
}

func heartbeatBody(d *party) []byte {
	return fmt.Appendf(nil, `{"protocolVersion":"0","runnerId":%q,"daemonVersion":"1","capabilities":%s,"activeLeases":[],"paused":false}`,
		d.id, capabilities())
}

func (p *polled) post(ctx context.Context, who *party, site bool, endpoint string, body []byte, timed bool) ([]byte, error) {
	path := "/byollm/" + endpoint
	if site {
		path = "/relay/site/" + endpoint
	}
	return p.do(ctx, who, site, http.MethodPost, path, endpoint, body, timed)
}

func (p *polled) get(ctx context.Context, who *party, endpoint string, timed bool) ([]byte, error) {
	return p.do(ctx, who, true, http.MethodGet, "/relay/site/"+endpoint+"?protocolVersion=0&siteId="+who.id, endpoint, nil, timed)
}

// do sends one signed request and reads its answer.
func (p *polled) do(
	ctx context.Context, who *party, site bool, method, path, endpoint string, body []byte, timed bool,
) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, p.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	sign(r, who, site, endpoint, body)
	begin := time.Now()
	resp, err := p.http.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New(endpoint + " was refused: " + string(text))
	}
	p.requests.Add(1)
	if timed {
		took := time.Since(begin)
		p.mu.Lock()
		p.took = append(p.took, took)
		p.mu.Unlock()
	}
	return text, nil
}

func sign(r *http.Request, who *party, site bool, endpoint string, body []byte) {
	header := "X-Byollm-Runner"
	if site {
		header, endpoint = "X-Byollm-Site", wire.SiteEndpoint(endpoint)
	}
	at := time.Now().UnixMilli()
	r.Header.Set(header, who.id)
	r.Header.Set("X-Byollm-Issued-At", strconv.FormatInt(at, 10))
	r.Header.Set("X-Byollm-Signature", who.keys.SignRequest(endpoint, who.id, at, body))
}
