package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"pushrelay/cmd/pushrelay/internal/app"
	"pushrelay/cmd/pushrelay/internal/setup"
)

// inspected is what `store inspect --json` prints.
type inspected struct {
	Path      string
	Format    int
	Epoch     string
	FileBytes int64 `json:"file_bytes"`
	FreeBytes int64 `json:"free_bytes"`
	Jobs      map[string]int
	Bytes     int64 `json:"envelope_bytes"`
	Oldest    string
	Sites     []struct {
		Site    string
		Jobs    int
		Records int
		Oldest  string
	}
}

func inspect(t *testing.T, dir string) (found inspected) {
	t.Helper()
	code, out, errOut := inProcess(t, "store", "inspect", "--json", dir)
	if code != app.ExitOK {
		t.Fatalf("code %d, %s", code, errOut)
	}
	if err := json.Unmarshal([]byte(out), &found); err != nil {
		t.Fatal(err)
	}
	return found
}

// keptJobs is a folder with jobs that a relay which has ended was asked to keep, and the example around it.
func keptJobs(t *testing.T, jobs int) (r *relay, data string) {
	t.Helper()
	data = filepath.Join(t.TempDir(), "data")
	r = serveRelay(t, "--store", "disk", "--data", data)
	p := r.submit(strings.Repeat("text\n", jobs), "--id-prefix", "kept-")
	until(t, "the jobs wait", func() bool { return waiting(t, r) == jobs })
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.exit()
	return r, data
}

func TestAFolderBelongsToOneProcess(t *testing.T) {
	t.Parallel()
	r, data := keptJobs(t, 1)
	holder := "process " + strconv.Itoa(r.cmd.Process.Pid)
	var others []*process
	began := time.Now()
	for _, args := range [][]string{
		{"serve", "--projection", setup.ProjectionFile(r.dir), "--data", data, "--listen", "127.0.0.1:0", "--admin-listen", "off"},
		{"store", "inspect", data},
		{"store", "compact", data},
		{"store", "restored", data},
	} {
		others = append(others, start(t, "", args...))
	}
	for _, p := range others {
		if code := p.exit(); code != app.ExitLocked {
			t.Errorf("%v: code %d", p.cmd.Args, code)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%v took %v", p.cmd.Args, took)
		}
		if said := p.err.String(); !strings.Contains(said, data) || !strings.Contains(said, holder) {
			t.Errorf("%v says %q, which doesn't name %s and %s", p.cmd.Args, said, data, holder)
		} else if looks := p.cmd.Args[1] == "store"; looks != strings.Contains(said, "/metrics") || looks == strings.Contains(said, "name another folder") {
			t.Errorf("%v says %q, which isn't what to do", p.cmd.Args, said)
		}
	}
	if r.get("/readyz") != 200 {
		t.Error("the one that has it isn't ready any more")
	}
}

func TestStoreCommandsWantAFolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pushrelay.db")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"inspect", "compact", "restored"} {
		if code, _, errOut := inProcess(t, "store", command, file); code != app.ExitUsage || !strings.Contains(errOut, "isn't a folder") {
			t.Errorf("%s: code %d, %s", command, code, errOut)
		}
	}
}

func TestJobsAreThereAfterARestart(t *testing.T) {
	const jobs = 3
	r, data := keptJobs(t, jobs)
	info, err := os.Stat(data)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder's mode is %v, %v", info.Mode(), err)
	}
	r.signal(syscall.SIGTERM)
	if code := r.exit(); code != app.ExitOK {
		t.Fatalf("code %d", code)
	}
	before := readFile(t, data, "pushrelay.db")
	found := inspect(t, data)
	if found.Path != filepath.Join(data, "pushrelay.db") || found.Format != 1 || found.FileBytes != int64(len(before)) || found.Epoch == "" {
		t.Errorf("%+v", found)
	}
	if found.Jobs["queued"] != jobs || found.Jobs["done"] != 0 || len(found.Jobs) != 5 || len(found.Sites) != 1 {
		t.Errorf("%+v", found)
	}
	if s := found.Sites[0]; s.Site != "site-one" || s.Jobs != jobs || s.Oldest == "" || s.Oldest != found.Oldest {
		t.Errorf("%+v", s)
	}
	code, out, errOut := inProcess(t, "store", "inspect", data)
	for _, want := range []string{"queued            3\n", "site-one", "format            1\n", found.Epoch, found.Oldest} {
		if code != app.ExitOK || !strings.Contains(out, want) {
			t.Errorf("code %d, %q isn't in\n%s%s", code, want, out, errOut)
		}
	}
	if readFile(t, data, "pushrelay.db") != before {
		t.Error("it was changed by looking at it")
	}
	again := serveRelay(t, "--store", "disk", "--data", data)
	if n := waiting(t, again); n != jobs {
		t.Errorf("%d jobs wait after a restart", n)
	}
}

func TestCompact(t *testing.T) {
	r, data := keptJobs(t, 200)
	r.signal(syscall.SIGTERM)
	r.exit()
	was := inspect(t, data)
	code, out, errOut := inProcess(t, "store", "compact", "--json", data)
	var sizes struct {
		Path   string
		Before int64 `json:"before_bytes"`
		After  int64 `json:"after_bytes"`
	}
	if err := json.Unmarshal([]byte(out), &sizes); err != nil || code != app.ExitOK {
		t.Fatalf("code %d, %v, %s", code, err, errOut)
	}
	is := inspect(t, data)
	if sizes.Path != data || sizes.Before != was.FileBytes || sizes.After != is.FileBytes || sizes.After > sizes.Before {
		t.Errorf("%+v of %+v", sizes, is)
	}
	if is.Jobs["queued"] != 200 || is.Epoch != was.Epoch {
		t.Errorf("%+v became %+v", was, is)
	}
	code, out, _ = inProcess(t, "store", "compact", data)
	if code != app.ExitOK || !strings.Contains(out, "before") || !strings.Contains(out, "after") {
		t.Errorf("code %d, %s", code, out)
	}
	code, out, _ = inProcess(t, "store", "restored", "--json", data)
	var renewed struct{ Path, Epoch string }
	if err := json.Unmarshal([]byte(out), &renewed); err != nil || code != app.ExitOK || renewed.Path != data ||
		renewed.Epoch == is.Epoch || renewed.Epoch != inspect(t, data).Epoch {
		t.Errorf("code %d, %s, %v", code, out, err)
	}
}

func TestFoldersWithoutAStore(t *testing.T) {
	for _, command := range []string{"inspect", "compact", "restored"} {
		for _, dir := range []string{t.TempDir(), "/nonexistent/data"} {
			code, out, errOut := inProcess(t, "store", command, dir)
			if code != app.ExitUsage || out != "" || !strings.Contains(errOut, dir) || !strings.Contains(errOut, "--data") {
				t.Errorf("%s %s: code %d, %s%s", command, dir, code, out, errOut)
			}
		}
	}
}

// A relay that is told to forget says so, and has no folder.
func TestTheMemoryStoreNeedsNoFolder(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	r := serveRelay(t, "--store", "memory", "--data", data)
	r.await(r.out, "kept in memory")
	if _, err := os.Stat(data); !os.IsNotExist(err) {
		t.Errorf("there is a folder: %v", err)
	}
}
