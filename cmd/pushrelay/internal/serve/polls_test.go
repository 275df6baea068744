package serve

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"pushrelay/wire/seal"
)

// ask makes a site's signed request.
func ask(t *testing.T, r *Relay, k *seal.Keys, endpoint string) (int, string) {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.URL()+"/relay/site/"+endpoint+"?siteId=site-one&protocolVersion=2", nil)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	at := time.Now().UnixMilli()
	q.Header.Set("x-byollm-site", "site-one")
	q.Header.Set("x-byollm-issued-at", strconv.FormatInt(at, 10))
	q.Header.Set("x-byollm-signature", k.SignRequest("site/"+endpoint, "site-one", at, nil))
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(q)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp.StatusCode, string(text)
}

// heldPending leaves a pending at the relay and answers what came of it.
func heldPending(t *testing.T, r *Relay, k *seal.Keys) <-chan string {
	t.Helper()
	if code, text := ask(t, r, k, "results"); code != http.StatusOK || text != `{"jobs":[]}` {
		t.Fatalf("results: %d %s", code, text)
	}
	got := make(chan string, 1)
	go func() {
		code, text := ask(t, r, k, "pending")
		got <- strconv.Itoa(code) + " " + text
	}()
	for r.hub.Snapshot().Sites[0].Polls == 0 {
		status(t, r.AdminURL()+"/healthz")
	}
	return got
}

func TestADrainLetsHeldRequestsGo(t *testing.T) {
	r, k := started(t, func(s *Settings) { s.HoldPending = mostHold })
	got := heldPending(t, r, k)
	began := time.Now()
	if err := r.Drain(); err != nil {
		t.Error(err)
	}
	if answer := <-got; answer != `200 {"jobs":[]}` {
		t.Errorf("the held request was answered with %s", answer)
	}
	if took := time.Since(began); took > mostHold/2 {
		t.Errorf("it took %v", took)
	}
}

func TestCloseLetsHeldRequestsGo(t *testing.T) {
	r, k := started(t, func(s *Settings) { s.HoldPending = mostHold })
	got := heldPending(t, r, k)
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if answer := <-got; answer != `200 {"jobs":[]}` {
		t.Errorf("the held request was answered with %s", answer)
	}
}

// The series of polls are there from the start, and no request adds one.
func TestPollsAreCounted(t *testing.T) {
	r, k := started(t, nil)
	defer r.Close()
	series := func() (n int, text string) {
		_, text = whole(t, r.AdminURL()+"/metrics")
		return strings.Count(text, "pushrelay_poll_"), text
	}
	before, _ := series()
	ask(t, r, k, "results")
	status(t, r.URL()+"/whatever")
	for _, line := range []string{
		`pushrelay_poll_requests_total{endpoint="results",outcome="ok"} 1`,
		`pushrelay_poll_requests_total{endpoint="unknown",outcome="not-found"} 1`,
		`pushrelay_poll_held_requests{endpoint="claim"} 0`,
	} {
		end := time.Now().Add(20 * time.Second) // it is counted behind the answer
		for _, text := series(); !strings.Contains(text, line); _, text = series() {
			if time.Now().After(end) {
				t.Fatalf("no %s", line)
			}
		}
	}
	if after, _ := series(); before == 0 || before != after {
		t.Errorf("%d series, then %d", before, after)
	}
}

func whole(t *testing.T, url string) (int, string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}
