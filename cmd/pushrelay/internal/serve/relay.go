package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"pushrelay/cmd/pushrelay/internal/app"
	"pushrelay/hub"
	"pushrelay/hub/grants"
	"pushrelay/hub/projection"
	"pushrelay/session"
	"pushrelay/session/poll"
	"pushrelay/session/poll/pairing"
	"pushrelay/store"
	"pushrelay/web"
	"pushrelay/wire"
)

// Relay is a running relay. Start makes one; Drain or Close ends it.
type Relay struct {
	// Immutable after Start.
	set         Settings
	log         zerolog.Logger
	store       store.RoutingStore
	outages     *outages // nil for a store that keeps nothing
	projections *projections
	reload      *reloader
	hub         *hub.Hub
	server      *session.Server
	polls       *poll.Planes
	pairing     *pairing.Pairing
	grants      *grants.HTTP // nil: nobody is asked
	metrics     *metrics
	page        *web.Page // nil: nobody asked for it
	public      listener
	admin       listener // without an address when it is off

	draining atomic.Bool
	failed   chan error // a listener that broke
	stop     context.CancelFunc
	loops    sync.WaitGroup
}

// listener is one address with the server behind it.
type listener struct {
	net  net.Listener
	http *http.Server
}

// Start starts a relay; its addresses are bound and its sessions served when it returns. End it with Drain or Close.
func Start(set Settings, log zerolog.Logger) (*Relay, error) {
	raw, err := readProjection(set.Projection)
	if err != nil {
		return nil, app.Usagef("%w; --projection names the file, and `pushrelay init` makes an example", err)
	}
	first, err := projection.Parse(raw)
	if err != nil {
		return nil, app.Usagef("%s: %w", set.Projection, err)
	}
	r := &Relay{set: set, log: log, metrics: newMetrics(), failed: make(chan error, 2)}
	if err := r.openStore(); err != nil {
		return nil, err
	}
	if err := r.listen(); err != nil {
		return nil, errors.Join(err, r.store.Close())
	}
	if err := r.assemble(raw, first); err != nil {
		return nil, errors.Join(err, r.unlisten(), r.store.Close())
	}
	r.start()
	return r, nil
}

func (r *Relay) listen() (err error) {
	if r.public.net, err = bind("listen", r.set.Listen); err != nil || r.set.AdminListen == adminOff {
		return err
	}
	if r.admin.net, err = bind("admin-listen", r.set.AdminListen); err != nil {
		return errors.Join(err, r.public.net.Close())
	}
	return nil
}

func bind(flag, address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, app.Usagef("--%s %s is in use by another process; stop that one, or choose another port, or 0 for any", flag, address)
	}
	if err != nil {
		return nil, app.Usagef("--%s %s can't be bound: %w; choose an address of this machine and a port from 0 to 65535", flag, address, err)
	}
	return l, nil
}

func (r *Relay) unlisten() error {
	err := r.public.net.Close()
	if r.admin.net != nil {
		err = errors.Join(err, r.admin.net.Close())
	}
	return err
}

// assemble builds the parts in the order in which they need each other.
func (r *Relay) assemble(raw []byte, first *projection.Projection) (err error) {
	holder := projection.NewHolder(first)
	budget := session.NewBudget(int64(r.set.Budget))
	version := app.BuildInfo().Version
	settings := r.set.hubSettings()
	plane, err := r.set.ControlPlane.open(r.metrics.granted)
	if err != nil {
		return err
	}
	r.grants = plane.endpoint
	r.hub, err = hub.New(hub.Config{
		Store: r.store, Projection: holder, Settings: settings, Log: r.log, Observer: hubMetrics{r.metrics}, RelayVersion: version, Budget: budget,
		Grants: plane.grants,
	})
	if err != nil {
		return app.Usagef("%w", err)
	}
	r.server, err = session.NewServer(session.ServerConfig{
		Opener: r.hub, Directory: r.hub, PublicURLs: r.publicURLs(), Origins: r.set.Origin, Version: version, Log: r.log,
		Observer: r.metrics, Budget: budget, Limits: r.set.limits(),
		PingMin: settings.PingEvery * 4 / 5, PingMax: settings.PingEvery, IdleAfter: settings.SilenceFor,
	})
	if err != nil {
		return app.Usagef("%w", err)
	}
	r.pairing = r.newPairing(plane.key)
	r.polls, err = poll.New(poll.Options{
		Hub: r.hub, Budget: budget, Pairing: r.pairing, Limits: r.set.limits(), Log: r.log, Observer: r.metrics,
		HoldClaim: r.set.HoldClaim, HoldFetch: r.set.HoldFetch, HoldPending: r.set.HoldPending, MaxHeld: r.set.MaxSessions,
	})
	if err != nil {
		return errors.Join(app.Usagef("%w", err), r.store.Close())
	}
	r.metrics.watch(r.store, budget, holder)
	r.metrics.registry.MustRegister(r.storeGauges()...)
	r.projections = &projections{replace: holder.Replace, log: r.log, told: r.metrics.projection, raw: raw}
	r.reload = newReloader(r.set.Projection, raw, func(raw []byte) error {
		_, err := r.projections.apply(raw, sourceFile)
		return err
	}, r.log)
	r.reload.unreadable = func() { r.metrics.projection(sourceFile, false) }
	r.public.http = httpServer(r.log, r.handler())
	if err := r.debugPage(); err != nil {
		return errors.Join(err, r.store.Close())
	}
	r.admin.http = httpServer(r.log, r.adminHandler())
	return nil
}

// handler is what the public address serves: sessions, which are hijacked out of it, and the planes of clients that poll,
// which also answer every path that nobody has.
func (r *Relay) handler() http.Handler {
	sessions := map[string]http.Handler{
		wire.DaemonPath: r.server.Handler(wire.RoleDaemon), wire.SitePath: r.server.Handler(wire.RoleSite),
	}
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if s := sessions[q.URL.EscapedPath()]; s != nil && q.Method == http.MethodGet {
			s.ServeHTTP(w, q)
			return
		}
		r.polls.ServeHTTP(w, q)
	})
}

func (r *Relay) adminHandler() http.Handler {
	a := &admin{
		ready:   r.unready,
		put:     func(raw []byte) (Change, error) { return r.projections.apply(raw, sourceAdmin) },
		pairing: r.pairing.Lookup, registry: r.metrics.registry, hosts: r.set.AdminHost, remote: r.set.AdminRemote,
	}
	if r.page != nil {
		a.page = r.page
	}
	return a.handler()
}

// httpServer has limits for everything before an upgrade; a hijacked connection leaves them behind.
func httpServer(log zerolog.Logger, h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, WriteTimeout: time.Minute,
		IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10, ErrorLog: quiet(log),
	}
}

// start runs everything that runs beside the sessions.
func (r *Relay) start() {
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	if err := r.reload.open(); err != nil {
		r.log.Warn().Err(err).Str("event", "projection-unwatched").Str("recheck", recheck.String()).
			Msg("changes of the projection's folder aren't told; the file is read now and then, and at SIGHUP")
	}
	r.loops.Go(func() {
		if err := r.hub.Run(ctx); err != nil {
			r.fail(fmt.Errorf("the hub ended: %w", err))
		}
	})
	r.loops.Go(func() { r.reload.run(ctx) })
	if r.page != nil {
		r.loops.Go(func() { r.page.Run(ctx) })
	}
	for _, l := range []listener{r.public, r.admin} {
		if l.net == nil {
			continue
		}
		r.loops.Go(func() {
			if err := l.http.Serve(l.net); !errors.Is(err, http.ErrServerClosed) {
				r.fail(fmt.Errorf("%s doesn't accept connections any more: %w", l.net.Addr(), err))
			}
		})
	}
}

func (r *Relay) fail(err error) {
	select {
	case r.failed <- err:
	default: // the first one is reason enough
	}
}

// unready answers why this relay shouldn't get new sessions, and what is wrong with the store; nothing when it should.
func (r *Relay) unready(ctx context.Context) unreadiness {
	var u unreadiness
	if r.draining.Load() {
		u.Why = append(u.Why, "draining")
	}
	if err := r.storeErr(ctx); err != nil {
		u.Why, u.Store = append(u.Why, "store"), err.Error()
	}
	return u
}

// URL answers where clients of this machine dial.
func (r *Relay) URL() string { return "http://" + reachable(r.public.net.Addr()) }

// AdminURL answers where the admin listener is, or "".
func (r *Relay) AdminURL() string {
	if r.admin.net == nil {
		return ""
	}
	return "http://" + reachable(r.admin.net.Addr())
}

// reachable turns a bound address into one that can be dialled: any address becomes the loopback one.
func reachable(a net.Addr) string {
	tcp, ok := a.(*net.TCPAddr)
	if !ok || !tcp.IP.IsUnspecified() {
		return a.String()
	}
	return net.JoinHostPort("127.0.0.1", fmt.Sprint(tcp.Port))
}

// publicURLs answers what clients may sign as the relay that they dialled.
func (r *Relay) publicURLs() []string {
	if len(r.set.PublicURL) > 0 {
		return r.set.PublicURL
	}
	_, port, _ := net.SplitHostPort(r.public.net.Addr().String())
	urls := []string{r.URL()}
	if tcp, ok := r.public.net.Addr().(*net.TCPAddr); ok && (tcp.IP.IsUnspecified() || tcp.IP.IsLoopback()) {
		urls = append(urls, "http://localhost:"+port)
	}
	return urls
}

// announce says once, to people on out and to programs in the log, where this relay can be reached.
func (r *Relay) announce(out io.Writer) error {
	admin := r.AdminURL()
	r.log.Info().Str("event", "listening").Str("url", r.URL()).Str("admin", admin).Strs("public", r.publicURLs()).
		Str("store", r.set.Store).Str("data", r.dataFolder()).Str("version", app.BuildInfo().Version).Msg("listening")
	if admin == "" {
		admin = adminOff
	}
	kept := "jobs are kept in memory and gone when this ends"
	if dir := r.dataFolder(); dir != "" {
		kept = "jobs are kept in " + dir
	}
	if _, err := fmt.Fprintf(out, "pushrelay: listening on %s, admin on %s; %s\n", r.URL(), admin, kept); err != nil || r.page == nil {
		return err
	}
	_, err := fmt.Fprintf(out, "pushrelay: debug page at %s\n", r.DebugURL())
	return err
}
