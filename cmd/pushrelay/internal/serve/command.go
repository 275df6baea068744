// Package serve is the relay's process: settings, start and stop order, the operator's listener, metrics. It is the only
// place that picks a store.
package serve

import (
	"os"
	"os/signal"
	"syscall"

	"pushrelay/cmd/pushrelay/internal/app"
	"pushrelay/hub/projection"
)

// Command is `pushrelay serve`.
type Command struct {
	app.Config
	app.LogSettings `embed:"" set:"loglevel=info"`
	Settings
}

// Help shows examples.
func (Command) Help() string {
	return `Examples:

  pushrelay serve --projection projection.json --data jobs
  pushrelay serve --projection projection.json --store memory --public-url http://127.0.0.1:8080
  pushrelay serve --projection /etc/pushrelay/projection.json --data /var/lib/pushrelay --public-url https://relay.example.org
  pushrelay serve --config serve.json --verification-url https://control.example.org/devices
  PUSHRELAY_LEASE=2m pushrelay serve --config /etc/pushrelay/serve.json
  pushrelay serve --config serve.json --check-config

Jobs in flight are kept in --data, on disk before anything is acknowledged; a relay that starts again goes on with them. One process has the folder for itself. With --store memory nothing is kept and --data isn't used.

The projection is read again when its file changes and at SIGHUP; one that can't be used is reported and the old one stays. PUT /projection on the admin listener replaces it too, until the file changes or the relay starts again: the last one that arrived is in force, and with a "version" only a higher one replaces what is in force.

SIGTERM and SIGINT drain: unready at once, sessions are told to move, heartbeats and results go on, and the process exits 0 before --drain-limit. A second signal ends it at once with 130.

With --verification-url devices that poll are paired by a code; with --control-plane-key and --grant-url the control plane has a say in each job. docs/operation.md tells what it is asked.

Behind a proxy, --public-url is the URL that clients dial.`
}

// Run serves until a signal ends it.
func (c *Command) Run(s app.Streams) error {
	if err := c.Validated(); err != nil {
		return err
	}
	if c.CheckConfig {
		return c.check(s)
	}
	ignoreFileLimit()
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer signal.Stop(signals)
	relay, err := Start(c.Settings, c.Logger(s.Err))
	if err != nil {
		return err
	}
	if err := relay.announce(s.Out); err != nil {
		return err
	}
	return relay.waitFor(signals)
}

// check reads what the settings name and prints the settings.
func (c *Command) check(s app.Streams) error {
	raw, err := readProjection(c.Projection)
	if err == nil {
		_, err = projection.Parse(raw)
	}
	if err == nil {
		err = c.hubSettings().Check()
	}
	if err == nil {
		_, err = c.ControlPlane.open(nil)
	}
	if err == nil && c.Debug {
		_, err = c.debugToken()
	}
	if err != nil {
		return app.Usagef("%w", err)
	}
	return app.Print(s.Out, c.view())
}
