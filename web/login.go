package web

import (
	"encoding/json"
	"io"
	"math"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxLoginBytes bounds the body of a login.
const maxLoginBytes = 2 << 10

// serveLogin exchanges the token for a cookie.
func (p *Page) serveLogin(w http.ResponseWriter, r *http.Request) {
	token, ok := readToken(w, r)
	if !ok {
		answer(w, http.StatusBadRequest, "bad-request", `send {"token": "..."} as application/json`)
		return
	}
	right, wait := p.auth.tries.try(r.RemoteAddr, string(p.auth.browser(r)), func() bool { return p.auth.good(token) })
	switch {
	case wait > 0:
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
		answer(w, http.StatusTooManyRequests, "rate-limited", "too many wrong tokens; wait "+wait.Round(time.Second).String())
	case !right:
		p.cfg.Log.Warn().Str("event", "debug-login-refused").Str("remote", r.RemoteAddr).Msg("a wrong token for the debug page")
		answer(w, http.StatusUnauthorized, "unauthorized", "this isn't the token")
	default:
		p.cfg.Log.Info().Str("event", "debug-login").Str("remote", r.RemoteAddr).Msg("somebody logged in to the debug page")
		http.SetCookie(w, p.auth.issue(overTLS(r)))
		http.SetCookie(w, p.auth.remember(r, overTLS(r)))
		w.WriteHeader(http.StatusNoContent)
	}
}

func (p *Page) serveLogout(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, p.auth.blank(overTLS(r)))
	w.WriteHeader(http.StatusNoContent)
}

// serveSession tells the page that its cookie is good; the router has judged it.
func (p *Page) serveSession(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusNoContent)
}

// overTLS reports whether the browser came by https, here or at a proxy. The origin is its own word, and was compared.
func overTLS(r *http.Request) bool {
	return r.TLS != nil || strings.HasPrefix(r.Header.Get("Origin"), "https://")
}

func readToken(w http.ResponseWriter, r *http.Request) (string, bool) {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		return "", false
	}
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxLoginBytes))
	if err != nil {
		return "", false
	}
	var body struct {
		Token string `json:"token"`
	}
	if json.Unmarshal(raw, &body) != nil {
		return "", false
	}
	return body.Token, true
}
