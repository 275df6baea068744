package web

import (
	"encoding/json"
	"net"
	"net/http"
	"strings"
)

// policy lets the page load its own files and talk to its own host, and nothing else: no inline script or style, no
// frame around it, no text that becomes markup.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// protect sets the headers that every answer has.
func protect(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// refuse answers why a request may not be served, or "".
func (p *Page) refuse(r *http.Request) string {
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if !p.cfg.Host(host) {
		return "this Host isn't allowed: use localhost or 127.0.0.1, or a name given with --admin-host"
	}
	origins := r.Header.Values("Origin")
	switch {
	case len(origins) > 1 || len(origins) == 1 && !sameOrigin(origins[0], r.Host):
		return "requests of other pages are refused"
	case len(origins) == 0 && (r.Method != http.MethodGet && r.Method != http.MethodHead || isUpgrade(r)):
		return "this request must come from the page itself"
	case crossSite(r):
		return "requests of other sites are refused"
	}
	return ""
}

// sameOrigin reports whether an Origin is the host that the request names, port included: another port of this machine is
// another program, whose pages send cookies here. The scheme is what the browser saw, which may be a proxy's.
func sameOrigin(origin, host string) bool {
	scheme, rest, ok := strings.Cut(origin, "://")
	return ok && (scheme == "http" || scheme == "https") && strings.EqualFold(rest, host)
}

// crossSite uses what newer browsers say besides. A plain visit may come from anywhere: it shows nothing without a cookie.
func crossSite(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
		return false
	}
	return r.Header.Get("Sec-Fetch-Mode") != "navigate" || r.Method != http.MethodGet
}

func isUpgrade(r *http.Request) bool { return r.Header.Get("Upgrade") != "" }

// answer writes a short answer for a program; an empty code is none of the errors.
func answer(w http.ResponseWriter, status int, code, message string) {
	body := map[string]any{"message": message}
	if code != "" {
		body["error"] = code
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the caller went away: nobody is left to tell
}
