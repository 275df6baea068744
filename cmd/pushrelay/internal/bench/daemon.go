package bench

import (
	"bytes"
	"fmt"

	"pushrelay/wire"
)

// daemon is the device's end of a bench: it accepts what it is offered and answers each payload at once.
type daemon struct {
	*client
	world  *world
	sealed *sealed
	number int // in world.daemons
}

func (d *daemon) push(head wire.Head, frame []byte) error {
	switch head.Type {
	case wire.TypeClaimed:
		return d.claimed(frame)
	case wire.TypePayload:
		return d.payload(frame)
	case wire.TypeCancel, wire.TypeLost, wire.TypeSites:
		return d.interrupted(head.Type, frame)
	}
	return nil
}

// claimed accepts a whole push with one frame.
func (d *daemon) claimed(frame []byte) error {
	c, err := wire.Decode[wire.Claimed](frame)
	if err != nil {
		return err
	}
	grants := make([]wire.Grant, len(c.Jobs))
	for i, raw := range c.Jobs {
		job, err := wire.ParseClaimed(wire.Dialect0, raw)
		if err != nil {
			return err
		}
		stub := job.Stub
		if job.Lease.RunnerID != d.world.daemons[d.number].id || stub.Owner != d.world.daemons[d.number].owner {
			return fmt.Errorf("job %s was offered to %s by mistake", stub.ID, d.world.daemons[d.number].id)
		}
		grants[i] = wire.Grant{JobID: stub.ID, LeaseID: job.Lease.ID}
		d.ledger.took(stub.ID, stepClaimed)
	}
	d.request(func(dst []byte, id string) []byte { return wire.AppendGrants(dst, wire.TypeAccept, id, grants) },
		func(id string, reply []byte) error {
			r := wire.AcceptReply{}
			if !bytes.Equal(reply, wire.AppendAcceptReply(nil, id, nil)) {
				if r, err = wire.Decode[wire.AcceptReply](reply); err != nil {
					return err
				}
			}
			if len(r.Lost) > 0 && !d.ledger.cancels.Load() {
				return fmt.Errorf("%d grants were lost before they were accepted", len(r.Lost))
			}
			for _, g := range grants {
				d.ledger.took(g.JobID, stepAccepted)
			}
			return nil
		})
	return nil
}

// payload compares what came with what its site sealed, and reports.
func (d *daemon) payload(frame []byte) error {
	p, err := wire.Decode[wire.Payload](frame)
	if err != nil {
		return err
	}
	site, _, err := d.ledger.parseJobID(p.JobID)
	if err != nil {
		return err
	}
	if !bytes.Equal(p.Envelope, d.sealed.payloads[site][d.number].Raw) {
		return fmt.Errorf("the payload of %s isn't what was sealed", p.JobID)
	}
	d.ledger.took(p.JobID, stepPayload)
	grant := wire.Grant{JobID: p.JobID, LeaseID: p.LeaseID}
	d.request(func(dst []byte, id string) []byte {
		dst = wire.AppendResultHead(dst, id, grant, wire.DispositionOK)
		return wire.AppendTail(append(dst, d.sealed.results[site][d.number].Raw...))
	}, func(id string, reply []byte) error {
		if !bytes.Equal(reply, wire.AppendResultReply(nil, id, true, false, "done")) {
			r, err := wire.Decode[wire.ResultReply](reply)
			if err != nil {
				return err
			}
			if !r.Accepted || r.Duplicate || r.State != "done" {
				return fmt.Errorf("the result of %s was answered %+v", grant.JobID, r)
			}
		}
		d.ledger.took(grant.JobID, stepReported)
		return nil
	})
	return nil
}

// interrupted acts on grants that end early, which only a bench that cancels may see: what hasn't begun is given back.
func (d *daemon) interrupted(t wire.FrameType, frame []byte) error {
	if t == wire.TypeSites {
		return nil
	}
	if !d.ledger.cancels.Load() {
		return fmt.Errorf("%s got an unexpected frame: %s", d.world.daemons[d.number].id, frame)
	}
	if t == wire.TypeLost {
		return nil
	}
	c, err := wire.Decode[wire.GrantsPush](frame)
	if err != nil {
		return err
	}
	var unbegun []wire.Grant
	for _, g := range c.Grants {
		site, number, err := d.ledger.parseJobID(g.JobID)
		if err != nil {
			return err
		}
		if d.ledger.jobs[site][number].Load()&(1<<stepPayload) == 0 {
			unbegun = append(unbegun, g)
		}
	}
	if len(unbegun) > 0 {
		d.request(func(dst []byte, id string) []byte {
			return wire.AppendRelease(dst, id, unbegun, wire.ReleaseShutdown)
		}, func(string, []byte) error { return nil })
	}
	return nil
}
