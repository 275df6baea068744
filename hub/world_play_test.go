package hub

import (
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pushrelay/wire"
)

// take answers the unread frames of a type, decoded, and leaves the others.
func take[T any](c *client, t wire.FrameType) []T {
	c.w.t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []T
	var rest [][]byte
	for _, f := range c.frames {
		head, err := wire.DecodeHead(f)
		require.NoError(c.w.t, err, string(f))
		if head.Type != t {
			rest = append(rest, f)
			continue
		}
		v, err := wire.Decode[T](f)
		require.NoError(c.w.t, err, string(f))
		out = append(out, v)
	}
	c.frames = rest
	return out
}

// claimed answers the grants of the unread claimed pushes.
func (c *client) claimed() []wire.Grant {
	c.w.t.Helper()
	var out []wire.Grant
	for _, f := range take[wire.Claimed](c, wire.TypeClaimed) {
		for _, raw := range f.Jobs {
			job, err := wire.ParseClaimed(wire.Dialect0, raw)
			if err != nil {
				job, err = wire.ParseClaimed(wire.Dialect2, raw)
			}
			require.NoError(c.w.t, err)
			out = append(out, wire.Grant{JobID: job.Stub.ID, LeaseID: job.Lease.ID})
		}
	}
	return out
}

func (c *client) lost(reason string) []wire.Grant {
	c.w.t.Helper()
	var out []wire.Grant
	for _, f := range take[wire.GrantsPush](c, wire.TypeLost) {
		require.Equal(c.w.t, reason, f.Reason)
		out = append(out, f.Grants...)
	}
	return out
}

func (c *client) cancels() []wire.Grant {
	c.w.t.Helper()
	var out []wire.Grant
	for _, f := range take[wire.GrantsPush](c, wire.TypeCancel) {
		out = append(out, f.Grants...)
	}
	return out
}

func (c *client) sealRequests() []wire.SealJob {
	c.w.t.Helper()
	var out []wire.SealJob
	for _, f := range take[wire.SealRequest](c, wire.TypeSealRequest) {
		out = append(out, f.Jobs...)
	}
	return out
}

func (c *client) results() []wire.ResultJob {
	c.w.t.Helper()
	var out []wire.ResultJob
	for _, f := range take[wire.Results](c, wire.TypeResults) {
		out = append(out, f.Jobs...)
	}
	return out
}

func (c *client) notices(t wire.FrameType) []wire.Notice {
	c.w.t.Helper()
	var out []wire.Notice
	for _, f := range take[wire.Notices](c, t) {
		out = append(out, f.Jobs...)
	}
	return out
}

// stub writes the stub of a job of ada's for the shop; change alters it.
func (w *world) stub(id string, change func(*wire.Stub)) []byte {
	s := wire.Stub{
		ID: id, Kind: "llm.generate", Owner: "ada", Site: w.party("shop").keyID, Audience: "self", SizeClass: "small",
		DeadlineAt: time.Now().Add(time.Hour).UnixMilli(),
	}
	if change != nil {
		change(&s)
	}
	return wire.AppendStub(nil, s)
}

func (c *client) enqueue(ids ...string) {
	c.w.t.Helper()
	var f wire.Enqueue
	for _, id := range ids {
		f.Stubs = append(f.Stubs, c.w.stub(id, nil))
	}
	r := c.ask(wire.TypeEnqueue, f)
	require.Nil(c.w.t, r.err)
}

func (c *client) accept(grants ...wire.Grant) []wire.Grant {
	c.w.t.Helper()
	r := c.ask(wire.TypeAccept, wire.Grants{Grants: grants})
	require.Nil(c.w.t, r.err)
	v, err := wire.Decode[wire.AcceptReply](r.answer)
	require.NoError(c.w.t, err)
	return v.Lost
}

func (w *world) payloadFor(device string) []byte {
	return wire.AppendEnvelope(nil, wire.Envelope{
		RecipientKeyID: w.party(device).keyID, SenderKeyID: w.party("shop").keyID, Direction: wire.DirectionPayload,
		DeadlineAt: time.Now().Add(time.Hour).UnixMilli(),
	}, "AAAA")
}

func (w *world) resultOf(device string) []byte {
	return wire.AppendEnvelope(nil, wire.Envelope{
		RecipientKeyID: w.party("shop").keyID, SenderKeyID: w.party(device).keyID, Direction: wire.DirectionResult,
		DeadlineAt: time.Now().Add(time.Hour).UnixMilli(),
	}, "BBBB")
}

func (c *client) seal(g wire.Grant, device string) *request {
	c.w.t.Helper()
	return c.ask(wire.TypeSeal, wire.Seal{JobID: g.JobID, LeaseID: g.LeaseID, Envelope: c.w.payloadFor(device)})
}

func (c *client) complete(g wire.Grant) *request {
	c.w.t.Helper()
	return c.ask(wire.TypeResult, wire.Result{Grant: g, Envelope: c.w.resultOf(c.name), Disposition: wire.DispositionOK})
}

func (c *client) collect(grants ...wire.Grant) {
	c.w.t.Helper()
	require.Nil(c.w.t, c.ask(wire.TypeCollected, wire.Grants{Grants: grants}).err)
}

// live plays both clients until nothing moves any more: accepts, seals, completes and collects whatever comes.
func (w *world) live(site *client, daemons ...*client) (collected []string) {
	w.t.Helper()
	for moved := true; moved; {
		moved = false
		for _, d := range daemons {
			if g := d.claimed(); len(g) > 0 {
				d.accept(g...)
				moved = true
			}
			for _, p := range take[wire.Payload](d, wire.TypePayload) {
				require.Nil(w.t, d.complete(wire.Grant{JobID: p.JobID, LeaseID: p.LeaseID}).err)
				moved = true
			}
		}
		for _, j := range site.sealRequests() {
			device := ""
			for _, d := range daemons {
				if d.name == j.RunnerID {
					device = d.name
				}
			}
			require.Nil(w.t, site.seal(wire.Grant{JobID: j.JobID, LeaseID: j.LeaseID}, device).err)
			moved = true
		}
		for _, j := range site.results() {
			site.collect(wire.Grant{JobID: j.JobID, LeaseID: j.LeaseID})
			collected = append(collected, j.JobID)
			moved = true
		}
	}
	return collected
}

// liveFor is live, second by second.
func (w *world) liveFor(d time.Duration, site *client, daemons ...*client) (collected []string) {
	w.t.Helper()
	for range d / time.Second {
		w.advance(time.Second)
		collected = append(collected, w.live(site, daemons...)...)
	}
	return collected
}

func grantOf(j wire.SealJob) wire.Grant { return wire.Grant{JobID: j.JobID, LeaseID: j.LeaseID} }
