package setup

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pushrelay/cmd/pushrelay/internal/app"
	"pushrelay/cmd/pushrelay/internal/keys"
	"pushrelay/hub/projection"
)

func TestInitMakesWhatWorksTogether(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "it's new")
	var out bytes.Buffer
	if err := (Command{Dir: dir}).Run(app.Streams{Out: &out}); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(ProjectionFile(dir))
	if err != nil {
		t.Fatal(err)
	}
	p, err := projection.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	for _, site := range Sites() {
		k, err := keys.Read(KeyFile(dir, site))
		if err != nil {
			t.Fatal(err)
		}
		if known, ok := p.SiteByID(site); !ok || known.KeyID != k.KeyID() {
			t.Errorf("%s isn't in the projection with its key", site)
		}
	}
	for _, d := range Devices() {
		k, err := keys.Read(KeyFile(dir, d.Runner))
		if err != nil {
			t.Fatal(err)
		}
		if known, ok := p.DeviceByRunner(d.Runner); !ok || known.KeyID != k.KeyID() || known.Owner != d.Owner {
			t.Errorf("%s isn't in the projection with its key and owner", d.Runner)
		}
		if got := len(p.Routes(d.Owner)); got != len(Sites()) {
			t.Errorf("%s has %d routes", d.Owner, got)
		}
	}
	if !strings.Contains(out.String(), `'\''`) {
		t.Errorf("a quote in the folder's name isn't quoted: %s", out.String())
	}
}

func TestInitLeavesOthersAlone(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "mine"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := (Command{Dir: dir}).Run(app.Streams{Out: new(bytes.Buffer)})
	if app.CodeOf(err) != app.ExitUsage || !strings.Contains(err.Error(), "isn't empty") {
		t.Errorf("%v", err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("%d entries", len(entries))
	}
}
