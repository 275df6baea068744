// Package setup makes what a first try of a relay needs: keys of two sites and three devices, and a projection that
// lets them work together.
package setup

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"pushrelay/cmd/pushrelay/internal/app"
	"pushrelay/cmd/pushrelay/internal/keys"
	"pushrelay/hub/projection"
	"pushrelay/wire"
	"pushrelay/wire/seal"
)

// Device is one device of an example.
type Device struct{ Owner, Runner string }

// Sites and Devices of the example: each owner consents to both sites, and only owner-a has a second device.
func Sites() []string { return []string{"site-one", "site-two"} }

// Devices answers the devices of the example.
func Devices() []Device {
	return []Device{{"owner-a", "runner-a1"}, {"owner-a", "runner-a2"}, {"owner-b", "runner-b1"}}
}

// Command is `pushrelay init`.
type Command struct {
	Dir string `arg:"" help:"New or empty folder." type:"path"`
}

// Help shows examples.
func (Command) Help() string {
	return `Examples:

  pushrelay init try
  pushrelay init /tmp/relay-demo

The folder gets projection.json, a key for each of two sites and three devices, and a folder for each device's state. The commands to run next are printed.`
}

// Run makes the files and prints the commands that use them.
func (c Command) Run(s app.Streams) error {
	if err := emptyDir(c.Dir); err != nil {
		return err
	}
	if _, err := Make(c.Dir); err != nil {
		return err
	}
	return c.next(s.Out)
}

func emptyDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return app.Usagef("the folder can't be made: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return app.Usagef("the folder can't be read: %w", err)
	}
	if len(entries) > 0 {
		return app.Usagef("%s isn't empty and stays as it is; name a new folder", dir)
	}
	return nil
}

// Made are the keys of an example, by site id or runner id.
type Made map[string]*seal.Keys

// Make writes keys, folders for state and the projection into dir.
func Make(dir string) (Made, error) {
	made := Made{}
	var example projection.Example
	add := func(name string, use func(wire.PublicIdentity)) error {
		k, err := seal.Generate(nil)
		if err != nil {
			return err
		}
		made[name] = k
		use(k.Public())
		return keys.Write(KeyFile(dir, name), k)
	}
	var errs []error
	for _, site := range Sites() {
		errs = append(errs, add(site, func(id wire.PublicIdentity) { example.Site(site, id) }))
	}
	consented := map[projection.Route]bool{}
	for _, d := range Devices() {
		errs = append(errs, add(d.Runner, func(id wire.PublicIdentity) { example.Device(d.Owner, d.Runner, id) }),
			os.Mkdir(StateDir(dir, d.Runner), 0o700))
		for _, site := range Sites() {
			route := projection.Route{Site: site, Owner: d.Owner}
			if !consented[route] {
				consented[route] = true
				example.Consent(d.Owner, site)
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	raw, err := example.Marshal()
	if err != nil {
		return nil, err
	}
	return made, os.WriteFile(ProjectionFile(dir), raw, 0o600)
}

// KeyFile is where Make keeps a party's key.
func KeyFile(dir, name string) string { return filepath.Join(dir, name+".key") }

// StateDir is where Make expects a device's state.
func StateDir(dir, runner string) string { return filepath.Join(dir, runner+".state") }

// ProjectionFile is where Make keeps the projection.
func ProjectionFile(dir string) string { return filepath.Join(dir, "projection.json") }

// DataDir is where the relay of an example keeps its jobs; serve makes it.
func DataDir(dir string) string { return filepath.Join(dir, "data") }

// next prints commands that work when they are pasted, each into a terminal of its own.
func (c Command) next(w io.Writer) error {
	program := ShellWord(programName())
	file := func(path string) string { return ShellWord(path) }
	d := Devices()[0]
	_, err := fmt.Fprintf(w, `Made in %s: projection.json, %d site keys, %d device keys.

1. The relay:

   %s serve --projection %s --data %s --listen 127.0.0.1:8080

2. In a second terminal, a device of %s; each job's text goes to the command, and what that prints is the result:

   %s daemon --relay http://127.0.0.1:8080 --key %s --runner %s --state %s --exec 'tr a-z A-Z'

3. In a third terminal, a site that publishes two jobs:

   printf 'first line\nsecond line\n' | %s site submit --relay http://127.0.0.1:8080 --key %s --site %s --owner %s
`, c.Dir, len(Sites()), len(Devices()), program, file(ProjectionFile(c.Dir)), file(DataDir(c.Dir)), d.Owner,
		program, file(KeyFile(c.Dir, d.Runner)), d.Runner, file(StateDir(c.Dir, d.Runner)),
		program, file(KeyFile(c.Dir, Sites()[0])), Sites()[0], d.Owner)
	return err
}

// programName is how this program was called: by name when a shell finds it by that, else by its path.
func programName() string {
	name := os.Args[0]
	if strings.ContainsRune(name, filepath.Separator) {
		if abs, err := filepath.Abs(name); err == nil {
			return abs
		}
	}
	return name
}

// ShellWord quotes s for a shell when it needs it.
func ShellWord(s string) string {
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=@%+", r)
	}) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
