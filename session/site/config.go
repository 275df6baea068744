package site

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/rs/zerolog"

	"pushrelay/session"
	"pushrelay/wire"
	"pushrelay/wire/seal"
)

// Limits that a site keeps by itself, whatever the relay does.
const (
	sealingOver      = 256 << 10 // bytes of an envelope that are announced first
	sealingAfter     = 3 * time.Second
	plainOver        = 140 << 10 // bytes of plaintext whose envelope is surely over sealingOver
	bulkOver         = 24 << 10  // bytes of a frame that don't belong on the control lane
	parallelSeals    = 4
	maxQueuedResults = 256
	maxQueuedBytes   = 64 << 20
	maxRemembered    = 1 << 14 // handled results and notices
	maxSealedTo      = 64      // devices remembered for a job
	maxTries         = 4
	requestPatience  = 2 * time.Minute
	politeStop       = time.Second
	forgetPayload    = 10 * time.Minute // after the deadline
	forgetJob        = 25 * time.Hour   // after the deadline; the relay keeps results for 24 h
	defaultHandlers  = 4
	defaultName      = "pushrelay-site"
	defaultVersion   = "dev"
)

// Config says which site this is and who hears of results. URL, SiteID, Keys and OnResult are required.
type Config struct {
	URL      string // of the relay: ws, wss, http or https
	SiteID   string // as the control plane names the site
	Keys     *seal.Keys
	Previous []*seal.Keys // earlier keys of the site, which open results that were still sealed to them
	Dialect  wire.Dialect // empty means version 2
	Name     string       // shown to the relay's operator; at most 64 bytes
	Version  string       // of the program, at most 64 bytes

	// OnResult hears of each finished job, at most Handlers at once. An error means: tell me again later. ErrElsewhere leaves
	// it to another process of the site without a line in the log.
	OnResult func(ctx context.Context, r Result) error
	// OnNotice hears of jobs that the relay dropped; nil means that they are only counted. An error as for OnResult.
	OnNotice func(ctx context.Context, n Notice) error
	Handlers int // callbacks at once; 0 means 4
	// Trust is asked before a payload is sealed to a device and a result of it believed; nil means that every device is
	// good that the relay names. A relay that lies could name one of its own: pin devices by owner where that matters.
	Trust func(runnerID string, device wire.PublicIdentity) error
	// Lookup finds jobs that this process didn't submit; found false is no error. A site of several processes needs it:
	// the relay asks any of its sessions to seal, and a job that is unknown there is declined, which counts against it.
	Lookup func(ctx context.Context, jobID string) (job Job, found bool, err error)

	Log       zerolog.Logger
	CAFile    string // PEM, trusted beside the system's
	Transport http.RoundTripper
	Budget    *session.Budget
	// OnEvent hears what happens to jobs, in no lock and from several goroutines; it must not block for long.
	OnEvent func(Event)
}

// ErrElsewhere is answered by OnResult and OnNotice for a job that another process of the site has to hear of.
var ErrElsewhere = errors.New("a job of another process of the site")

func (c *Config) complete() error {
	if c.URL == "" || c.SiteID == "" || c.Keys == nil || c.OnResult == nil {
		return errors.New("site: URL, SiteID, Keys and OnResult must be set")
	}
	if err := wire.CheckID(c.SiteID); err != nil {
		return fmt.Errorf("site: SiteID: %w", err)
	}
	if c.Dialect == "" {
		c.Dialect = wire.Dialect2
	}
	if _, err := wire.ParseDialect(string(c.Dialect)); err != nil {
		return fmt.Errorf("site: Dialect: %w", err)
	}
	if c.Handlers <= 0 {
		c.Handlers = defaultHandlers
	}
	if c.Name == "" {
		c.Name = defaultName
	}
	if c.Version == "" {
		c.Version = defaultVersion
	}
	return nil
}
