package bench

import (
	"os"
	"strings"
	"testing"

	"pushrelay/cmd/pushrelay/internal/app"
)

func TestLifecycleShowsItsFigures(t *testing.T) {
	c := Lifecycle{Sites: 3, Daemons: 4, Open: 24, Slots: 4, Queued: 300, Seconds: 0.3, Rounds: 1, Store: "memory"}
	found := object(t, c.Output, c.measure)
	positive(t, found, "lives_per_second", "echoes_per_second", "ratio", "lives", "frames_per_life")
	depth, _ := found["depth"].([]any)
	if len(depth) != 2 {
		t.Fatalf("depth is %v, want two entries", found["depth"])
	}
	for _, entry := range depth {
		positive(t, entry.(map[string]any), "queued", "lives_per_second", "ratio", "time_ratio")
	}
}

func TestLifecycleWithoutDepth(t *testing.T) {
	c := Lifecycle{Sites: 1, Daemons: 1, Open: 1, Slots: 1, Seconds: 0.1, Rounds: 1, Store: "memory"}
	found := object(t, c.Output, c.measure)
	positive(t, found, "lives_per_second", "ratio")
	if found["depth"] != nil {
		t.Errorf("depth is %v, want none", found["depth"])
	}
}

func TestLifecycleOnDisk(t *testing.T) {
	dir := t.TempDir()
	c := Lifecycle{Sites: 2, Daemons: 2, Open: 8, Slots: 4, Seconds: 1, Rounds: 1, Store: "disk", Dir: dir}
	found := object(t, c.Output, c.measure)
	positive(t, found, "lives_per_second", "lives")
	beside, _ := found["memory"].(map[string]any)
	positive(t, beside, "lives_per_second", "relay_us_per_life", "ratio")
	if found["store"] != "disk" {
		t.Errorf("the store is %v", found["store"])
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("it left %v, %v", left, err)
	}
}

func TestStoreShowsItsFigures(t *testing.T) {
	dir := t.TempDir()
	c := Store{Callers: 4, Calls: 10, Jobs: 1001, Seconds: 0.2, Rounds: 1, Dir: dir}
	found := object(t, c.Output, c.measure)
	positive(t, found, "ratio", "sync_p50_ms", "open_seconds", "open_jobs", "file_bytes", "bytes_per_job")
	for _, kind := range []string{"memory", "disk"} {
		side, _ := found[kind].(map[string]any)
		positive(t, side, "lives_per_second")
		enqueue, _ := side["enqueue"].([]any)
		if len(enqueue) != 2 {
			t.Fatalf("%s: enqueue is %v, want two entries", kind, side["enqueue"])
		}
		for _, entry := range enqueue {
			positive(t, entry.(map[string]any), "callers", "p50_ms", "p99_ms")
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("it left %v, %v", left, err)
	}
}

func TestLatencyShowsItsFigures(t *testing.T) {
	c := Latency{Jobs: 20, Warmup: 2}
	positive(t, object(t, c.Output, c.measure), "jobs", "median_ms", "p99_ms", "max_ms")
}

func TestIdleShowsItsFigures(t *testing.T) {
	c := Idle{Sessions: 60, Rounds: 1}
	positive(t, object(t, c.Output, c.measure), "sessions", "bytes_per_session", "bare_bytes_per_session", "ratio")
}

func TestPollShowsItsFigures(t *testing.T) {
	c := Poll{Depths: []int{4, 40}, Sites: 2, Daemons: 3, Slots: 2, Seconds: 0.3, Rounds: 1}
	list := list(t, c.Output, c.measure)
	if len(list) != 2 {
		t.Fatalf("%d entries, want 2", len(list))
	}
	for _, entry := range list {
		positive(t, entry, "depth", "lives_per_second", "p50_ms", "p99_ms")
		if len(entry) != 4 {
			t.Errorf("an entry has %d members, want 4: %v", len(entry), entry)
		}
	}
}

func TestHeldShowsItsFigures(t *testing.T) {
	c := Poll{Held: 50, Rounds: 1}
	positive(t, object(t, c.Output, c.measureHeld), "held", "bytes_per_request", "resident_bytes")
}

func TestStormShowsItsFigures(t *testing.T) {
	c := Storm{Sessions: 40, Rounds: 1, Accept: 2000}
	positive(t, object(t, c.Output, c.measure), "sessions", "seconds", "slowest_ms", "dials_per_session")
}

func TestFlagsOutOfRangeAreRefused(t *testing.T) {
	for _, c := range []struct {
		flag  string
		check interface{ Validate() error }
	}{
		{"sites", &Lifecycle{Daemons: 1, Open: 1, Slots: 1, Seconds: 1, Rounds: 1}},
		{"slots", &Lifecycle{Sites: 1, Daemons: 1, Open: 1, Slots: 65, Seconds: 1, Rounds: 1}},
		{"seconds", &Lifecycle{Sites: 1, Daemons: 1, Open: 1, Slots: 1, Seconds: 1e6, Rounds: 1}},
		{"jobs", &Latency{Jobs: 1}},
		{"warmup", &Latency{Jobs: 10, Warmup: -1}},
		{"sessions", &Idle{Rounds: 1}},
		{"depth", &Poll{Depths: []int{0}, Sites: 1, Daemons: 1, Slots: 1, Seconds: 1, Rounds: 1}},
		{"held", &Poll{Sites: 1, Daemons: 1, Slots: 1, Seconds: 1, Rounds: 1, Held: -1}},
		{"rounds", &Storm{Sessions: 1}},
		{"callers", &Store{Callers: 1, Calls: 10, Jobs: 100, Seconds: 1, Rounds: 1}},
		{"jobs", &Store{Callers: 2, Calls: 10, Jobs: 10, Seconds: 1, Rounds: 1}},
	} {
		err := c.check.Validate()
		if app.CodeOf(err) != app.ExitUsage || !strings.Contains(err.Error(), "--"+c.flag) {
			t.Errorf("%T: %v, want usage of --%s", c.check, err, c.flag)
		}
	}
}
