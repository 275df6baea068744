package web

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"pushrelay/hub"
)

// Prefix is the path under which everything of the page is.
const Prefix = "/debug"

// Config sets up a Page. Token, Hub and Host are required.
type Config struct {
	// Token is what an operator enters: MinToken to MaxToken printable ASCII characters without spaces.
	Token string
	// Hub is what is shown.
	Hub *hub.Hub
	// Version is the relay's.
	Version string
	// Host reports whether a request may name this host, given without its port.
	Host func(host string) bool
	Log  zerolog.Logger
	Now  func() time.Time // wall clock of logins; nil means time.Now
}

// Page serves the operator's page. Make one with New.
type Page struct {
	// Immutable.
	cfg    Config
	auth   *auth
	src    source
	rec    *recorder
	desk   *desk
	files  map[string]file
	routes map[string]route

	sendWithin time.Duration // changed by tests only
}

// route is what one path serves.
type route struct {
	method string
	open   bool // without a login
	serve  http.HandlerFunc
}

// New checks cfg and makes a page.
func New(cfg Config) (*Page, error) {
	if cfg.Host == nil || cfg.Hub == nil {
		return nil, errors.New("web: a list of hosts and a hub are required")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	a, err := newAuth(cfg.Token, cfg.Now)
	if err != nil {
		return nil, err
	}
	p := &Page{cfg: cfg, auth: a, src: hubSource{cfg.Hub, cfg.Hub.Inspector()}, rec: newRecorder(), sendWithin: sendWithin}
	p.desk = newDesk(p.src, p.rec)
	if p.files, err = readFiles(); err != nil {
		return nil, err
	}
	p.routes = map[string]route{
		"/login":   {http.MethodPost, true, p.serveLogin},
		"/logout":  {http.MethodPost, true, p.serveLogout},
		"/session": {http.MethodGet, false, p.serveSession},
		"/stream":  {http.MethodGet, false, p.serveStream},
	}
	return p, nil
}

// Run remembers what happens and serves streams until ctx ends; it returns when all of its goroutines have. Streams are
// refused while it doesn't run.
func (p *Page) Run(ctx context.Context) {
	changes := p.cfg.Hub.Changes()
	defer changes.Close()
	var loops sync.WaitGroup
	loops.Go(func() { p.rec.listen(ctx, changes) })
	loops.Go(func() { p.rec.sample(ctx, p.src) })
	p.desk.start(ctx)
	<-ctx.Done()
	p.desk.end()
	loops.Wait()
}

// Serves reports whether a path is the page's.
func Serves(path string) bool { return path == Prefix || strings.HasPrefix(path, Prefix+"/") }

// ServeHTTP answers everything under Prefix. Paths are compared as they are: there is no folder to leave.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	protect(w.Header())
	if message := p.refuse(r); message != "" {
		answer(w, http.StatusForbidden, "forbidden", message)
		return
	}
	path := strings.TrimPrefix(r.URL.Path, Prefix)
	if path == "" {
		http.Redirect(w, r, Prefix+"/", http.StatusPermanentRedirect)
		return
	}
	if f, ok := p.files[path]; ok {
		f.serve(w, r)
		return
	}
	to, ok := p.routes[path]
	switch {
	case !ok:
		answer(w, http.StatusNotFound, "not-found", "nothing is served here; the page is at "+Prefix+"/")
	case r.Method != to.method:
		w.Header().Set("Allow", to.method)
		answer(w, http.StatusMethodNotAllowed, "bad-request", "use "+to.method)
	case !to.open && !p.auth.valid(r):
		answer(w, http.StatusUnauthorized, "unauthorized", "log in at "+Prefix+"/")
	default:
		to.serve(w, r)
	}
}
