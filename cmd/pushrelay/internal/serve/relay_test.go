package serve

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"pushrelay/hub/projection"
	"pushrelay/session/site"
	"pushrelay/wire/seal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// started is a relay of this process with one site.
func started(t *testing.T, change func(*Settings)) (*Relay, *seal.Keys) {
	t.Helper()
	k, err := seal.Generate(nil)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := new(projection.Example).Site("site-one", k.Public()).Consent("owner-a", "site-one").Marshal()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "projection.json")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	set, err := Defaults()
	if err != nil {
		t.Fatal(err)
	}
	set.Projection, set.Listen, set.AdminListen, set.DrainWindow = path, "127.0.0.1:0", "127.0.0.1:0", 50*time.Millisecond
	set.Store = storeMemory
	if change != nil {
		change(&set)
	}
	if err := set.Validated(); err != nil {
		t.Fatal(err)
	}
	r, err := Start(set, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	return r, k
}

func status(t *testing.T, url string) (int, string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body := make([]byte, 512)
	n, _ := resp.Body.Read(body)
	return resp.StatusCode, string(body[:n])
}

func TestStartAndCloseLeaveNothing(t *testing.T) {
	r, _ := started(t, nil)
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

func TestStartAndDrainLeaveNothing(t *testing.T) {
	r, _ := started(t, func(s *Settings) { s.AdminListen = adminOff })
	if r.AdminURL() != "" {
		t.Error("there is an admin listener")
	}
	if err := r.Drain(); err != nil {
		t.Error(err)
	}
}

func TestUnreadyWithoutAStore(t *testing.T) {
	r, _ := started(t, nil)
	defer r.Close()
	if code, _ := status(t, r.AdminURL()+"/readyz"); code != http.StatusOK {
		t.Errorf("ready is %d", code)
	}
	if err := r.store.Close(); err != nil {
		t.Fatal(err)
	}
	if code, body := status(t, r.AdminURL()+"/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, `"store"`) {
		t.Errorf("ready is %d: %s", code, body)
	}
	if code, _ := status(t, r.AdminURL()+"/healthz"); code != http.StatusOK {
		t.Errorf("health is %d", code)
	}
}

func TestABusyPortStartsNothing(t *testing.T) {
	r, _ := started(t, nil)
	defer r.Close()
	set := r.set
	set.AdminListen = strings.TrimPrefix(r.AdminURL(), "http://")
	if _, err := Start(set, zerolog.Nop()); err == nil || !strings.Contains(err.Error(), "--admin-listen") {
		t.Errorf("%v", err)
	}
}

// TestSessionsOutliveTheServersTimeouts keeps a session busy for many times what a request may take.
func TestSessionsOutliveTheServersTimeouts(t *testing.T) {
	const short = 30 * time.Millisecond
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + l.Addr().String()
	r, k := started(t, func(s *Settings) { s.PublicURL = []string{url} })
	defer r.Close()
	hasty := httpServer(zerolog.Nop(), r.handler())
	hasty.ReadHeaderTimeout, hasty.ReadTimeout, hasty.WriteTimeout, hasty.IdleTimeout = short, short, short, short
	served := make(chan error, 1)
	go func() { served <- hasty.Serve(l) }()
	defer func() {
		_ = hasty.Close()
		<-served
	}()

	var cut atomic.Bool
	s, err := site.New(site.Config{
		URL: url, SiteID: "site-one", Keys: k, OnResult: func(context.Context, site.Result) error { return nil },
		OnEvent: func(e site.Event) { cut.Store(cut.Load() || e.Type == site.EventDisconnected) },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	for end := time.Now().Add(10 * short); time.Now().Before(end); {
		if _, err := s.Cancel(ctx, "unknown"); err != nil {
			t.Fatal(err)
		}
	}
	if cut.Load() {
		t.Error("the session was cut")
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
