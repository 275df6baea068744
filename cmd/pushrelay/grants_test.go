package main

import (
	"strings"
	"syscall"
	"testing"

	"pushrelay/cmd/pushrelay/internal/setup"
)

// TestGrantsFromEndToEnd has a control plane that signs, a relay that asks it, and a device that believes nobody else.
func TestGrantsFromEndToEnd(t *testing.T) {
	plane := newPlane(t)
	r := serveRelay(t, "--control-plane-key", plane.key(), "--grant-url", plane.url)
	plane.approves(t, r)
	args := []string{"--exec", "LC_ALL=C tr a-z A-Z", "--owner", "owner-a", "--control-plane-key"}
	d := r.daemon("runner-a1", append(args, plane.key())...)
	for _, owner := range []string{"owner-a", "owner-b"} {
		out := start(t, "one\ntwo\n", "site", "submit", "--relay", r.url, "--key", setup.KeyFile(r.dir, "site-one"), "--site", "site-one",
			"--owner", owner, "--audience", "team", "--json")
		if code := out.exit(); code != 0 || !strings.Contains(out.out.String(), `"ONE"`) || !strings.Contains(out.out.String(), `"TWO"`) {
			t.Errorf("%s: %d", owner, code)
		}
	}
	if signed := plane.signed.Load(); signed != 4 {
		t.Errorf("%d grants were signed", signed)
	}
	d.signal(syscall.SIGTERM)
	d.exit()

	// A device of another control plane takes nothing that this one signed.
	other := newPlane(t)
	d = r.daemon("runner-a2", append(args, other.key())...)
	s := start(t, "three\n", "site", "submit", "--relay", r.url, "--key", setup.KeyFile(r.dir, "site-one"), "--site", "site-one",
		"--owner", "owner-a", "--audience", "team", "--json")
	d.await(d.err, "may not run here", "signed by the control plane")
	s.signal(syscall.SIGINT)
	if code := s.exit(); code == 0 || strings.Contains(s.out.String(), "THREE") {
		t.Errorf("the job ran: %d", code)
	}
}
