//go:build interop

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"pushrelay/cmd/pushrelay/internal/setup"
)

const (
	modelName = "upper"
	// modelTakes is what the model needs for an answer, beside its own overhead.
	modelTakes = 20 * time.Millisecond
)

// model is an OpenAI-compatible server whose answers are the prompts in upper case.
type model struct {
	url string

	mu   sync.Mutex
	took []time.Duration
}

func newModel(t *testing.T) *model {
	t.Helper()
	m := &model{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `{"object":"list","data":[{"id":%q,"object":"model"}]}`, modelName)
	})
	mux.HandleFunc("POST /v1/chat/completions", m.complete)
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	m.url = s.URL + "/v1"
	return m
}

func (m *model) complete(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	var asked struct {
		Messages []struct{ Content string }
	}
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || len(asked.Messages) == 0 {
		http.Error(w, "no messages", http.StatusBadRequest)
		return
	}
	select {
	case <-time.After(modelTakes):
	case <-r.Context().Done():
		return
	}
	text := asciiUpper(asked.Messages[len(asked.Messages)-1].Content)
	answer, _ := json.Marshal(map[string]any{
		"choices": []any{map[string]any{"message": map[string]any{"role": "assistant", "content": text}, "finish_reason": "stop"}},
	})
	_, _ = w.Write(answer)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.took = append(m.took, time.Since(began))
}

// forget answers what the answers since the last call took.
func (m *model) forget() []time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	took := m.took
	m.took = nil
	return took
}

// approve looks a code up and puts its device into the projection.
func (p *plane) approve(t *testing.T, r *relay, userCode, owner, runner string) {
	t.Helper()
	var found struct{ Key json.RawMessage }
	if err := json.Unmarshal(ask(t, http.MethodGet, r.admin+"/pairings/"+userCode, nil), &found); err != nil {
		t.Fatal(err)
	}
	var devices []any
	if err := json.Unmarshal(p.doc["devices"], &devices); err != nil {
		t.Fatal(err)
	}
	devices = append(devices, map[string]any{"owner": owner, "runnerId": runner, "device": found.Key})
	raw, err := json.Marshal(devices)
	if err != nil {
		t.Fatal(err)
	}
	p.doc["devices"] = raw
	p.put(t, r)
}

// publicDaemon is a paired daemon of the public packages.
type publicDaemon struct {
	npm    public
	home   string
	runner string
}

// pair lets the public daemon ask for a code, which is approved through the projection.
func (p public) pair(t *testing.T, r *relay, plane *plane, m *model) *publicDaemon {
	t.Helper()
	d := &publicDaemon{npm: p, home: t.TempDir(), runner: "runner-npm"}
	config, err := json.Marshal(map[string]any{
		"services": map[string]any{"upper": map[string]any{
			"type": "openai-http", "baseUrl": m.url, "model": modelName, "kinds": []string{"llm.generate", "llm.chat"}, "offer": "team",
		}},
		"minAvailableMemoryBytes": 1, // no model is loaded on this machine
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.home, "config.json"), config, 0o600); err != nil {
		t.Fatal(err)
	}
	c := startCommand(t, "", d.command("connect", r.url, "--name", "interop"))
	line := c.await(c.out, "Enter code:")
	code := regexp.MustCompile(`[A-Z]{4}-[A-Z]{4}`).FindString(line)
	plane.approve(t, r, code, "owner-a", d.runner)
	c.await(c.out, "paired as owner-a")
	if code := c.exit(); code != 0 {
		t.Fatalf("connect ended with %d", code)
	}
	return d
}

func (d *publicDaemon) command(args ...string) *exec.Cmd {
	cmd := d.npm.bin("byollm/dist/bin.js", args...)
	cmd.Env = append(os.Environ(), "BYOLLM_HOME="+d.home)
	return cmd
}

// run starts the daemon.
func (d *publicDaemon) run(t *testing.T) *process {
	t.Helper()
	p := startCommand(t, "", d.command("run"))
	p.await(p.out, "serving as")
	return p
}

// publicSite is a running site of the public packages.
type publicSite struct {
	*process
	in io.WriteCloser
}

func (p public) site(t *testing.T, r *relay, owner string) *publicSite {
	t.Helper()
	cmd := exec.Command(p.node, filepath.Join(p.dir, "site.mjs"), "--relay", r.url, "--site", "site-one",
		"--key", setup.KeyFile(r.dir, "site-one"), "--owner", owner)
	write, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	s := &publicSite{process: startCommand(t, "", cmd), in: write}
	s.await(s.out, "pumping")
	return s
}

// publish hands prompts to the site.
func (s *publicSite) publish(prompts ...string) {
	s.t.Helper()
	if _, err := io.WriteString(s.in, strings.Join(prompts, "\n")+"\n"); err != nil {
		s.t.Fatal(err)
	}
}

// done is one result as the site has it after it verified it.
type done struct {
	Prompt, State, Text, Runner, Owner string
	MS                                 float64
}

// result waits for the result of a prompt.
func (s *publicSite) result(prompt string) done {
	s.t.Helper()
	quoted, err := json.Marshal(prompt)
	if err != nil {
		s.t.Fatal(err)
	}
	var d done
	if err := json.Unmarshal([]byte(s.await(s.out, `"event":"result"`, `"prompt":`+string(quoted)+`,`)), &d); err != nil {
		s.t.Fatal(err)
	}
	return d
}

// finish ends the site, which must have failed nowhere.
func (s *publicSite) finish() {
	s.t.Helper()
	_ = s.in.Close()
	if code := s.exit(); code != 0 {
		s.t.Errorf("the site ended with %d", code)
	}
	for line := range strings.Lines(s.out.String()) {
		if strings.Contains(line, `"event":"failed"`) {
			s.t.Errorf("the site failed: %s", line)
		}
	}
}

// jobs publishes n jobs, whose results the site must have verified to be the runner's, and ends the site.
func (s *publicSite) jobs(n int, runner, owner string) {
	s.t.Helper()
	var prompts []string
	for i := range n {
		prompts = append(prompts, fmt.Sprintf("theirs %d: é \\ 😀", i))
	}
	s.publish(prompts...)
	good := 0
	for _, prompt := range prompts {
		got := s.result(prompt)
		if got.State == "ok" && got.Text == asciiUpper(prompt) && got.Runner == runner && got.Owner == owner {
			good++
			continue
		}
		s.t.Errorf("result %+v of %q", got, prompt)
	}
	s.t.Logf("%d of %d results verified by the site", good, n)
	s.finish()
}
