package serve

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"pushrelay/hub/projection"
	"pushrelay/session"
	"pushrelay/store"
	"pushrelay/wire"
	"pushrelay/wire/seal"
)

// example answers a projection with one site and one device, with a version unless it is 0.
func example(t *testing.T, version int64, site string) []byte {
	t.Helper()
	var e projection.Example
	if version != 0 {
		e.Version(version)
	}
	for _, name := range []string{site, "runner-1"} {
		k, err := seal.Generate(nil)
		if err != nil {
			t.Fatal(err)
		}
		if name == site {
			e.Site(site, k.Public())
		} else {
			e.Device("owner-a", name, k.Public())
		}
	}
	raw, err := e.Consent("owner-a", site).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// held is projections over a holder, as the relay has them.
func held(t *testing.T, raw []byte) (*projections, *projection.Holder) {
	t.Helper()
	p, err := projection.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	holder := projection.NewHolder(p)
	return &projections{replace: holder.Replace, log: zerolog.Nop(), told: func(string, bool) {}, raw: raw}, holder
}

func testAdmin(t *testing.T, why ...string) (*admin, *projection.Holder) {
	t.Helper()
	p, holder := held(t, example(t, 5, "site-one"))
	return &admin{
		ready:    func(context.Context) unreadiness { return unreadiness{Why: why} },
		put:      func(raw []byte) (Change, error) { return p.apply(raw, sourceAdmin) },
		registry: newMetrics().registry,
		hosts:    []string{"metrics.internal"},
	}, holder
}

func TestAdminRefusesWhatIsNotTheOperator(t *testing.T) {
	good := string(example(t, 6, "site-two"))
	type request struct {
		method, path, host, origin, kind, body, remote string
	}
	cases := []struct {
		name   string
		r      request
		remote bool
		want   int
	}{
		{"health", request{path: "/healthz"}, false, 200},
		{"metrics", request{path: "/metrics"}, false, 200},
		{"localhost", request{path: "/healthz", host: "localhost:9090"}, false, 200},
		{"loopback address", request{path: "/healthz", host: "127.8.9.1:9090"}, false, 200},
		{"IPv6 loopback", request{path: "/healthz", host: "[::1]:9090"}, false, 200},
		{"listed name reads", request{path: "/metrics", host: "metrics.internal:9090"}, false, 200},
		{"rebound name", request{path: "/metrics", host: "evil.example:9090"}, false, 403},
		{"name that looks local", request{path: "/metrics", host: "localhost.evil.example"}, false, 403},
		{"name that begins like an address", request{path: "/metrics", host: "127.0.0.1.evil.example"}, false, 403},
		{"address of another machine", request{path: "/metrics", host: "192.0.2.7:9090"}, false, 403},
		{"address, when remote reads are allowed", request{path: "/metrics", host: "192.0.2.7:9090"}, true, 200},
		{"rebound name, when remote reads are allowed", request{path: "/metrics", host: "evil.example"}, true, 403},
		{"an origin", request{path: "/healthz", origin: "http://localhost:9090"}, false, 403},
		{"a null origin", request{path: "/healthz", origin: "null"}, false, 403},
		{"unknown path", request{path: "/debug/pprof/"}, false, 404},
		{"wrong method", request{method: "POST", path: "/projection"}, false, 405},

		{"put", request{method: "PUT", path: "/projection", kind: "application/json", body: good}, false, 200},
		{"put with a charset", request{method: "PUT", path: "/projection", kind: "application/json; charset=UTF-8", body: good}, false, 200},
		{"put as a form", request{method: "PUT", path: "/projection", kind: "text/plain", body: good}, false, 415},
		{"put without a type", request{method: "PUT", path: "/projection", body: good}, false, 415},
		{"put by a listed name", request{method: "PUT", path: "/projection", host: "metrics.internal", kind: "application/json", body: good}, false, 403},
		{"put by a rebound name", request{method: "PUT", path: "/projection", host: "evil.example", kind: "application/json", body: good}, false, 403},
		{"put by a page", request{method: "PUT", path: "/projection", origin: "http://localhost", kind: "application/json", body: good}, false, 403},
		{"put by another machine", request{method: "PUT", path: "/projection", kind: "application/json", body: good, remote: "192.0.2.7:4711"}, true, 403},
		{"put of nothing", request{method: "PUT", path: "/projection", kind: "application/json"}, false, 400},
		{"put of half", request{method: "PUT", path: "/projection", kind: "application/json", body: good[:len(good)/2]}, false, 400},
		{"put of an unknown field", request{method: "PUT", path: "/projection", kind: "application/json", body: `{"sites":[],"consents":[],"devices":[],"x":1}`}, false, 400},
		{"put of too much", request{method: "PUT", path: "/projection", kind: "application/json", body: strings.Repeat(" ", maxProjectionBytes+1)}, false, 413},
		{"put of an old version", request{method: "PUT", path: "/projection", kind: "application/json", body: string(example(t, 4, "site-one"))}, false, 409},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			a, holder := testAdmin(t)
			a.remote = c.remote
			method := c.r.method
			if method == "" {
				method = http.MethodGet
			}
			r := httptest.NewRequestWithContext(t.Context(), method, "http://127.0.0.1:9090"+c.r.path, strings.NewReader(c.r.body))
			r.RemoteAddr = "127.0.0.1:4711"
			if c.r.remote != "" {
				r.RemoteAddr = c.r.remote
			}
			if c.r.host != "" {
				r.Host = c.r.host
			}
			if c.r.origin != "" {
				r.Header.Set("Origin", c.r.origin)
			}
			if c.r.kind != "" {
				r.Header.Set("Content-Type", c.r.kind)
			}
			w := httptest.NewRecorder()
			a.handler().ServeHTTP(w, r)
			if w.Code != c.want {
				t.Errorf("%d, want %d: %s", w.Code, c.want, w.Body)
			}
			if put := method == http.MethodPut; put != (holder.Current().Generation == 2) && c.want == 200 {
				t.Errorf("generation %d", holder.Current().Generation)
			}
			if c.want != 200 && holder.Current().Generation != 1 {
				t.Error("what was refused took effect")
			}
		})
	}
}

func TestAdminAnswersWhatChanged(t *testing.T) {
	a, _ := testAdmin(t)
	server := httptest.NewServer(a.handler())
	defer server.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, server.URL+"/projection", strings.NewReader(string(example(t, 6, "site-two"))))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var got Change
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
		t.Fatal(err)
	}
	if !got.Changed || got.Version == nil || *got.Version != 6 || got.Sites != (Changes{Added: 1, Removed: 1, Total: 1}) ||
		got.Devices != (Changes{Altered: 1, Total: 1}) || got.Consents != (Changes{Added: 1, Removed: 1, Total: 1}) {
		t.Errorf("%+v", got)
	}
}

func TestReadiness(t *testing.T) {
	for _, why := range [][]string{nil, {"draining"}} {
		a, _ := testAdmin(t, why...)
		for path, want := range map[string]int{"/healthz": 200, "/readyz": map[bool]int{true: 200, false: 503}[why == nil]} {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost"+path, nil)
			w := httptest.NewRecorder()
			a.handler().ServeHTTP(w, r)
			if w.Code != want {
				t.Errorf("%s is %d with %v, want %d", path, w.Code, why, want)
			}
			if body, _ := io.ReadAll(w.Body); want == 503 && !strings.Contains(string(body), "draining") {
				t.Errorf("%s doesn't say why: %s", path, body)
			}
		}
	}
}

// series answers the names of the relay's own series, with labels.
func series(t *testing.T, m *metrics) []string {
	t.Helper()
	a := &admin{registry: m.registry}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/metrics", nil)
	w := httptest.NewRecorder()
	a.handler().ServeHTTP(w, r)
	var out []string
	for line := range strings.Lines(w.Body.String()) {
		if i := strings.LastIndexByte(line, ' '); i > 0 && strings.HasPrefix(line, "pushrelay_") {
			out = append(out, line[:i])
		}
	}
	return out
}

func TestMetricsHaveUnits(t *testing.T) {
	all := strings.Join(series(t, newMetrics()), "\n")
	for _, want := range []string{
		"pushrelay_build_info", `pushrelay_sessions_open{role="daemon"}`, `pushrelay_sessions_ended_total{reason="too-slow",role="site"}`,
		"pushrelay_session_duration_seconds_count", "pushrelay_received_bytes_total", "pushrelay_projection_applied_timestamp_seconds",
		`pushrelay_grants_ended_total{why="lapsed"}`, `pushrelay_hub_work_total{what="claims"}`, `pushrelay_results_total{disposition="ok"}`,
	} {
		if !strings.Contains(all, want) {
			t.Errorf("no %s", want)
		}
	}
}

func TestSeriesDoNotGrow(t *testing.T) {
	m := newMetrics()
	before := series(t, m)
	hear := func(word string) {
		m.Opened(word)
		m.Ended(word, session.Reason(word), session.Summary{Admitted: true})
		m.Refused(word)
		hubMetrics{m}.Ended(store.Why(word))
		hubMetrics{m}.Dropped(store.Why(word))
		hubMetrics{m}.Done(word)
	}
	for _, word := range []string{wire.RoleDaemon, string(session.ReasonCut), session.RefusedQuery, string(store.WhyLapsed), wire.DispositionOK} {
		hear(word)
	}
	once := series(t, m)
	for i := range 500 {
		hear("hostile " + strconv.Itoa(i))
	}
	if after := series(t, m); len(after) != len(once) || len(once) < len(before) {
		t.Errorf("%d series became %d, then %d", len(before), len(once), len(after))
	}
	if strings.Contains(strings.Join(series(t, m), ""), "hostile") {
		t.Error("a client's word is a label")
	}
}
