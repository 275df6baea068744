package serve

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

func TestOutagesAreLoggedOnceAMinute(t *testing.T) {
	var logged bytes.Buffer
	now := time.Unix(1_900_000_000, 0)
	o := &outages{log: zerolog.New(&logged), now: func() time.Time { return now }}
	full := errors.New("no space left")
	for range 600 { // on a disk that is nearly full, for two minutes
		o.Failed(full)
		now = now.Add(100 * time.Millisecond)
		o.Recovered(100 * time.Millisecond)
		now = now.Add(100 * time.Millisecond)
	}
	for event, want := range map[string]int{`"store-out"`: 2, `"store-back"`: 2, `"unlogged":299`: 1, "no space left": 2} {
		if got := strings.Count(logged.String(), event); got != want {
			t.Errorf("%d times %s, want %d:\n%s", got, event, want, &logged)
		}
	}
	if err := o.recent(); !errors.Is(err, full) {
		t.Errorf("just after the last one: %v", err)
	}
	now = now.Add(steadyFor)
	if err := o.recent(); err != nil {
		t.Errorf("much later: %v", err)
	}
}

func TestARelayOnDisk(t *testing.T) {
	data := filepath.Join(t.TempDir(), "new", "data")
	r, _ := started(t, func(s *Settings) { s.Store, s.Data = storeDisk, data })
	defer func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}()
	if code, body := status(t, r.AdminURL()+"/readyz"); code != 200 {
		t.Errorf("%d, %s", code, body)
	}
	series, err := r.metrics.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, s := range series {
		found[s.GetName()] = s.GetMetric()[0].GetGauge().GetValue()
	}
	if size, ok := found["pushrelay_store_file_bytes"]; !ok || size < 4096 {
		t.Errorf("the folder has %v bytes", size)
	}
	if out, ok := found["pushrelay_store_out"]; !ok || out != 0 {
		t.Errorf("out is %v, %v", out, ok)
	}
	r.outages.Failed(errors.New("no space left"))
	r.outages.Recovered(time.Second)
	if code, body := status(t, r.AdminURL()+"/readyz"); code != 503 || !strings.Contains(body, `"store":"no space left"`) {
		t.Errorf("just after an outage: %d, %s", code, body)
	}
}

func TestAFolderInUseIsNoPortInUse(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	r, _ := started(t, func(s *Settings) { s.Store, s.Data = storeDisk, data })
	defer func() { _ = r.Close() }()
	set := r.set
	set.Listen = strings.TrimPrefix(r.URL(), "http://")
	_, err := Start(set, zerolog.Nop())
	if err == nil || !strings.Contains(err.Error(), data) || strings.Contains(err.Error(), "--listen") {
		t.Errorf("%v", err)
	}
}

func TestStoreErrAsksTheStore(t *testing.T) {
	r, _ := started(t, nil)
	if err := r.storeErr(context.Background()); err != nil {
		t.Error(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if err := r.storeErr(context.Background()); err == nil {
		t.Error("a closed store isn't out")
	}
}
