package grants

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"pushrelay/wire"
)

// HTTP is the Endpoint that docs/operation.md describes: one POST for each batch.
type HTTP struct {
	url    string
	token  string
	client *http.Client
}

// NewHTTP makes an endpoint at a URL of http or https. A token, when there is one, is sent as a bearer token. parallel is
// the most connections.
func NewHTTP(rawURL, token string, parallel int) (*HTTP, error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") || u.User != nil {
		return nil, errors.New("grants: the endpoint isn't an http or https URL without credentials")
	}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, MaxConnsPerHost: parallel, MaxIdleConnsPerHost: parallel, IdleConnTimeout: time.Minute,
		TLSHandshakeTimeout: 10 * time.Second, MaxResponseHeaderBytes: 16 << 10, ForceAttemptHTTP2: true, DisableCompression: true,
	}
	return &HTTP{url: rawURL, token: token, client: &http.Client{
		Transport: transport,
		// A redirect would carry the question, and the token, elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Ask posts the batch. Anything but a readable answer with status 200 within ctx is an error.
func (h *HTTP) Ask(ctx context.Context, runners []*wire.GrantRunner) ([]wire.GrantAnswer, error) {
	body := wire.AppendGrantRequest(nil, runners)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url, bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("grants: the request can't be made") // err would quote the URL
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	if h.token != "" {
		req.Header.Set("Authorization", "Bearer "+h.token)
	}
	res, err := h.client.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // without the URL, which may hold what isn't for logs
		}
		return nil, fmt.Errorf("grants: the endpoint can't be asked: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("grants: the endpoint answered with status %d; it must be 200", res.StatusCode)
	}
	raw, err := io.ReadAll(io.LimitReader(res.Body, wire.MaxGrantAnswerBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("grants: the endpoint's answer didn't arrive whole: %w", err)
	case len(raw) > wire.MaxGrantAnswerBytes:
		return nil, fmt.Errorf("grants: the endpoint's answer has over %d bytes", wire.MaxGrantAnswerBytes)
	}
	answers, err := wire.ParseGrantAnswers(raw)
	if err != nil {
		return nil, fmt.Errorf("grants: the endpoint's answer can't be used: %w", err)
	}
	return answers, nil
}

// Close closes idle connections.
func (h *HTTP) Close() { h.client.CloseIdleConnections() }
