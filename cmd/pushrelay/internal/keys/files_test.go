package keys

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pushrelay/cmd/pushrelay/internal/app"
	"pushrelay/wire"
)

func pemOf(t *testing.T, kind string, key any) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func TestControlPlaneKey(t *testing.T) {
	public, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := func(name, contents string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(contents), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	text := wire.EncodeBase64(public)
	for name, value := range map[string]string{
		"the key": text, "a file": file("text", text), "a file with a line": file("line", "\n"+text+"\r\n"),
		"PEM": file("pem", pemOf(t, "PUBLIC KEY", public)), "PEM and blank lines": file("blank", pemOf(t, "PUBLIC KEY", public)+"\n\n"),
	} {
		got, err := ControlPlane(value)
		if err != nil || !got.Equal(public) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	for name, value := range map[string]string{
		"nothing": "", "no file": filepath.Join(dir, "none"), "a folder": dir, "short": file("short", text[:40]), "two": file("two", text+"\n"+text),
		"another kind": file("ecdsa", pemOf(t, "PUBLIC KEY", &other.PublicKey)), "two PEM": file("twopem", strings.Repeat(pemOf(t, "PUBLIC KEY", public), 2)),
		"long": file("long", text+strings.Repeat("\n", 5000)),
	} {
		if _, err := ControlPlane(value); app.CodeOf(err) != app.ExitUsage || !strings.Contains(err.Error(), "--control-plane-key") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSecretsOfOneLine(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		contents string
		mode     os.FileMode
		want     string // of the error
	}{
		"good": {"secret\n", 0o600, ""}, "read-only": {"secret", 0o400, ""},
		"open to others": {"secret", 0o644, "chmod 600"}, "open to a group": {"secret", 0o640, "chmod 600"},
		"empty": {"\n", 0o600, "one line, the word"}, "two lines": {"a\nb\n", 0o600, "one line, the word"},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(c.contents), c.mode); err != nil {
			t.Fatal(err)
		}
		got, err := Line("word-file", path, "the word")
		switch {
		case c.want == "" && (err != nil || got != "secret"):
			t.Errorf("%s: %q, %v", name, got, err)
		case c.want != "" && (app.CodeOf(err) != app.ExitUsage || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "--word-file")):
			t.Errorf("%s: %v", name, err)
		case err != nil && strings.Contains(err.Error(), c.contents):
			t.Errorf("%s: the error shows the file", name)
		}
	}
}
