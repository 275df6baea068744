package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"time"

	"pushrelay/cmd/pushrelay/internal/setup"
	"pushrelay/session/daemon"
	"pushrelay/wire"
)

// joinChild starts a daemon as a process of its own, `pushrelay daemon`, for gated jobs. Its log tells what it does.
func (w *world) joinChild(ctx context.Context, runner string) error {
	cmd := exec.Command(w.program, "daemon", "--relay", w.relay.URL(), "--key", setup.KeyFile(w.dir, runner),
		"--runner", runner, "--state", setup.StateDir(w.dir, runner), "--slots", strconv.Itoa(slots), "--kind", kindGate,
		"--exec", "exec "+setup.ShellWord(w.program)+" demo-work --gate "+setup.ShellWord(w.gate(runner)), "--log-format", "json")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	w.child[runner] = cmd
	go w.follow(runner, stderr)
	return w.stories.connects(ctx, runner, 1)
}

// follow turns the lines of a daemon's log into what its events would have told.
func (w *world) follow(runner string, log io.Reader) {
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		if w.cmd.Verbose {
			fmt.Fprintln(w.out.Err, lines.Text())
		}
		var l struct {
			Event, Message, Job, Lease, Detail string
			Time                               time.Time
		}
		if json.Unmarshal(lines.Bytes(), &l) != nil {
			continue
		}
		if l.Message == string(daemon.EventConnected) {
			l.Event = l.Message
		}
		if l.Event != "" {
			w.stories.hearDaemon(runner, daemon.Event{
				At: l.Time, Type: daemon.EventType(l.Event), Grant: wire.Grant{JobID: l.Job, LeaseID: l.Lease}, Detail: l.Detail,
			})
		}
	}
}

// kill ends a daemon's process the hard way: it can say no goodbye.
func (w *world) kill(runner string) error {
	cmd := w.child[runner]
	delete(w.child, runner)
	if err := cmd.Process.Kill(); err != nil {
		return err
	}
	err := cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil // that is what was asked for
	}
	return err
}
