//go:build interop

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"pushrelay/session/site"
	"pushrelay/wire/seal"
)

const (
	latencyJobs = 20
	// mostBeside is the most that a held relay may add to the model's time, by the median.
	mostBeside = 60 * time.Millisecond
	// mostRequests is the most requests that a job may cost daemon and site together.
	mostRequests = 10.0
)

// latencies measures, from publishing a job to its verified result at the site: one job after the other, the daemon idle
// before each, the site pumping in a tight loop where it polls.
func latencies(t *testing.T, npm public, m *model) {
	var table strings.Builder
	_, _ = fmt.Fprintf(&table, "%-12s %-12s %-8s %8s %8s %8s %8s %10s\n", "daemon", "site", "holding", "median", "p90", "most", "model", "requests")
	for _, mix := range []mix{
		{ours: "", held: true},
		{ours: "", held: false},
		{ours: "daemon", held: true},
		{ours: "site", held: true},
		{ours: "daemon site", held: true},
	} {
		t.Run(strings.Join(strings.FieldsFunc(mix.String(), func(c rune) bool { return c == ' ' || c == ',' }), " "), func(t *testing.T) {
			got := measure(t, npm, m, mix)
			_, _ = fmt.Fprintf(&table, "%s %8s %8s %8s %8s %10.1f\n", mix, ms(got.median), ms(got.p90), ms(got.most), ms(got.model), got.requests)
			if beside := got.median - got.model; mix.held && (beside > mostBeside || got.requests > mostRequests) {
				t.Errorf("the median is %s beside the model's time, and a job cost %.1f requests; at most %s and %.0f are good",
					ms(beside), got.requests, ms(mostBeside), mostRequests)
			}
		})
	}
	t.Logf("%d jobs each; ms, and polled requests a job of daemon and site together\n%s", latencyJobs, &table)
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d)/float64(time.Millisecond)) }

// mix is who is measured: those that are ours push, the others poll.
type mix struct {
	ours string
	held bool
}

func (x mix) polls(party string) bool { return !strings.Contains(x.ours, party) }

func (x mix) String() string {
	name := func(party string) string {
		if x.polls(party) {
			return "npm, polls"
		}
		return "Go, pushed"
	}
	holding := "on"
	if !x.held {
		holding = "off"
	}
	return fmt.Sprintf("%-12s %-12s %-8s", name("daemon"), name("site"), holding)
}

type figures struct {
	median, p90, most, model time.Duration
	requests                 float64 // of daemon and site, of a job: the median, as of what is timed
}

func measure(t *testing.T, npm public, m *model, x mix) figures {
	t.Helper()
	plane := newPlane(t)
	args := []string{"--verification-url", "https://control.example.org/devices", "--drain-window", "50ms"}
	if !x.held {
		args = append(args, "--hold-claim", "0s", "--hold-fetch", "0s", "--hold-pending", "0s")
	}
	r := serveRelay(t, args...)
	plane.approves(t, r)
	var d *process
	if x.polls("daemon") {
		d = npm.pair(t, r, plane, m).run(t)
	} else {
		d = r.daemon("runner-a1", "--openai", m.url, "--model", modelName)
	}
	var one func(prompt string) (string, time.Duration)
	end := func() {}
	if x.polls("site") {
		s := npm.site(t, r, "owner-a")
		one, end = s.one, s.finish
	} else {
		one = ourSite(t, r)
	}
	run := func(prompt string) time.Duration {
		idle(t, r, x)
		text, took := one(prompt)
		if text != asciiUpper(prompt) {
			t.Errorf("the result of %q is %q", prompt, text)
		}
		return took
	}
	run("warm one")
	run("warm two")
	idle(t, r, x)
	m.forget()
	var all []time.Duration
	var requests []float64
	for i := range latencyJobs {
		before := polled(t, r, "")
		all = append(all, run("job "+strconv.Itoa(i)))
		idle(t, r, x)
		requests = append(requests, polled(t, r, "")-before)
	}
	took := m.forget()
	end()
	for _, p := range []*process{d, r.process} { // so that the next measurement has the machine for itself
		p.signal(syscall.SIGTERM)
		p.exit()
	}
	slices.Sort(all)
	slices.Sort(took)
	slices.Sort(requests)
	return figures{
		median: all[len(all)/2], p90: all[len(all)*9/10], most: all[len(all)-1], model: took[len(took)/2],
		requests: requests[len(requests)/2],
	}
}

// one answers the text of a prompt's result and how long it took the site.
func (s *publicSite) one(prompt string) (string, time.Duration) {
	s.t.Helper()
	s.publish(prompt)
	got := s.result(prompt)
	return got.Text, time.Duration(got.MS * float64(time.Millisecond))
}

// ourSite is the same of a site with a session, which ends with the test.
func ourSite(t *testing.T, r *relay) func(prompt string) (string, time.Duration) {
	t.Helper()
	results := make(chan site.Result, 1)
	s, err := site.New(site.Config{
		URL: r.url, SiteID: "site-two", Keys: r.keys["site-two"],
		OnResult: func(_ context.Context, res site.Result) error {
			results <- res
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Run(ctx) // it ends with the test
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return func(prompt string) (string, time.Duration) {
		payload, err := seal.GeneratePayload{Prompt: prompt}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		answers := s.Submit(t.Context(), site.Job{
			Kind: site.KindGenerate, Owner: "owner-a", Audience: "team", Deadline: began.Add(time.Hour), Payload: payload,
		})
		if answers[0].Err != nil {
			t.Fatal(answers[0].Err)
		}
		select {
		case res := <-results:
			if res.Err != nil {
				t.Error(res.Err)
			}
			return res.Outcome.Text, time.Since(began)
		case <-time.After(patience):
			t.Fatalf("there is no result of %q", prompt)
			return "", 0
		}
	}
}

// idle waits until daemon and site have nothing to do: those that poll are held or, where nobody is, a claim came back empty.
func idle(t *testing.T, r *relay, x mix) {
	t.Helper()
	if !x.held {
		claims := polled(t, r, "claim")
		until(t, "the daemon asks in vain", func() bool { return polled(t, r, "claim") > claims })
		return
	}
	for party, endpoint := range map[string]string{"daemon": "claim", "site": "pending"} {
		if x.polls(party) {
			until(t, "the "+party+" waits", func() bool { return value(metrics(t, r), `pushrelay_poll_held_requests{endpoint="`+endpoint+`"}`) == 1 })
		}
	}
}

// polled answers how many polled requests are over, of one endpoint or of all.
func polled(t *testing.T, r *relay, endpoint string) float64 {
	t.Helper()
	sum := 0.0
	for line := range strings.Lines(metrics(t, r)) {
		labels, ok := strings.CutPrefix(line, "pushrelay_poll_requests_total{")
		if !ok || endpoint != "" && !strings.Contains(labels, `endpoint="`+endpoint+`"`) {
			continue
		}
		words := strings.Fields(labels)
		n, err := strconv.ParseFloat(words[len(words)-1], 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return sum
}

func value(text, series string) float64 {
	_, rest, _ := strings.Cut(text, "\n"+series+" ")
	number, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return -1
	}
	return n
}

func metrics(t *testing.T, r *relay) string {
	t.Helper()
	res, err := http.Get(r.admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
