package serve

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"pushrelay/cmd/pushrelay/internal/app"
	"pushrelay/wire"
	"pushrelay/wire/seal"
)

func TestControlPlaneSettings(t *testing.T) {
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	two := filepath.Join(dir, "two")
	if err := os.WriteFile(two, []byte("a\nb\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	k, err := seal.Generate(nil)
	if err != nil {
		t.Fatal(err)
	}
	key := k.Public().Identity
	const url = "https://control.example.org/grants"
	for name, c := range map[string]struct {
		set  ControlPlane
		want string // in the refusal; "" is good
	}{
		"nothing":                    {ControlPlane{}, ""},
		"all":                        {ControlPlane{VerificationURL: "https://x.example.org/d", Key: key, GrantURL: url, GrantToken: token}, ""},
		"a key alone":                {ControlPlane{Key: key}, ""},
		"grants without a key":       {ControlPlane{GrantURL: url}, "--control-plane-key"},
		"a key that isn't one":       {ControlPlane{GrantURL: url, Key: key[:42]}, "--control-plane-key"},
		"a token alone":              {ControlPlane{GrantToken: token}, "--grant-token-file"},
		"a token that is a poem":     {ControlPlane{GrantURL: url, Key: key, GrantToken: two}, "--grant-token-file"},
		"no token file":              {ControlPlane{GrantURL: url, Key: key, GrantToken: filepath.Join(dir, "none")}, "--grant-token-file"},
		"a URL with credentials":     {ControlPlane{GrantURL: "https://u:p@control.example.org", Key: key}, "--grant-url"},
		"a URL of another scheme":    {ControlPlane{GrantURL: "ftp://control.example.org", Key: key}, "--grant-url"},
		"a page of another scheme":   {ControlPlane{VerificationURL: "javascript:alert(1)"}, "--verification-url"},
		"a page without a host":      {ControlPlane{VerificationURL: "/devices"}, "--verification-url"},
		"codes nobody can look up":   {ControlPlane{VerificationURL: "https://x.example.org/d"}, "--admin-listen"},
		"a timeout too short":        {ControlPlane{GrantTimeout: 99 * time.Millisecond}, "--grant-timeout"},
		"a timeout too long":         {ControlPlane{GrantTimeout: 11 * time.Second}, "--grant-timeout"},
		"a timeout beyond the lease": {ControlPlane{GrantURL: url, Key: key, GrantTimeout: 10 * time.Second}, "--lease"},
	} {
		t.Run(name, func(t *testing.T) {
			set, err := Defaults()
			if err != nil {
				t.Fatal(err)
			}
			if c.set.GrantTimeout == 0 {
				c.set.GrantTimeout = set.GrantTimeout
			}
			set.ControlPlane = c.set
			switch c.want {
			case "--lease":
				set.Lease = 20 * time.Second
			case "--admin-listen":
				set.AdminListen = adminOff
			}
			err = set.Validated()
			if err == nil {
				_, err = set.ControlPlane.open(nil)
			}
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (app.CodeOf(err) != app.ExitUsage || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%v doesn't name %s", err, c.want)
			case err != nil && strings.Contains(err.Error(), "u:p"):
				t.Errorf("%v quotes credentials", err)
			}
		})
	}
}

// call sends JSON and answers status and body.
func call(t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(raw)
}

func member(t *testing.T, body, name string) string {
	t.Helper()
	var all map[string]any
	if err := json.Unmarshal([]byte(body), &all); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	s, _ := all[name].(string)
	return s
}

// TestADeviceIsPaired goes the whole way over real sockets: a code, its look-up, the approval, the answer.
func TestADeviceIsPaired(t *testing.T) {
	k, err := seal.Generate(nil)
	if err != nil {
		t.Fatal(err)
	}
	plane, err := seal.Generate(nil)
	if err != nil {
		t.Fatal(err)
	}
	r, _ := started(t, func(s *Settings) {
		s.VerificationURL, s.Key = "https://control.example.org/devices", plane.Public().Identity
	})
	defer r.Close()
	id, err := wire.Encode(k.Public())
	if err != nil {
		t.Fatal(err)
	}
	pair := r.URL() + "/byollm/pair"
	code, body := call(t, "POST", pair, `{"protocolVersion":"2","action":"start","daemon":{"version":"1","label":"<b>laptop</b>","platform":"linux"},"device":`+
		string(id)+`,"capabilities":[{"kind":"llm.generate","service":"s","backendId":"b","backendClass":"http","model":"m","offerScope":"team"}]}`)
	if code != http.StatusOK {
		t.Fatal(code, body)
	}
	user, secret := member(t, body, "userCode"), member(t, body, "deviceCode")
	poll := `{"protocolVersion":"2","action":"poll","deviceCode":"` + secret + `"}`
	if code, body := call(t, "POST", pair, poll); code != http.StatusOK || body != `{"status":"pending"}` {
		t.Fatal(code, body)
	}
	code, found := call(t, "GET", r.AdminURL()+"/pairings/"+strings.ToLower(user), "")
	if code != http.StatusOK || member(t, found, "keyId") != k.KeyID() || member(t, found, "label") != "<b>laptop</b>" || strings.Contains(found, secret) {
		t.Fatal(code, found)
	}
	for _, url := range []string{r.AdminURL() + "/pairings/BBBB-BBBB", r.AdminURL() + "/pairings/" + secret, r.URL() + "/pairings/" + user} {
		if code, body := call(t, "GET", url, ""); code != http.StatusNotFound {
			t.Error(url, code, body)
		}
	}
	var entry struct {
		Key json.RawMessage `json:"key"`
	}
	if err := json.Unmarshal([]byte(found), &entry); err != nil {
		t.Fatal(err)
	}
	approve(t, r, `{"owner":"owner-a","runnerId":"runner-9","device":`+string(entry.Key)+`}`)
	code, body = call(t, "POST", pair, poll)
	if code != http.StatusOK || member(t, body, "status") != "approved" || member(t, body, "runnerId") != "runner-9" ||
		member(t, body, "owner") != "owner-a" || member(t, body, "controlPlanePublic") != plane.Public().Identity {
		t.Fatal(code, body)
	}
	if code, body := call(t, "POST", pair, poll); code != http.StatusOK || body != `{"status":"expired"}` {
		t.Error(code, body)
	}
	direct := `{"protocolVersion":"2","owner":"owner-a","device":` + string(id) + `}`
	if code, body := call(t, "POST", pair, direct); code != http.StatusOK || member(t, body, "runnerId") != "runner-9" {
		t.Error(code, body)
	}
	if code, body := call(t, "POST", pair, strings.Replace(direct, "owner-a", "owner-b", 1)); code != http.StatusNotFound {
		t.Error(code, body)
	}
}

// approve adds a device to the projection in force.
func approve(t *testing.T, r *Relay, device string) {
	t.Helper()
	raw, err := os.ReadFile(r.set.Projection)
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]json.RawMessage
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	doc["devices"] = json.RawMessage("[" + device + "]")
	next, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	if code, body := call(t, "PUT", r.AdminURL()+"/projection", string(next)); code != http.StatusOK {
		t.Fatal(code, body)
	}
}

func TestNoPairingByCodeWithoutItsPage(t *testing.T) {
	r, _ := started(t, nil)
	defer r.Close()
	code, body := call(t, "POST", r.URL()+"/byollm/pair", `{"protocolVersion":"2","action":"poll","deviceCode":"xxxxxxxxxxxxxxxxxxxx"}`)
	if code != http.StatusNotImplemented || member(t, body, "error") != "bad-request" {
		t.Error(code, body)
	}
}

// A key without an endpoint would let devices run nothing: that is said.
func TestAKeyWithoutGrantsIsWarnedOf(t *testing.T) {
	k, err := seal.Generate(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{"", "http://127.0.0.1:1/grants"} {
		var log bytes.Buffer
		r := &Relay{set: Settings{ControlPlane: ControlPlane{Key: "x", GrantURL: url}}, log: zerolog.New(&log)}
		key, err := wire.ParseControlPlaneKey(k.Public().Identity)
		if err != nil {
			t.Fatal(err)
		}
		r.newPairing(key)
		if warned := strings.Contains(log.String(), "grants-missing"); warned != (url == "") {
			t.Errorf("%q: %s", url, &log)
		}
	}
}

// The look-up is this machine's, whatever is allowed to read the rest.
func TestCodesAreLookedUpFromThisMachineOnly(t *testing.T) {
	a, _ := testAdmin(t)
	a.remote = true
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://192.0.2.7:9090/pairings/BBBB-BBBB", nil)
	r.RemoteAddr = "192.0.2.9:4711"
	w := httptest.NewRecorder()
	a.handler().ServeHTTP(w, r)
	if w.Code != http.StatusForbidden {
		t.Error(w.Code)
	}
}
