package device

import (
	"os"
	"path/filepath"
	"testing"

	"pushrelay/cmd/pushrelay/internal/app"
	"pushrelay/session/daemon"
	"pushrelay/wire"
)

func TestAPIKeyComesFromAFile(t *testing.T) {
	dir := t.TempDir()
	cases := []struct {
		name, contents, want string
		code                 int
	}{
		{"plain", "sk-1\n", "sk-1", app.ExitOK},
		{"empty", "\n", "", app.ExitUsage},
		{"two lines", "sk-1\nsk-2\n", "", app.ExitUsage},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(dir, c.name)
			if err := os.WriteFile(path, []byte(c.contents), 0o600); err != nil {
				t.Fatal(err)
			}
			r, err := (&Command{OpenAI: "http://127.0.0.1:1", Model: "m", OpenAIKey: path}).runner()
			if app.CodeOf(err) != c.code {
				t.Fatal(err)
			}
			if err == nil && r.(*daemon.OpenAIRunner).APIKey != c.want {
				t.Errorf("%+v", r)
			}
		})
	}
	if _, err := (&Command{OpenAI: "http://127.0.0.1:1", OpenAIKey: filepath.Join(dir, "none")}).runner(); app.CodeOf(err) != app.ExitUsage {
		t.Error(err)
	}
}

func TestCapabilitiesAreReadable(t *testing.T) {
	for _, c := range []Command{
		{Dialect: "2", Exec: "tr a b", Kind: []string{"llm.generate", "llm.chat"}},
		{Dialect: "0", OpenAI: "http://x", Model: "m", Kind: []string{"llm.chat"}, OfferScope: "self"},
	} {
		d := wire.Dialect(c.Dialect)
		got, err := wire.ParseCapabilities(d, wire.AppendCapabilities(nil, d, c.capabilities()))
		if err != nil || len(got) != len(c.Kind) {
			t.Errorf("%+v: %v, %v", c, got, err)
		}
	}
}
