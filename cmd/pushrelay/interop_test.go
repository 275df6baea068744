//go:build interop

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"pushrelay/cmd/pushrelay/internal/setup"
)

const interopDir = "testdata/interop"

// TestInterop holds this relay to the clients that poll today, as npm has them: daemon, site and auditor are theirs.
func TestInterop(t *testing.T) {
	npm := installPublic(t)
	m := newModel(t)
	t.Run("audit", func(t *testing.T) { audit(t, npm) })
	for _, granted := range []bool{false, true} {
		name := "without grants"
		if granted {
			name = "with grants"
		}
		t.Run(name, func(t *testing.T) { everyMix(t, npm, m, granted) })
	}
	t.Run("latency", func(t *testing.T) { latencies(t, npm, m) })
}

// everyMix lets each kind of daemon serve each kind of site.
func everyMix(t *testing.T, npm public, m *model, granted bool) {
	plane := newPlane(t)
	args := []string{"--verification-url", "https://control.example.org/devices"}
	if granted {
		args = append(args, "--control-plane-key", plane.key(), "--grant-url", plane.url)
	}
	r := serveRelay(t, args...)
	plane.approves(t, r)
	device := npm.pair(t, r, plane, m)

	t.Run("their daemon", func(t *testing.T) {
		d := device.run(t)
		t.Run("their site", func(t *testing.T) { npm.site(t, r, "owner-a").jobs(20, device.runner, "owner-a") })
		t.Run("our site", func(t *testing.T) { ourJobs(t, r, "owner-a", 5) })
		if granted {
			t.Run("their site, another owner", func(t *testing.T) { npm.site(t, r, "owner-b").jobs(3, device.runner, "owner-a") })
			t.Run("our site, another owner", func(t *testing.T) { ourJobs(t, r, "owner-b", 3) })
		}
		d.signal(syscall.SIGTERM)
		if code := d.exit(); code != 0 {
			t.Errorf("the daemon ended with %d", code)
		}
		host := strings.TrimPrefix(r.url, "http://")
		if strings.Contains(d.out.String(), host+" refused") || strings.Contains(d.err.String(), host) { // errors are told there
			t.Errorf("the daemon told of trouble:\n%s\n%s", d.out, d.err)
		}
	})
	t.Run("our daemon", func(t *testing.T) {
		args := []string{"--openai", m.url, "--model", modelName, "--slots", "2"}
		if granted {
			args = append(args, "--owner", "owner-a", "--control-plane-key", plane.key())
		}
		d := r.daemon("runner-a1", args...)
		t.Run("their site", func(t *testing.T) { npm.site(t, r, "owner-a").jobs(5, "runner-a1", "owner-a") })
		t.Run("our site", func(t *testing.T) { ourJobs(t, r, "owner-a", 5) })
		if granted {
			t.Run("their site, another owner", func(t *testing.T) { npm.site(t, r, "owner-b").jobs(3, "runner-a1", "owner-a") })
			t.Run("our site, another owner", func(t *testing.T) { ourJobs(t, r, "owner-b", 3) })
		}
		d.signal(syscall.SIGTERM)
		if code := d.exit(); code != 0 {
			t.Errorf("the daemon ended with %d", code)
		}
	})
	if signed := plane.signed.Load(); (signed > 0) != granted {
		t.Errorf("%d grants were signed", signed)
	}
}

// ourJobs publishes prompts with `site submit` and checks the results.
func ourJobs(t *testing.T, r *relay, owner string, n int) {
	t.Helper()
	var prompts []string
	for i := range n {
		prompts = append(prompts, fmt.Sprintf(`ours %d: <b> & "quotes" \ é 😀`, i))
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out := output(t, strings.Join(prompts, "\n")+"\n", exec.Command(
		self, "site", "submit", "--relay", r.url, "--key", setup.KeyFile(r.dir, "site-two"), "--site", "site-two", "--owner", owner,
		"--audience", "team", "--json",
	))
	expectTexts(t, out, prompts)
}

// httpChecks are the auditor's checks that plain HTTP can reach: the others are about TLS and the origin's address.
func httpChecks() []string {
	return []string{
		"D001_SITE_ENQUEUE_REFUSES_UNSIGNED", "D002_SITE_READS_REFUSE_UNSIGNED", "D003_DAEMON_PLANE_REFUSES_UNSIGNED",
		"D004_REFUSES_A_STRANGER_S_VALID_SIGNATURE", "D005_NO_DEBUG_SURFACE", "D006_NO_PATH_DISPATCH", "D011_VERSION_NAMED_ON_BOTH_PLANES",
	}
}

func audit(t *testing.T, npm public) {
	r := serveRelay(t)
	p := startCommand(t, "", npm.bin("@byollm/conformance/dist/audit-cli.js", r.url))
	p.exit() // 1: without TLS not all can pass
	verdicts := map[string]string{}
	for line := range strings.Lines(p.out.String()) {
		if words := strings.Fields(line); len(words) == 2 && strings.HasPrefix(words[1], "D0") {
			verdicts[words[1]] = words[0]
		}
	}
	t.Log(p.out)
	if len(verdicts) != 11 {
		t.Errorf("the auditor made %d checks, not 11", len(verdicts))
	}
	for check, verdict := range verdicts {
		if slices.Contains(httpChecks(), check) && verdict != "ok" {
			t.Errorf("%s: %s", check, verdict)
		}
	}
	for _, check := range httpChecks() {
		if verdicts[check] == "" {
			t.Errorf("%s wasn't checked", check)
		}
	}
}

// public is an installed copy of the public packages, and the Node that runs them.
type public struct{ dir, node string }

func installPublic(t *testing.T) public {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(interopDir)); err != nil {
		t.Fatal(err)
	}
	ci := func(folder string) {
		cmd := exec.Command("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
		cmd.Dir = folder
		output(t, "", cmd)
	}
	ci(dir)
	p := public{dir: dir, node: "node"}
	if !newEnough(p.node) {
		ci(filepath.Join(dir, "node"))
		found, err := filepath.Glob(filepath.Join(dir, "node/node_modules/node-*/bin/node"))
		if err != nil || len(found) != 1 || !newEnough(found[0]) {
			t.Fatalf("the public clients ask for Node 22.14 or later, and npm has none for this machine (%v, %v): install it", found, err)
		}
		p.node = found[0]
	}
	return p
}

// newEnough reports whether a Node is one that the public clients ask for.
func newEnough(node string) bool {
	raw, err := exec.Command(node, "-p", "JSON.stringify(process.versions.node.split('.').map(Number))").Output()
	var v [3]int
	return err == nil && json.Unmarshal(raw, &v) == nil && (v[0] > 22 || v[0] == 22 && v[1] >= 14)
}

// bin runs a file of a package.
func (p public) bin(file string, args ...string) *exec.Cmd {
	return exec.Command(p.node, append([]string{filepath.Join(p.dir, "node_modules", file)}, args...)...)
}
