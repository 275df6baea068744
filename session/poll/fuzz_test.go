package poll_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pushrelay/session"
	"pushrelay/session/poll"
	"pushrelay/wire"
)

// idleHub knows everybody by one key, and does nothing.
type idleHub struct{ key ed25519.PublicKey }

func (h idleHub) Caller(string, string) (session.Caller, bool) {
	return session.Caller{Keys: []ed25519.PublicKey{h.key}}, true
}
func (idleHub) Now() time.Time { return time.UnixMilli(fuzzedAt) }

func nothing() (session.Answer, error) { return session.Answer{Body: [][]byte{[]byte("{}")}}, nil }

func (idleHub) PollClaim(context.Context, session.Call, *wire.ClaimRequest, time.Duration) (session.Answer, error) {
	return nothing()
}

func (idleHub) PollFetch(context.Context, session.Call, *wire.FetchRequest, time.Duration) (session.Answer, error) {
	return nothing()
}

func (idleHub) PollResult(context.Context, session.Call, *wire.ResultRequest) (session.Answer, error) {
	return nothing()
}

func (idleHub) PollHeartbeat(context.Context, session.Call, *wire.HeartbeatRequest) (*wire.HeartbeatResponse, error) {
	return &wire.HeartbeatResponse{}, nil
}

func (idleHub) PollRelease(context.Context, session.Call, *wire.ReleaseRequest) (*wire.ReleaseResponse, error) {
	return &wire.ReleaseResponse{}, nil
}

func (idleHub) PollEnqueue(context.Context, session.Call, *wire.EnqueueRequest) (*wire.EnqueueResponse, error) {
	return &wire.EnqueueResponse{}, nil
}

func (idleHub) PollPayload(context.Context, session.Call, *wire.PayloadRequest) (*wire.StateResponse, error) {
	return &wire.StateResponse{}, nil
}

func (idleHub) PollCancel(context.Context, session.Call, *wire.CancelRequest) (*wire.CancelResponse, error) {
	return &wire.CancelResponse{}, nil
}

func (idleHub) PollPending(context.Context, session.Call, time.Duration) (session.Answer, error) {
	return nothing()
}

func (idleHub) PollResults(context.Context, session.Call) (session.Answer, error) { return nothing() }

const fuzzedAt = 1_790_000_000_000

// Whatever comes is answered with JSON: a 200, or a refusal whose shape public clients accept.
func FuzzRequests(f *testing.F) {
	public, private, err := ed25519.GenerateKey(nil)
	require.NoError(f, err)
	planes, err := poll.New(poll.Options{Hub: idleHub{public}, Budget: session.NewBudget(session.DefaultBudget)})
	require.NoError(f, err)
	for _, path := range []string{
		"/byollm/claim", "/byollm/fetch", "/byollm/heartbeat", "/byollm/result", "/byollm/release", "/byollm/pair", "/relay/site/enqueue",
		"/relay/site/payload", "/relay/site/cancel", "/relay/site/pending?siteId=s&protocolVersion=0", "/relay/site/results?protocolVersion=2", "/",
	} {
		for _, body := range []string{
			``, `{"protocolVersion":"0"}`, `{"protocolVersion":"2","runnerId":"s","capabilities":[],"max":1}`, `{"protocolVersion":"0","runnerId":"s","leases":[],"reason":"pause"}`,
			`{"protocolVersion":"0","siteId":"s","jobId":"j"}`, `[]`, `{"protocolVersion":"7"}`, `null`,
		} {
			f.Add(path, []byte(body), "s", true)
			f.Add(path, []byte(body), "\n", false)
		}
	}
	f.Fuzz(func(t *testing.T, path string, body []byte, caller string, signed bool) {
		method := http.MethodPost
		if strings.HasPrefix(path, "/relay/site/pending") || strings.HasPrefix(path, "/relay/site/results") {
			method = http.MethodGet
		}
		r, err := http.NewRequest(method, "http://relay"+path, bytes.NewReader(body))
		if err != nil {
			return
		}
		r.ContentLength = int64(len(body))
		name, endpoint := "X-Byollm-Runner", strings.TrimPrefix(r.URL.Path, "/byollm/")
		if after, ok := strings.CutPrefix(r.URL.Path, "/relay/site/"); ok {
			name, endpoint = "X-Byollm-Site", "site/"+after
		}
		r.Header.Set(name, caller)
		r.Header.Set("X-Byollm-Issued-At", "1790000000000")
		r.Header.Set("X-Byollm-Signature", "AAAA")
		if signed {
			r.Header.Set("X-Byollm-Signature", wire.EncodeBase64(ed25519.Sign(private, wire.CanonicalRequest(endpoint, caller, fuzzedAt, body))))
		}
		w := httptest.NewRecorder()
		planes.ServeHTTP(w, r)
		assert.Equal(t, "application/json", w.Header().Get("Content-Type"))
		if w.Code == http.StatusOK {
			assert.True(t, signed)
			return
		}
		for _, d := range []wire.Dialect{wire.Dialect0, wire.Dialect2} {
			e, err := wire.ParseWireError(d, w.Body.Bytes())
			require.NoError(t, err, w.Body.String())
			if w.Code != http.StatusMethodNotAllowed && w.Code != http.StatusNotImplemented {
				assert.Equal(t, e.HTTPStatus(), w.Code)
			}
		}
	})
}
