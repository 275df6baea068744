package storage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os/signal"
	"syscall"

	"pushrelay/cmd/pushrelay/internal/app"
	"pushrelay/store/disk"
)

// Command is `pushrelay store`.
type Command struct {
	Inspect  Inspect  `cmd:"" help:"Tell what is in the folder of a stopped relay."`
	Compact  Compact  `cmd:"" help:"Give the disk back what the file of a stopped relay doesn't use."`
	Restored Restored `cmd:"" help:"Let sites publish again what a file that was put back from a backup doesn't know."`
}

// folder is what all commands are about.
type folder struct {
	Dir  string `arg:"" help:"The folder that serve has as --data." type:"path"`
	JSON bool   `help:"Print one JSON object instead of a table." name:"json" env:"-"`
}

// Inspect is `pushrelay store inspect`.
type Inspect struct{ folder }

// Help shows examples.
func (Inspect) Help() string {
	return `Examples:

  pushrelay store inspect /var/lib/pushrelay
  pushrelay store inspect /var/lib/pushrelay --json | jq '.sites[0]'

It changes nothing. While a relay runs on the folder it is refused (exit code 6): ask that relay's /metrics instead.`
}

// Run prints what is in the folder.
func (c Inspect) Run(ctx context.Context, s app.Streams) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	found, err := disk.Inspect(ctx, c.Dir)
	if err != nil {
		return c.explain(ctx, err)
	}
	r := reportOf(&found)
	if c.JSON {
		return json.NewEncoder(s.Out).Encode(r)
	}
	return r.print(s.Out)
}

// Compact is `pushrelay store compact`.
type Compact struct{ folder }

// Help shows examples.
func (Compact) Help() string {
	return `Examples:

  pushrelay store compact /var/lib/pushrelay
  pushrelay store compact /var/lib/pushrelay --json

The file is written anew beside the old one, which takes as much room again as it then has, and takes its place when it is whole. While a relay runs on the folder it is refused (exit code 6). A relay uses the free bytes of its file by itself, so this is only needed to give them back to the disk.`
}

// compacted is the JSON of a compaction.
type compacted struct {
	Path   string `json:"path"`
	Before int64  `json:"before_bytes"`
	After  int64  `json:"after_bytes"`
}

// Run makes the file small and prints both sizes.
func (c Compact) Run(ctx context.Context, s app.Streams) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	done, err := disk.Compact(ctx, c.Dir)
	if err != nil {
		return c.explain(ctx, err)
	}
	if c.JSON {
		return json.NewEncoder(s.Out).Encode(compacted{Path: c.Dir, Before: done.Before, After: done.After})
	}
	_, err = fmt.Fprintf(s.Out, "%s: %s before, %s after\n", c.Dir, size(done.Before), size(done.After))
	return err
}

// Restored is `pushrelay store restored`.
type Restored struct{ folder }

// Help shows examples.
func (Restored) Help() string {
	return `Examples:

  cp backup/pushrelay.db /var/lib/pushrelay/ && pushrelay store restored /var/lib/pushrelay
  pushrelay store restored /var/lib/pushrelay --json

End the relay before the copy is put in its place, and wait until its process is gone: a drain takes up to its --drain-limit.

The file gets a new epoch, by which sites see that the relay has forgotten something: they publish again what they haven't got back. It does no harm where nothing was forgotten.`
}

// restored is the JSON of a file that has a new epoch.
type restored struct {
	Path  string `json:"path"`
	Epoch string `json:"epoch"`
}

// Run gives the file a new epoch and prints it.
func (c Restored) Run(ctx context.Context, s app.Streams) error {
	epoch, err := disk.Renew(ctx, c.Dir)
	if err != nil {
		return c.explain(ctx, err)
	}
	if c.JSON {
		return json.NewEncoder(s.Out).Encode(restored{Path: c.Dir, Epoch: epoch})
	}
	_, err = fmt.Fprintf(s.Out, "%s: the new epoch is %s\n", c.Dir, epoch)
	return err
}

// explain is Explain for a folder that must have a store, and whose relay must have ended.
func (c folder) explain(ctx context.Context, err error) error {
	explained := Explain(c.Dir, err)
	var locked *disk.LockedError
	switch {
	case errors.As(err, &locked):
		return app.Exitf(app.ExitLocked, "%w; end it first and wait until its process is gone: only then can the folder be looked into or changed; of a running relay its /metrics tell", err)
	case errors.Is(err, syscall.ENOTDIR):
		return app.Usagef("%s isn't a folder; name the one that serve has as --data", c.Dir)
	case errors.Is(ctx.Err(), context.Canceled):
		return app.Exit(app.ExitInterrupted)
	case app.CodeOf(explained) == app.ExitFailed && errors.Is(err, fs.ErrNotExist):
		return app.Usagef("there is no store in %s: %w; name the folder that serve has as --data", c.Dir, err)
	}
	return explained
}
