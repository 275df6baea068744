package session

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/coder/websocket"

	"pushrelay/wire"
)

const (
	connectFor   = 15 * time.Second // to the relay or its proxy, TLS included
	answerFor    = 15 * time.Second // from the request to 101
	handshakeFor = 30 * time.Second // from 101 to welcome; the relay's own limits are shorter
)

// endpointURL makes the URL to dial of one that names the relay: the path is the role's.
func endpointURL(raw, role string) (string, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return "", errors.New("session: the relay's URL must be like wss://relay.example.org")
	}
	switch u.Scheme {
	case "ws", "wss":
	case "http":
		u.Scheme = "ws"
	case "https":
		u.Scheme = "wss"
	default:
		return "", errors.New("session: the relay's URL must begin with ws, wss, http or https")
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", errors.New("session: the relay's URL must not carry credentials, a query or a fragment")
	}
	u.Path = wire.DaemonPath
	if role == wire.RoleSite {
		u.Path = wire.SitePath
	}
	u.RawPath = ""
	return u.String(), nil
}

// newTransport dials for upgrades only: HTTP/1.1, through HTTPS_PROXY and its like, and every time by a fresh look-up of
// the name, since no connection is kept.
func newTransport(caFile string) (http.RoundTripper, error) {
	t := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: connectFor, KeepAlive: -1}).DialContext,
		TLSHandshakeTimeout:   connectFor,
		ResponseHeaderTimeout: answerFor,
		DisableKeepAlives:     true,
		DisableCompression:    true,
		TLSClientConfig:       &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}},
	}
	if caFile == "" {
		return t, nil
	}
	pem, err := os.ReadFile(caFile)
	if err != nil {
		return nil, fmt.Errorf("session: the file with certificates can't be read: %w", err)
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("session: %s holds no certificate in PEM", caFile)
	}
	t.TLSClientConfig.RootCAs = roots
	return t, nil
}

// CheckCA reads a client's file of certificates, as New does, and says what is wrong with it. "" is fine.
func CheckCA(file string) error {
	_, err := newTransport(file)
	return err
}

// tap is a RoundTripper that puts a socket under the upgraded connection.
type tap struct {
	base http.RoundTripper
	sock *socket // set when the answer is 101
}

// RoundTrip implements http.RoundTripper.
func (t *tap) RoundTrip(req *http.Request) (*http.Response, error) {
	var raw net.Conn
	trace := &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { raw = i.Conn }}
	resp, err := t.base.RoundTrip(req.WithContext(httptrace.WithClientTrace(req.Context(), trace)))
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		return resp, err
	}
	rwc, ok := resp.Body.(io.ReadWriteCloser)
	if !ok {
		_ = resp.Body.Close()
		return nil, errors.New("session: the transport does not hand out upgraded connections")
	}
	t.sock = newSocket(rwc, raw)
	resp.Body = t.sock
	return resp, nil
}

// refusedUpgrade is an HTTP answer other than 101.
type refusedUpgrade struct {
	status     int
	retryAfter time.Duration
	text       string
}

func (e *refusedUpgrade) Error() string {
	return fmt.Sprintf("session: the upgrade was answered with %d %s", e.status, http.StatusText(e.status))
}

// dial upgrades one connection. ctx bounds the dialling only.
func (c *Client) dial(ctx context.Context, pinged func(context.Context, []byte) bool) (*websocket.Conn, *socket, error) {
	t := &tap{base: c.transport}
	ws, resp, err := websocket.Dial(ctx, c.url, &websocket.DialOptions{
		HTTPClient:      &http.Client{Transport: t, CheckRedirect: noRedirect},
		HTTPHeader:      http.Header{"User-Agent": {"pushrelay"}},
		Subprotocols:    []string{wire.Subprotocol},
		CompressionMode: websocket.CompressionDisabled,
		OnPingReceived:  pinged,
	})
	if err == nil && ws.Subprotocol() != wire.Subprotocol {
		err = &refusedUpgrade{status: http.StatusBadRequest, text: "the relay did not choose the subprotocol"}
	}
	if err == nil {
		return ws, t.sock, nil
	}
	if t.sock != nil {
		t.sock.cut()
	}
	if refused := (*refusedUpgrade)(nil); errors.As(err, &refused) || resp == nil || resp.StatusCode == http.StatusSwitchingProtocols {
		return nil, nil, err
	}
	return nil, nil, &refusedUpgrade{status: resp.StatusCode, retryAfter: retryAfter(resp)}
}

// noRedirect: what was signed for one URL isn't sent to another.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// retryAfter reads the header in seconds; a date or nonsense counts as absent, more than an hour as an hour.
func retryAfter(resp *http.Response) time.Duration {
	n, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if err != nil || n < 0 {
		return 0
	}
	return time.Duration(min(n, 3600)) * time.Second
}
