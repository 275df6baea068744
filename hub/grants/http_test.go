package grants

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pushrelay/wire"
)

// served runs f against a real server with the handler.
func served(t *testing.T, token string, handler http.HandlerFunc, f func(h *HTTP, url string)) {
	t.Helper()
	server := httptest.NewServer(handler)
	defer server.Close()
	h, err := NewHTTP(server.URL+"/grants", token, 4)
	require.NoError(t, err)
	defer h.Close()
	f(h, server.URL)
}

// reference is the endpoint that docs/operation.md describes, signing everything.
func reference(t *testing.T, p *plane) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		runners, err := wire.ParseGrantRequest(raw)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answers, err := p.Ask(r.Context(), runners)
		assert.NoError(t, err)
		_, _ = w.Write(wire.AppendGrantAnswers(nil, answers))
	}
}

func TestHTTPAsksAsDescribed(t *testing.T) {
	p := newPlane(t)
	handler := func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "POST /grants", r.Method+" "+r.URL.Path)
		assert.Equal(t, "application/json", r.Header.Get("Content-Type"))
		assert.Equal(t, "Bearer s3cret", r.Header.Get("Authorization"))
		reference(t, p)(w, r)
	}
	served(t, "s3cret", handler, func(h *HTTP, _ string) {
		a, err := New(Config{Endpoint: h, Key: p.key(), Now: time.Now, Timeout: 10 * time.Second})
		require.NoError(t, err)
		defer a.Close()
		for _, v := range answer(a, runnerOf("r", "l1", "l2", "l3")) {
			assert.NotNil(t, v.Grant)
		}
	})
}

func TestHTTPHostileAnswers(t *testing.T) {
	elsewhere := false
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		want    string
	}{
		"status 500": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "secret", http.StatusInternalServerError) }, "status 500"},
		"status 204": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }, "status 204"},
		"status 401": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "secret", http.StatusUnauthorized) }, "status 401"},
		"a redirect": {func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/elsewhere" {
				elsewhere = true
			}
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, "status 307"},
		"a page":      {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>secret</html>") }, "can't be used"},
		"nothing":     {func(http.ResponseWriter, *http.Request) {}, "can't be used"},
		"bytes":       {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte{0xff, 0, 0xfe}) }, "can't be used"},
		"half an end": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"answers":[`) }, "can't be used"},
		"a cut": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, `{"answers":[`)
		}, "didn't arrive whole"},
		"over a mebibyte": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"answers":[]`+strings.Repeat(" ", wire.MaxGrantAnswerBytes)+`}`)
		}, "over 1048576 bytes"},
		"an endless one": {func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, strings.Repeat(" ", 64<<10)); err != nil {
					return
				}
			}
		}, "over 1048576 bytes"},
		"endless headers": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Long", strings.Repeat("x", 64<<10))
			_, _ = io.WriteString(w, `{"answers":[]}`)
		}, "can't be asked"},
	} {
		t.Run(name, func(t *testing.T) {
			served(t, "s3cret", c.handler, func(h *HTTP, url string) {
				_, err := h.Ask(t.Context(), []*wire.GrantRunner{runnerOf("r", "l")})
				require.ErrorContains(t, err, c.want)
				for _, secret := range []string{"secret", "s3cret", url} {
					assert.NotContains(t, err.Error(), secret)
				}
			})
		})
	}
	assert.False(t, elsewhere, "redirects aren't followed")
}

// A server that accepts and says nothing, or says it drop by drop, costs one timeout.
func TestHTTPSlowAnswers(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"nothing": func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // or the server doesn't notice that the client is gone
			<-r.Context().Done()
		},
		"a drop": func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = io.WriteString(w, `{"answers":`)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			served(t, "", handler, func(h *HTTP, _ string) {
				c := &tally{}
				a, err := New(Config{Endpoint: h, Key: newPlane(t).key(), Now: time.Now, Timeout: 50 * time.Millisecond, Told: c.told})
				require.NoError(t, err)
				defer a.Close()
				assert.Equal(t, []Verdict{{}}, answer(a, runnerOf("r", "l")))
				assert.Equal(t, 1, c.of(Failed))
			})
		})
	}
}

func TestHTTPNobodyListens(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	h, err := NewHTTP(server.URL, "", 1)
	require.NoError(t, err)
	_, err = h.Ask(context.Background(), nil)
	require.ErrorContains(t, err, "can't be asked")
	assert.NotContains(t, err.Error(), server.URL)
}

func TestHTTPRefusesOtherURLs(t *testing.T) {
	for _, raw := range []string{"", "grants.example.org", "ftp://example.org", "https://", "https://user:pw@example.org/", "http://[::1"} {
		_, err := NewHTTP(raw, "", 1)
		require.Error(t, err, raw)
		assert.NotContains(t, err.Error(), "pw")
	}
}
