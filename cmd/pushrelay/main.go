// Command pushrelay is a blind relay between sites that publish jobs and daemons that run them, with the programs of both
// ends, a demonstration and a benchmark. `pushrelay --help` explains itself.
package main

import (
	"context"
	"os"

	"pushrelay/cmd/pushrelay/internal/app"
	"pushrelay/cmd/pushrelay/internal/bench"
	"pushrelay/cmd/pushrelay/internal/demo"
	"pushrelay/cmd/pushrelay/internal/device"
	"pushrelay/cmd/pushrelay/internal/keys"
	"pushrelay/cmd/pushrelay/internal/serve"
	"pushrelay/cmd/pushrelay/internal/setup"
	"pushrelay/cmd/pushrelay/internal/storage"
	"pushrelay/cmd/pushrelay/internal/submit"
)

// cli is every command. A command is a struct whose fields are its settings and whose Run does the work.
type cli struct {
	Serve   serve.Command   `cmd:"" help:"Run the relay."`
	Keygen  keys.Keygen     `cmd:"" help:"Make a key for a site or a device."`
	Init    setup.Command   `cmd:"" help:"Make demo keys and a projection in a new folder."`
	Daemon  device.Command  `cmd:"" help:"Run jobs of an owner on this device."`
	Site    siteCommands    `cmd:"" help:"Publish jobs as a site."`
	Store   storage.Command `cmd:"" help:"Look after the files that a relay keeps its jobs in."`
	Demo    demo.Command    `cmd:"" help:"Show the whole thing at work, with no set-up."`
	Bench   benchCommands   `cmd:"" help:"Measure a relay on this machine."`
	Version app.Version     `cmd:"" help:"Print the version."`

	Work demo.Work `cmd:"" name:"demo-work" hidden:"" help:"What the devices of the demonstration run."`
}

type siteCommands struct {
	Submit submit.Command `cmd:"" help:"Publish each line of a file as a job and print the results."`
}

type benchCommands struct{ bench.Command }

// Help shows examples for all of them.
func (benchCommands) Help() string {
	return `Examples:

  pushrelay bench lifecycle
  pushrelay bench latency --json
  pushrelay bench idle
  pushrelay bench storm --sessions 1000
  pushrelay bench store --json`
}

func main() {
	os.Exit(app.Main(context.Background(), new(cli), app.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}, os.Args[1:]))
}
