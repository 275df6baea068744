package serve

import (
	"crypto/ed25519"
	"net/url"
	"time"

	"pushrelay/cmd/pushrelay/internal/app"
	"pushrelay/cmd/pushrelay/internal/keys"
	"pushrelay/hub"
	"pushrelay/hub/grants"
	"pushrelay/session/poll/pairing"
	"pushrelay/wire"
)

// grantParallel is how many requests to the grant endpoint are under way at once.
const grantParallel = 8

// ControlPlane are the settings about who approves devices and grants jobs.
type ControlPlane struct {
	VerificationURL string `help:"Where people approve a device by the code that it shows. Without it devices aren't paired by code." name:"verification-url" placeholder:"URL" group:"Control plane"`
	Key             string `help:"The control plane's public key, or a file with it. Devices learn it when they are paired, and run only what it granted from then on." name:"control-plane-key" placeholder:"FILE|KEY" group:"Control plane"`

	GrantURL     string        `help:"Endpoint of the control plane that is asked for a signed grant after each claim of a device with dialect 2." name:"grant-url" placeholder:"URL" group:"Control plane"`
	GrantTimeout time.Duration `help:"How long that endpoint may take." name:"grant-timeout" default:"2s" group:"Control plane"`
	GrantToken   string        `help:"File with a bearer token for that endpoint." name:"grant-token-file" type:"path" placeholder:"FILE" group:"Control plane"`
}

func (c *ControlPlane) validated(all *Settings) error {
	set := all.hubSettings()
	if c.VerificationURL != "" {
		if u, err := url.Parse(c.VerificationURL); err != nil || u.Host == "" || u.User != nil || !oneOf(u.Scheme, "http", "https") {
			return app.Usagef("--verification-url %q isn't a URL that people can open; write for instance https://control.example.org/devices", c.VerificationURL)
		}
		if all.AdminListen == adminOff {
			return app.Usagef("--verification-url needs the admin listener, where the control plane looks codes up; leave out --admin-listen off")
		}
	}
	if c.GrantTimeout < 100*time.Millisecond || c.GrantTimeout > 10*time.Second {
		return app.Usagef("--grant-timeout is %v; set it from 100ms to 10s", c.GrantTimeout)
	}
	if c.GrantURL == "" {
		if c.GrantToken != "" {
			return app.Usagef("--grant-token-file is of use with --grant-url only; remove it")
		}
		return nil
	}
	if u, err := url.Parse(c.GrantURL); err != nil || u.Host == "" || u.User != nil || !oneOf(u.Scheme, "http", "https") {
		return app.Usagef("--grant-url must be an http or https URL without credentials; write for instance https://control.example.org/grants")
	}
	if c.Key == "" {
		return app.Usagef("--grant-url needs --control-plane-key: a grant that can't be verified isn't passed on")
	}
	if offer := set.OfferFor + 2*c.GrantTimeout; offer >= set.LeaseFor {
		return app.Usagef("--grant-timeout %v is too long for --lease %v: asking and offering take up to %v; shorten the one or lengthen the other",
			c.GrantTimeout, set.LeaseFor, offer)
	}
	return nil
}

// opened is what the settings name, read and ready.
type openedPlane struct {
	key      ed25519.PublicKey // nil: there is none
	grants   *hub.GrantConfig  // nil: none are asked for
	endpoint *grants.HTTP      // of these
}

// open reads the files that the settings name.
func (c *ControlPlane) open(told func(grants.Outcome, int)) (o openedPlane, err error) {
	if c.Key != "" {
		if o.key, err = keys.ControlPlane(c.Key); err != nil {
			return o, err
		}
	}
	if c.GrantURL == "" {
		return o, nil
	}
	token := ""
	if c.GrantToken != "" {
		if token, err = keys.Line("grant-token-file", c.GrantToken, "the token"); err != nil {
			return o, err
		}
	}
	if o.endpoint, err = grants.NewHTTP(c.GrantURL, token, grantParallel); err != nil {
		return o, app.Usagef("--grant-url: %w", err)
	}
	o.grants = &hub.GrantConfig{Endpoint: o.endpoint, Key: o.key, Timeout: c.GrantTimeout, Parallel: grantParallel, Told: told}
	return o, nil
}

// newPairing is how devices are paired, over a hub.
func (r *Relay) newPairing(key ed25519.PublicKey) *pairing.Pairing {
	opts := pairing.Options{Directory: r.hub, VerificationURL: r.set.VerificationURL, Log: r.log}
	if key != nil {
		opts.ControlPlanePublic = wire.EncodeBase64(key)
		if r.set.GrantURL == "" {
			r.log.Warn().Str("event", "grants-missing").
				Msg("devices that are paired now run only what the control plane granted, and without --grant-url nothing is")
		}
	}
	return pairing.New(opts)
}
