package main

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"pushrelay/cmd/pushrelay/internal/setup"
	"pushrelay/wire"
)

// plane is a control plane: it approves devices through the projection and signs grants.
type plane struct {
	url     string
	private ed25519.PrivateKey
	signed  atomic.Int64
	doc     map[string]json.RawMessage // the projection
}

func newPlane(t *testing.T) *plane {
	t.Helper()
	p := new(plane)
	for p.private == nil || !strings.HasPrefix(p.key(), "-") { // which a command line mustn't take for a flag
		_, private, err := ed25519.GenerateKey(nil)
		if err != nil {
			t.Fatal(err)
		}
		p.private = private
	}
	s := httptest.NewServer(http.HandlerFunc(p.grants))
	t.Cleanup(s.Close)
	p.url = s.URL + "/grants"
	return p
}

func (p *plane) key() string { return wire.EncodeBase64(p.private.Public().(ed25519.PublicKey)) }

// grants signs whatever a device claimed for the service that it names for the kind.
func (p *plane) grants(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(r.Body)
	runners, parsed := wire.ParseGrantRequest(raw)
	if err != nil || parsed != nil {
		http.Error(w, fmt.Sprint(err, parsed), http.StatusBadRequest)
		return
	}
	var answers []wire.GrantAnswer
	for _, r := range runners {
		for _, j := range r.Jobs {
			i := slices.IndexFunc(r.Capabilities, func(c wire.Capability) bool { return c.Kind == j.Stub.Kind })
			g := &wire.SignedGrant{
				GrantID: uuid.NewString(), JobID: j.Stub.ID, Site: j.Stub.Site, User: j.Stub.Owner, Owner: r.Owner, Purpose: wire.DefaultPurpose,
				Kind: j.Stub.Kind, Service: r.Capabilities[i].Service, IssuedAt: time.Now().UnixMilli(),
			}
			g.Signature = wire.EncodeBase64(ed25519.Sign(p.private, g.Statement()))
			answers = append(answers, wire.GrantAnswer{LeaseID: j.LeaseID, Grant: g})
		}
	}
	p.signed.Add(int64(len(answers)))
	_, _ = w.Write(wire.AppendGrantAnswers(nil, answers))
}

// approves begins with the relay's own projection, and lets owner-a's devices serve owner-b.
func (p *plane) approves(t *testing.T, r *relay) {
	t.Helper()
	if err := json.Unmarshal([]byte(readFile(t, setup.ProjectionFile(r.dir))), &p.doc); err != nil {
		t.Fatal(err)
	}
	p.doc["rosters"] = json.RawMessage(`[{"id":"team","owner":"owner-a","members":["owner-b"]}]`)
	p.put(t, r)
}

func (p *plane) put(t *testing.T, r *relay) {
	t.Helper()
	raw, err := json.Marshal(p.doc)
	if err != nil {
		t.Fatal(err)
	}
	ask(t, http.MethodPut, r.admin+"/projection", raw)
}

func ask(t *testing.T, method, url string, body []byte) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %d, %v: %s", method, url, res.StatusCode, err, raw)
	}
	return raw
}
