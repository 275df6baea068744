package serve

import (
	"errors"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"pushrelay/cmd/pushrelay/internal/app"
	"pushrelay/hub"
	"pushrelay/session"
	"pushrelay/store"
)

// Settings are all numbers and addresses of a relay. The defaults are the design's.
type Settings struct {
	Projection string `help:"JSON file with the control plane's decisions: sites, devices, consents." type:"path" required:"" placeholder:"FILE" group:"Relay"`
	Listen     string `help:"Address for sessions; port 0 picks one." default:"127.0.0.1:8080" group:"Relay"`
	// PublicURL is what clients sign as the relay they dialled.
	PublicURL []string `help:"URL under which clients dial this relay; repeat it for several. Default: the listen address." name:"public-url" placeholder:"URL" group:"Relay"`
	Origin    []string `help:"Origin that browsers may connect from; repeat it for several. Others that send one are refused." placeholder:"ORIGIN" group:"Relay"`
	Store     string   `help:"Where jobs in flight are kept. disk: in --data, before anything is acknowledged. memory: gone when the process ends." enum:"disk,memory" default:"disk" group:"Relay"`
	Data      string   `help:"Folder of the disk store, made when it is missing; one process each. Not used with --store memory. Default: pushrelay-data." type:"path" default:"pushrelay-data" placeholder:"DIR" group:"Relay"`

	ControlPlane `embed:""`

	TrustedProxy []string `help:"Network of proxies whose X-Forwarded-For is believed, as CIDR; repeat it for several." placeholder:"CIDR" group:"Relay"`

	AdminListen string   `help:"Address for health, metrics and PUT /projection, or off." default:"127.0.0.1:9090" group:"Operation"`
	AdminRemote bool     `help:"Allow an --admin-listen that isn't loopback. Health and metrics only: PUT stays loopback's." group:"Operation"`
	AdminHost   []string `help:"Host name by which health and metrics may be asked for besides addresses and localhost." placeholder:"NAME" group:"Operation"`

	Debug          bool   `help:"Serve the live debug page at /debug/ of the admin listener. It asks for a token." group:"Operation"`
	DebugTokenFile string `help:"File with the token of the debug page; else the environment variable PUSHRELAY_DEBUG_TOKEN holds it." type:"path" placeholder:"FILE" group:"Operation"`
	// DebugToken is the token itself, for programs that have a relay within them.
	DebugToken string `kong:"-"`

	Lease           time.Duration `help:"How long a device has a job without a heartbeat." default:"60s" group:"Limits"`
	PayloadWindow   time.Duration `help:"How long a site has to seal after a device accepted." default:"10s" group:"Limits"`
	MaxDeadline     time.Duration `help:"A job's deadline counts as at most this far ahead." default:"168h" group:"Limits"`
	ResultRetention time.Duration `help:"How long results wait for their site." default:"24h" group:"Limits"`
	JobsPerSite     int           `help:"Jobs that one site may have in flight." default:"100000" group:"Limits"`
	BytesPerSite    app.Bytes     `help:"Bytes of one site's sealed envelopes; over it nothing more of it is handed out." default:"256MiB" group:"Limits"`
	Unsealed        int           `help:"Jobs of one site and owner that may wait for their seal at once." default:"4" group:"Limits"`
	Budget          app.Bytes     `help:"Bytes of large frames being received, in all." default:"256MiB" group:"Limits"`

	MaxSessions     int     `help:"Sessions at once." default:"50000" group:"Limits"`
	MaxHandshakes   int     `help:"Connections at once that haven't authenticated." default:"1000" group:"Limits"`
	MaxPerAddress   int     `help:"Of these, from one address (IPv6: /64)." default:"64" group:"Limits"`
	AcceptPerSecond float64 `help:"New connections a second; others are told to come back." default:"500" group:"Limits"`

	HoldClaim   time.Duration `help:"How long a polled claim waits for jobs; 0s: not at all." default:"15s" group:"Polling"`
	HoldFetch   time.Duration `help:"How long a polled fetch waits for its payload, at most to the end of its window; 0s: not at all." default:"20s" group:"Polling"`
	HoldPending time.Duration `help:"How long a site's polled pending waits for something to seal or a new result; 0s: not at all." default:"5s" group:"Polling"`

	DrainWindow time.Duration `help:"A drain spreads its closes over this time." default:"10s" group:"Operation"`
	DrainLimit  time.Duration `help:"A drain ends after this time, whatever still runs." default:"30s" group:"Operation"`
}

// mostHold is the longest that a polled request may wait.
const mostHold = 25 * time.Second

// rule is one range, with what to do about a value outside.
type rule struct {
	flag  string
	ok    bool
	value any
	want  string
}

// Validated refuses settings that can't work, each with what to do.
func (s *Settings) Validated() error {
	within := func(d, least, most time.Duration) bool { return d >= least && d <= most }
	rules := []rule{
		{"lease", within(s.Lease, time.Second, time.Hour), s.Lease, "from 1s to 1h; a dead device's work moves on after it"},
		{"payload-window", within(s.PayloadWindow, 100*time.Millisecond, 10*time.Minute), s.PayloadWindow, "from 100ms to 10m"},
		{"max-deadline", within(s.MaxDeadline, time.Minute, 90*24*time.Hour), s.MaxDeadline, "from 1m to 2160h"},
		{"result-retention", within(s.ResultRetention, 5*time.Minute, 30*24*time.Hour), s.ResultRetention, "from 5m to 720h"},
		{"jobs-per-site", s.JobsPerSite >= 1 && s.JobsPerSite <= 10_000_000, s.JobsPerSite, "from 1 to 10000000"},
		{"bytes-per-site", s.BytesPerSite >= 8*app.MiB && s.BytesPerSite <= 1024*app.GiB, s.BytesPerSite, "from 8MiB (one envelope must fit) to 1024GiB"},
		{"unsealed", s.Unsealed >= 1 && s.Unsealed <= 1024, s.Unsealed, "from 1 to 1024"},
		{"budget", s.Budget >= 8*app.MiB && s.Budget <= 64*app.GiB, s.Budget, "from 8MiB (one frame must fit) to 64GiB"},
		{"max-sessions", s.MaxSessions >= 1 && s.MaxSessions <= 1_000_000, s.MaxSessions, "from 1 to 1000000"},
		{"max-handshakes", s.MaxHandshakes >= 1 && s.MaxHandshakes <= 100_000, s.MaxHandshakes, "from 1 to 100000"},
		{"max-per-address", s.MaxPerAddress >= 1 && s.MaxPerAddress <= s.MaxHandshakes, s.MaxPerAddress, "from 1 to --max-handshakes"},
		{"accept-per-second", s.AcceptPerSecond >= 1 && s.AcceptPerSecond <= 100_000, s.AcceptPerSecond, "from 1 to 100000"},
		{"hold-claim", within(s.HoldClaim, 0, mostHold), s.HoldClaim, "from 0s to 25s; public daemons give a request up after 30s"},
		{"hold-fetch", within(s.HoldFetch, 0, mostHold), s.HoldFetch, "from 0s to 25s; public daemons give a request up after 30s"},
		{"hold-pending", within(s.HoldPending, 0, mostHold), s.HoldPending, "from 0s to 25s; proxies and clients give a request up after 30s"},
		{"drain-window", within(s.DrainWindow, 10*time.Millisecond, 10*time.Minute), s.DrainWindow, "from 10ms to 10m"},
		{"drain-limit", within(s.DrainLimit, s.DrainWindow+time.Second, time.Hour), s.DrainLimit, "at least --drain-window plus 1s, at most 1h"},
	}
	for _, r := range rules {
		if !r.ok {
			return app.Usagef("--%s is %v; set it %s", r.flag, r.value, r.want)
		}
	}
	_, err := s.proxies()
	return errors.Join(s.addresses(), s.urls(), s.data(), s.ControlPlane.validated(s), s.debugPlace(), err)
}

// data refuses what can't be a folder; whether the store in it can be opened is known when it is.
func (s *Settings) data() error {
	if s.Store != storeDisk {
		return nil
	}
	if s.Data == "" {
		return app.Usagef("--data is empty; name a folder for the jobs in flight, or say --store memory to forget them at the end")
	}
	if info, err := os.Stat(s.Data); err == nil && !info.IsDir() {
		return app.Usagef("--data %s isn't a folder; name one, or a path where one can be made", s.Data)
	}
	return nil
}

func (s *Settings) addresses() error {
	if err := checkAddress("listen", s.Listen); err != nil {
		return err
	}
	if s.AdminListen == adminOff {
		return nil
	}
	if err := checkAddress("admin-listen", s.AdminListen); err != nil {
		return err
	}
	host, _, err := net.SplitHostPort(s.AdminListen)
	if err == nil && !loopbackHost(host) && !s.AdminRemote {
		return app.Usagef("--admin-listen %s is open to other machines and has no login; use 127.0.0.1, or say --admin-remote when only your own network can reach it", s.AdminListen)
	}
	return nil
}

func checkAddress(flag, address string) error {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return app.Usagef("--%s %q isn't HOST:PORT; write for instance 127.0.0.1:8080", flag, address)
	}
	return nil
}

func (s *Settings) urls() error {
	for _, raw := range s.PublicURL {
		u, err := url.Parse(raw)
		if err != nil || u.Host == "" || u.User != nil || !oneOf(u.Scheme, "http", "https", "ws", "wss") {
			return app.Usagef("--public-url %q isn't a URL that clients can dial; write for instance https://relay.example.org", raw)
		}
	}
	for _, raw := range s.Origin {
		u, err := url.Parse(raw)
		if err != nil || u.Host == "" || !oneOf(u.Scheme, "http", "https") || strings.TrimSuffix(u.Path, "/") != "" {
			return app.Usagef("--origin %q isn't an origin; write for instance https://app.example.org", raw)
		}
	}
	return nil
}

// proxies parses the trusted networks.
func (s *Settings) proxies() ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, text := range s.TrustedProxy {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, app.Usagef("--trusted-proxy %q isn't a network; write for instance 10.0.0.0/8 or 192.0.2.1/32", text)
		}
		out = append(out, p.Masked())
	}
	return out, nil
}

func oneOf(s string, words ...string) bool {
	for _, w := range words {
		if strings.EqualFold(s, w) {
			return true
		}
	}
	return false
}

// loopbackHost reports whether a host, without its port, can only be this machine.
func loopbackHost(host string) bool {
	host = strings.TrimSuffix(strings.Trim(host, "[]"), ".")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

// storeSettings are the settings that the store judges by.
func (s *Settings) storeSettings() store.Settings {
	return store.Settings{
		PayloadWindow: s.PayloadWindow, MaxDeadline: s.MaxDeadline, ResultRetention: s.ResultRetention,
		JobsPerSite: s.JobsPerSite, BytesPerSite: int64(s.BytesPerSite), UnsealedPerRoute: s.Unsealed,
	}
}

// hubSettings are the settings that the hub works by. Short leases shorten what must happen within one.
func (s *Settings) hubSettings() hub.Settings {
	silence := min(time.Minute, s.Lease)
	return hub.Settings{
		LeaseFor: s.Lease, OfferFor: min(5*time.Second, s.Lease/2), SilenceFor: silence, PingEvery: silence * 5 / 12,
		DrainSpread: s.DrainWindow, DrainLimit: s.DrainLimit, UnsealedPerRoute: s.Unsealed,
		JobsPerSite: s.JobsPerSite, BytesPerSite: int64(s.BytesPerSite),
	}
}

// limits bound what strangers can take.
func (s *Settings) limits() session.Limits {
	proxies, _ := s.proxies() // Validated has seen them
	return session.Limits{
		MaxSessions: s.MaxSessions, MaxUnauthenticated: s.MaxHandshakes, MaxUnauthenticatedPerAddr: s.MaxPerAddress,
		AcceptPerSecond: s.AcceptPerSecond, TrustedProxies: proxies,
	}
}

// view is what --check-config prints: the keys of a configuration file with the values in force.
func (s *Settings) view() map[string]any {
	return map[string]any{
		"projection": s.Projection, "listen": s.Listen, "public-url": app.List(s.PublicURL), "origin": app.List(s.Origin), "store": s.Store, "data": s.Data,
		"trusted-proxy":    app.List(s.TrustedProxy),
		"verification-url": s.VerificationURL, "control-plane-key": s.Key,
		"grant-url": s.GrantURL, "grant-timeout": s.GrantTimeout.String(), "grant-token-file": s.GrantToken,
		"admin-listen": s.AdminListen, "admin-remote": s.AdminRemote, "admin-host": app.List(s.AdminHost),
		"debug": s.Debug, "debug-token-file": s.DebugTokenFile,
		"lease": s.Lease.String(), "payload-window": s.PayloadWindow.String(), "max-deadline": s.MaxDeadline.String(),
		"result-retention": s.ResultRetention.String(), "jobs-per-site": s.JobsPerSite, "bytes-per-site": s.BytesPerSite,
		"unsealed": s.Unsealed, "budget": s.Budget, "max-sessions": s.MaxSessions,
		"max-handshakes": s.MaxHandshakes, "max-per-address": s.MaxPerAddress, "accept-per-second": s.AcceptPerSecond,
		"hold-claim": s.HoldClaim.String(), "hold-fetch": s.HoldFetch.String(), "hold-pending": s.HoldPending.String(),
		"drain-window": s.DrainWindow.String(), "drain-limit": s.DrainLimit.String(),
	}
}
