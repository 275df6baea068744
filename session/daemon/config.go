package daemon

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"pushrelay/session"
	"pushrelay/wire"
	"pushrelay/wire/seal"
)

// Limits that a daemon keeps by itself, whatever the relay does.
const (
	helloReserve      = 2 << 10   // bytes of a hello beside capabilities and grants
	minGrantBytes     = 4 << 10   // of a hello, left for the grants that it names
	largeResult       = 256 << 10 // bytes; only the sending of larger results is given up after cuts
	maxCuts           = 5         // of a large result's sending, before an error takes its place
	maxTries          = 3         // of a small request
	parallelTransfers = 4         // results, or payloads, asked for at once
	resendFirst       = 5 * time.Second
	politeStop        = 2 * time.Second
	acceptWithin      = 4 * time.Second // of the relay's 5 s
	defaultClientName = "pushrelay-daemon"
	defaultVersion    = "dev"
)

// Config says what a daemon is and runs. URL, RunnerID, Keys, Capabilities, StateDir and Run are required.
type Config struct {
	URL          string // of the relay: ws, wss, http or https
	RunnerID     string // as the control plane assigned it
	Keys         *seal.Keys
	Dialect      wire.Dialect // empty means version 2
	Capabilities []wire.Capability
	Slots        int    // jobs at once, 1 to 64; 0 means 1
	Name         string // shown to the relay's operator; at most 64 bytes
	Version      string // of the program, at most 64 bytes
	// StateDir keeps finished results until they are answered; made with mode 0700 when it is missing. One daemon each.
	StateDir string
	Run      Runner
	// ControlPlane is the control plane's key, as pairing told it: then only jobs run for which it signed a grant. Needs
	// Owner and version 2.
	ControlPlane ed25519.PublicKey
	// Owner is whose device this is, as the control plane names the person. Without ControlPlane only this owner's jobs run;
	// empty leaves it to the relay whose jobs do.
	Owner string
	// TrustSite is asked, beside consent, whether jobs of a listed site may run; nil means yes. It must not block.
	TrustSite func(keyID string, site wire.PublicIdentity) bool
	Log       zerolog.Logger
	CAFile    string // PEM, trusted beside the system's
	Transport http.RoundTripper
	Budget    *session.Budget
	// OnEvent hears what happens to grants, in no lock and from several goroutines; it must not block for long.
	OnEvent func(Event)

	wall func() time.Time // tests move it against the monotonic clock; nil means time.Now
}

func (c *Config) complete() error {
	if c.URL == "" || c.RunnerID == "" || c.Keys == nil || c.StateDir == "" || c.Run == nil {
		return errors.New("daemon: URL, RunnerID, Keys, StateDir and Run must be set")
	}
	if err := wire.CheckID(c.RunnerID); err != nil {
		return fmt.Errorf("daemon: RunnerID: %w", err)
	}
	if c.Dialect == "" {
		c.Dialect = wire.Dialect2
	}
	if _, err := wire.ParseDialect(string(c.Dialect)); err != nil {
		return fmt.Errorf("daemon: Dialect: %w", err)
	}
	if c.Slots == 0 {
		c.Slots = 1
	}
	if c.Slots < 1 || c.Slots > wire.MaxSlots {
		return fmt.Errorf("daemon: Slots must be 1 to %d", wire.MaxSlots)
	}
	if c.Name == "" {
		c.Name = defaultClientName
	}
	if c.Version == "" {
		c.Version = defaultVersion
	}
	if c.wall == nil {
		c.wall = time.Now
	}
	return errors.Join(c.checkGrants(), c.checkCapabilities())
}

func (c *Config) checkGrants() error {
	if c.ControlPlane == nil {
		return nil
	}
	switch {
	case len(c.ControlPlane) != ed25519.PublicKeySize:
		return errors.New("daemon: ControlPlane isn't a public Ed25519 key")
	case wire.CheckID(c.Owner) != nil:
		return errors.New("daemon: with ControlPlane, Owner must be set: a grant names it")
	case !c.Dialect.SignedGrants():
		return errors.New("daemon: with ControlPlane, Dialect must be one that has signed grants")
	}
	return nil
}

func (c *Config) checkCapabilities() error {
	if len(c.Capabilities) == 0 {
		return errors.New("daemon: Capabilities is empty, so no job could ever be run; name at least one")
	}
	raw := wire.AppendCapabilities(nil, c.Dialect, c.Capabilities)
	if _, err := wire.ParseCapabilities(c.Dialect, raw); err != nil {
		return fmt.Errorf("daemon: Capabilities: %w", err)
	}
	if c.grantBudget(raw) < minGrantBytes {
		return errors.New("daemon: Capabilities leave no room for grants in a hello of 16 KiB; name fewer")
	}
	c.Capabilities = slices.Clone(c.Capabilities)
	return nil
}

func (c *Config) clientInfo() wire.ClientInfo {
	return wire.ClientInfo{Name: c.Name, Version: c.Version, Platform: runtime.GOOS + "/" + runtime.GOARCH}
}

// grantBudget is how many bytes of a hello are left for the grants that it must name.
func (c *Config) grantBudget(capabilities []byte) int {
	return wire.MaxHelloBytes - helloReserve - len(wire.AppendString(nil, string(capabilities)))
}

// grantBytes is what a grant takes in a hello, whose body is JSON within a JSON string.
func grantBytes(g wire.Grant) int {
	inner := wire.AppendString(nil, g.JobID)
	inner = wire.AppendString(inner, g.LeaseID)
	return len(wire.AppendString(nil, string(inner))) + len(`{\"jobId\":,\"leaseId\":},`)
}
