package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"pushrelay/cmd/pushrelay/internal/app"
)

// TestMain is also what the children of these tests run.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "bench" {
		var program struct {
			Bench Command `cmd:""`
		}
		os.Exit(app.Main(context.Background(), &program, app.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}, os.Args[1:]))
	}
	goleak.VerifyTestMain(m)
}

// object prints a figure as --json does and reads it back.
func object(t *testing.T, o Output, measure func(ctx context.Context) (figure, error)) map[string]any {
	t.Helper()
	return printed[map[string]any](t, o, measure)
}

// list is object for a figure that is a list.
func list(t *testing.T, o Output, measure func(ctx context.Context) (figure, error)) []map[string]any {
	t.Helper()
	return printed[[]map[string]any](t, o, measure)
}

func printed[T any](t *testing.T, o Output, measure func(ctx context.Context) (figure, error)) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	o.JSON = true
	var out bytes.Buffer
	if err := o.run(ctx, &out, measure); err != nil {
		t.Fatal(err)
	}
	var found T
	if err := json.Unmarshal(out.Bytes(), &found); err != nil {
		t.Fatalf("not JSON: %v in %s", err, out.String())
	}
	return found
}

// positive fails unless all these members are numbers above 0.
func positive(t *testing.T, found map[string]any, names ...string) {
	t.Helper()
	for _, name := range names {
		if v, ok := found[name].(float64); !ok || v <= 0 {
			t.Errorf("%s is %v, want a number above 0", name, found[name])
		}
	}
}

func TestEchoesAreCounted(t *testing.T) {
	c, err := echoCost(t.Context(), "", 4, 200*time.Millisecond)
	if err != nil || c.perSecond() <= 0 || c.server <= 0 || c.clients <= 0 {
		t.Fatalf("cost %+v, error %v", c, err)
	}
}

func TestBareMemoryIsMeasured(t *testing.T) {
	got, err := bareIdle(t.Context(), "", 100)
	if err != nil {
		t.Fatal(err)
	}
	if got.before <= 0 || got.after <= got.before {
		t.Fatalf("resident %d bytes before, %d after 100 connections", got.before, got.after)
	}
}

func TestPercentileIsNearestRank(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(100 - i)
	}
	for _, c := range []struct{ p, want float64 }{{50, 50}, {99, 99}, {100, 100}, {0, 1}} {
		if got := percentile(hundred, c.p); got != c.want {
			t.Errorf("percentile %v of 1 to 100 is %v, want %v", c.p, got, c.want)
		}
	}
	if got := percentile([]float64{7}, 99); got != 7 {
		t.Errorf("of one value: %v", got)
	}
	if got := percentile[float64](nil, 50); got != 0 {
		t.Errorf("of none: %v", got)
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{4, 1}, 2.5}, {[]float64{9, 1, 5}, 5}} {
		if got := median(c.values); got != c.want {
			t.Errorf("median of %v is %v, want %v", c.values, got, c.want)
		}
	}
}
