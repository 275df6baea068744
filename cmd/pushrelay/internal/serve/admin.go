package serve

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"pushrelay/session/poll/pairing"
	"pushrelay/web"
	"pushrelay/wire"
)

const (
	adminOff           = "off"
	maxProjectionBytes = 8 << 20
	readyTimeout       = 2 * time.Second
)

// admin is the operator's listener. It has no login: what protects it is that only this machine can reach it, that
// browsers can't be tricked into it (Host and Origin), and that nothing here shows keys or ciphertext.
type admin struct {
	ready    func(context.Context) unreadiness
	put      func(raw []byte) (Change, error)
	pairing  func(userCode string) (pairing.Pending, bool)
	registry *prometheus.Registry
	hosts    []string     // names besides localhost, for reads only
	remote   bool         // reads may come by any address
	page     http.Handler // of web.Prefix, with a login and checks of its own; nil: there is none
}

// unreadiness is why a relay isn't ready; the zero value says that it is.
type unreadiness struct {
	Why   []string // words: draining, store
	Store string   // what is wrong with the store, for people
}

// handler answers the routes behind the checks that all of them share.
func (a *admin) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{"status": "ok"})
	})
	mux.HandleFunc("GET /readyz", a.serveReady)
	mux.Handle("GET /metrics", promhttp.HandlerFor(a.registry, promhttp.HandlerOpts{Registry: a.registry}))
	mux.HandleFunc("PUT /projection", a.servePut)
	mux.HandleFunc("GET /pairings/{code}", a.servePairing)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.page != nil && web.Serves(r.URL.Path) {
			a.page.ServeHTTP(w, r)
			return
		}
		if message := a.refuse(r); message != "" {
			refuse(w, http.StatusForbidden, "forbidden", message)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// refuse answers why a request isn't an operator's, or "". A page in a browser can send requests here under a name of its
// own that resolves to this machine: the Host then is that name, and anything that writes has an Origin.
func (a *admin) refuse(r *http.Request) string {
	if len(r.Header.Values("Origin")) > 0 {
		return "requests of web pages are refused: send no Origin"
	}
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if loopbackHost(host) {
		return ""
	}
	if read := r.Method == http.MethodGet || r.Method == http.MethodHead; read && readable(host, a.hosts, a.remote) {
		return ""
	}
	return "this Host isn't allowed: use localhost or 127.0.0.1, or for reads a name given with --admin-host"
}

// readable reports whether reads may name the host: a listed name, or an address when other machines may ask.
func readable(host string, names []string, remote bool) bool {
	if oneOf(host, names...) {
		return true
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return remote && err == nil // an address can't be rebound
}

func (a *admin) serveReady(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
	defer cancel()
	if u := a.ready(ctx); len(u.Why) > 0 {
		answer := map[string]any{"status": "unready", "why": u.Why}
		if u.Store != "" {
			answer["store"] = u.Store
		}
		writeJSON(w, http.StatusServiceUnavailable, answer)
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"status": "ready"})
}

// local reports whether a request came from this machine.
func local(r *http.Request) bool {
	remote, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && remote.Addr().Unmap().IsLoopback()
}

// pending is what a user code stands for, as the control plane reads it.
type pending struct {
	UserCode        string              `json:"userCode"`
	KeyID           string              `json:"keyId"`
	Key             wire.PublicIdentity `json:"key"`
	Label           string              `json:"label"`
	Platform        string              `json:"platform"`
	Version         string              `json:"version"`
	ProtocolVersion wire.Dialect        `json:"protocolVersion"`
	Capabilities    json.RawMessage     `json:"capabilities"`
	ExpiresAt       int64               `json:"expiresAt"`
}

// servePairing tells whose key a code stands for. It approves nothing: that is the projection's.
func (a *admin) servePairing(w http.ResponseWriter, r *http.Request) {
	if !local(r) {
		refuse(w, http.StatusForbidden, "forbidden", "codes are looked up from this machine only: call the loopback address")
		return
	}
	p, ok := a.pairing(r.PathValue("code"))
	if !ok {
		refuse(w, http.StatusNotFound, string(wire.CodeNotFound), "there is no such code, or it is over; the device shows a new one when it pairs again")
		return
	}
	writeJSON(w, http.StatusOK, pending{
		UserCode: p.UserCode, KeyID: p.KeyID, Key: p.Key, Label: p.Label, Platform: p.Platform, Version: p.Version,
		ProtocolVersion: p.Dialect, Capabilities: wire.AppendCapabilities(nil, p.Dialect, p.Capabilities), ExpiresAt: p.ExpiresAt.UnixMilli(),
	})
}

func (a *admin) servePut(w http.ResponseWriter, r *http.Request) {
	if !local(r) {
		refuse(w, http.StatusForbidden, "forbidden", "a projection is taken from this machine only: call the loopback address")
		return
	}
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" || params["charset"] != "" && !strings.EqualFold(params["charset"], "utf-8") {
		refuse(w, http.StatusUnsupportedMediaType, "bad-request", "send the projection with Content-Type: application/json")
		return
	}
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxProjectionBytes))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		refuse(w, http.StatusRequestEntityTooLarge, "bad-request", "a projection has at most 8 MiB")
		return
	case err != nil:
		refuse(w, http.StatusBadRequest, "bad-request", "the projection didn't arrive whole; send it again")
		return
	}
	change, err := a.put(raw)
	switch {
	case errors.Is(err, errOldVersion):
		refuse(w, http.StatusConflict, "conflict", err.Error())
	case err != nil:
		refuse(w, http.StatusBadRequest, "bad-request", err.Error())
	default:
		writeJSON(w, http.StatusOK, change)
	}
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	writeJSON(w, status, map[string]any{"error": code, "message": message})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the caller went away: nobody is left to tell
}
