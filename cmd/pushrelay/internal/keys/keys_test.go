package keys

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pushrelay/cmd/pushrelay/internal/app"
	"pushrelay/wire"
	"pushrelay/wire/seal"
)

func TestKeygenMakesAUsableFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.key")
	var out bytes.Buffer
	if err := (Keygen{Out: path, JSON: true}).Run(app.Streams{Out: &out}); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, %v", info.Mode(), err)
	}
	k, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	var printed struct {
		KeyID    string              `json:"keyId"`
		Identity wire.PublicIdentity `json:"identity"`
	}
	if err := json.Unmarshal(out.Bytes(), &printed); err != nil {
		t.Fatal(err)
	}
	if printed.KeyID != k.KeyID() || printed.Identity != k.Public() || printed.Identity.Verify() != nil {
		t.Errorf("printed %+v", printed)
	}
	raw, err := os.ReadFile(path)
	if err != nil || strings.Contains(out.String(), "rivate") || !bytes.Contains(raw, []byte("identityPrivate")) {
		t.Errorf("the private key is in the wrong place: %v", err)
	}
}

func TestKeygenNeverOverwrites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.key")
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := (Keygen{Out: path}).Run(app.Streams{Out: new(bytes.Buffer)})
	if app.CodeOf(err) != app.ExitUsage || !strings.Contains(err.Error(), "another file") {
		t.Errorf("%v", err)
	}
	if raw, _ := os.ReadFile(path); string(raw) != "precious" {
		t.Errorf("the file became %q", raw)
	}
}

func TestKeygenToStandardOutput(t *testing.T) {
	var out, errOut bytes.Buffer
	if err := (Keygen{}).Run(app.Streams{Out: &out, Err: &errOut}); err != nil {
		t.Fatal(err)
	}
	k, err := seal.ParseStoredKeys(out.Bytes())
	if err != nil || !strings.Contains(errOut.String(), k.KeyID()) {
		t.Errorf("%v; %s", err, errOut.String())
	}
}

func TestReadRefuses(t *testing.T) {
	dir := t.TempDir()
	k, err := seal.Generate(nil)
	if err != nil {
		t.Fatal(err)
	}
	good, err := k.MarshalStored()
	if err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		name, contents string
		mode           os.FileMode
		want           string
	}{
		{"open to others", string(good), 0o644, "chmod 600"},
		{"garbage", "hello", 0o600, "no usable key"},
		{"cut short", string(good[:len(good)/2]), 0o600, "no usable key"},
		{"empty", "", 0o600, "no usable key"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(dir, c.name)
			if err := os.WriteFile(path, []byte(c.contents), c.mode); err != nil {
				t.Fatal(err)
			}
			_, err := Read(path)
			if app.CodeOf(err) != app.ExitUsage || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v", err)
			}
			if c.contents != "" && strings.Contains(err.Error(), c.contents) {
				t.Error("the error shows the file")
			}
		})
	}
	if _, err := Read(dir); app.CodeOf(err) != app.ExitUsage || strings.Contains(err.Error(), "keygen") {
		t.Errorf("a folder, which a new key doesn't help: %v", err)
	}
	if _, err := Read(filepath.Join(dir, "none")); app.CodeOf(err) != app.ExitUsage || !strings.Contains(err.Error(), "keygen") {
		t.Errorf("%v", err)
	}
}
