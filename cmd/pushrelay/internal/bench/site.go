package bench

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"pushrelay/wire"
)

// Lists stay below what a frame of one message has.
const (
	listBytes = wire.MaxTextBytes - 256
	stubBytes = 320
)

// site is the back end of a bench. Each job that it collected is followed by a new one of the same owner, so that the
// number of open jobs stays.
type site struct {
	*client
	world   *world
	sealed  *sealed
	number  int            // in world.sites
	daemons map[string]int // by runner id, into world.daemons
	done    chan struct{}  // an entry when nothing is open
	arrived chan time.Time // when results came, for one who waits

	// Guarded by client.mu.
	owners  []int32 // of each job made, by number
	settled int     // jobs collected or dropped
}

func newSite(l *ledger, w *world, sealed *sealed, number int) *site {
	s := &site{world: w, sealed: sealed, number: number, daemons: map[string]int{}, done: make(chan struct{}, 1), arrived: make(chan time.Time, 1)}
	for i, d := range w.daemons {
		s.daemons[d.id] = i
	}
	s.client = newClient(l, s)
	return s
}

func (s *site) push(head wire.Head, frame []byte) error {
	switch head.Type {
	case wire.TypeSealRequest:
		return s.sealRequest(frame)
	case wire.TypeResults:
		return s.results(frame)
	case wire.TypeNotices:
		return s.notices(frame)
	case wire.TypeRequeued:
		if !s.ledger.cancels.Load() {
			return fmt.Errorf("%s got an unexpected frame: %s", s.world.sites[s.number].id, frame)
		}
	}
	return nil
}

// enqueue publishes one job for each owner named, one list after another. answered, which may be nil, is called when
// all are answered.
func (s *site) enqueue(owners []int32, answered func()) {
	s.mu.Lock()
	first := len(s.owners)
	s.owners = append(s.owners, owners...)
	s.mu.Unlock()
	if first+len(owners) > len(s.ledger.jobs[s.number]) {
		s.ledger.failf("over %d jobs of one site: more than this bench provides for", len(s.ledger.jobs[s.number]))
		return
	}
	s.enqueueLists(first, owners, answered)
}

func (s *site) enqueueLists(first int, owners []int32, answered func()) {
	n := min(len(owners), listBytes/stubBytes)
	stubs := make([][]byte, n)
	for i, owner := range owners[:n] {
		stubs[i] = s.world.stub(s.number, jobID(s.number, first+i), ownerID(int(owner)))
	}
	s.request(func(dst []byte, id string) []byte { return wire.AppendEnqueue(dst, id, stubs) }, func(_ string, reply []byte) error {
		if err := s.enqueued(first, n, reply); err != nil {
			return err
		}
		if n < len(owners) {
			s.enqueueLists(first+n, owners[n:], answered)
		} else if answered != nil {
			answered()
		}
		return nil
	})
}

// enqueued checks the answer to an enqueue of n jobs from the first on.
func (s *site) enqueued(first, n int, reply []byte) error {
	r, err := wire.Decode[wire.EnqueueReply](reply)
	if err != nil {
		return err
	}
	if len(r.Jobs) != n {
		return fmt.Errorf("an enqueue of %d jobs was answered for %d", n, len(r.Jobs))
	}
	for i, j := range r.Jobs {
		if j.JobID != jobID(s.number, first+i) || j.State != "queued" {
			return fmt.Errorf("an enqueue was answered %+v", j)
		}
		s.ledger.took(j.JobID, stepEnqueued)
	}
	return nil
}

// sealRequest seals each job to the device that the request names, if it is that runner's.
func (s *site) sealRequest(frame []byte) error {
	r, err := wire.Decode[wire.SealRequest](frame)
	if err != nil {
		return err
	}
	for _, j := range r.Jobs {
		n, known := s.daemons[j.RunnerID]
		if !known || j.Device != s.world.daemons[n].keys.Public() {
			return fmt.Errorf("job %s is to be sealed to a foreign device", j.JobID)
		}
		if s.ledger.told(j.JobID, stepAsked) {
			s.seal(j, s.sealed.payloads[s.number][n].Raw)
		}
	}
	return nil
}

func (s *site) seal(j wire.SealJob, envelope []byte) {
	s.request(func(dst []byte, id string) []byte {
		return wire.AppendTail(append(wire.AppendSealHead(dst, id, j.JobID, j.LeaseID), envelope...))
	}, func(id string, reply []byte) error {
		if !bytes.Equal(reply, wire.AppendStateReply(nil, id, "ready")) {
			r, err := wire.Decode[wire.StateReply](reply)
			if err != nil {
				return err
			}
			if r.State != "ready" && r.State != "running" {
				return fmt.Errorf("the seal of %s was answered %q", j.JobID, r.State)
			}
		}
		s.ledger.took(j.JobID, stepSealed)
		return nil
	})
}

// results compares what came with what the daemon sealed, collects it, and publishes as many new jobs.
func (s *site) results(frame []byte) error {
	select {
	case s.arrived <- time.Now():
	default:
	}
	r, err := wire.Decode[wire.Results](frame)
	if err != nil {
		return err
	}
	grants := make([]wire.Grant, 0, len(r.Jobs))
	for _, j := range r.Jobs {
		n, known := s.daemons[j.RunnerID]
		if !known || j.Disposition != wire.DispositionOK || !bytes.Equal(j.Envelope, s.sealed.results[s.number][n].Raw) {
			return fmt.Errorf("the result of %s isn't what was sealed", j.JobID)
		}
		if s.ledger.told(j.JobID, stepResult) {
			grants = append(grants, wire.Grant{JobID: j.JobID, LeaseID: j.LeaseID})
		}
	}
	return s.collect(grants, stepCollected)
}

// notices collects what was dropped, which only a bench that cancels may see.
func (s *site) notices(frame []byte) error {
	r, err := wire.Decode[wire.Notices](frame)
	if err != nil {
		return err
	}
	grants := make([]wire.Grant, 0, len(r.Jobs))
	for _, j := range r.Jobs {
		if j.Why != "cancelled" || !s.ledger.cancels.Load() {
			return fmt.Errorf("job %s was dropped: %s", j.JobID, j.Why)
		}
		if s.ledger.told(j.JobID, stepNoticed) {
			grants = append(grants, wire.Grant{JobID: j.JobID, LeaseID: j.LeaseID})
		}
	}
	return s.collect(grants, stepNotice)
}

func (s *site) collect(grants []wire.Grant, as step) error {
	if len(grants) == 0 {
		return nil
	}
	owners, err := s.ownersOf(grants)
	if err != nil {
		return err
	}
	if !s.ledger.ending.Load() {
		s.enqueue(owners, nil)
	}
	s.request(func(dst []byte, id string) []byte { return wire.AppendGrants(dst, wire.TypeCollected, id, grants) },
		func(_ string, reply []byte) error {
			if _, err := wire.Decode[wire.OKReply](reply); err != nil {
				return err
			}
			for _, g := range grants {
				s.ledger.took(g.JobID, as)
			}
			s.settle(len(grants))
			return nil
		})
	return nil
}

// ownersOf answers whose jobs these are, for the jobs that follow.
func (s *site) ownersOf(grants []wire.Grant) ([]int32, error) {
	owners := make([]int32, len(grants))
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, g := range grants {
		at, number, err := s.ledger.parseJobID(g.JobID)
		if err != nil {
			return nil, err
		}
		if at != s.number || number >= len(s.owners) {
			return nil, fmt.Errorf("job %s isn't one of %s", g.JobID, s.world.sites[s.number].id)
		}
		owners[i] = s.owners[number]
	}
	return owners, nil
}

func (s *site) settle(n int) {
	s.mu.Lock()
	s.settled += n
	empty := s.settled == len(s.owners)
	s.mu.Unlock()
	if !empty {
		return
	}
	select {
	case s.done <- struct{}{}:
	default:
	}
}

// cancelQueued cancels every job that is known to the relay and wasn't claimed yet, so that what is left ends soon.
func (s *site) cancelQueued() {
	s.mu.Lock()
	made := len(s.owners)
	s.mu.Unlock()
	var ids []string
	for number := range made {
		if s.ledger.jobs[s.number][number].Load()&(1<<stepEnqueued|1<<stepClaimed) == 1<<stepEnqueued {
			ids = append(ids, jobID(s.number, number))
		}
	}
	for len(ids) > 0 {
		n := min(len(ids), wire.MaxList)
		s.cancel(ids[:n])
		ids = ids[n:]
	}
}

func (s *site) cancel(ids []string) {
	s.request(func(dst []byte, id string) []byte { return wire.AppendCancelJobs(dst, id, ids) }, func(_ string, reply []byte) error {
		r, err := wire.Decode[wire.CancelReply](reply)
		if err != nil {
			return err
		}
		for i, known := range r.Cancelled {
			if !known || len(r.Cancelled) != len(ids) {
				return fmt.Errorf("job %s isn't known when it is cancelled", ids[i])
			}
		}
		return nil
	})
}

// drain waits until every job is collected or dropped. Nothing may be enqueued any more.
func (s *site) drain(ctx context.Context) error {
	for {
		s.mu.Lock()
		open := len(s.owners) - s.settled
		s.mu.Unlock()
		if open == 0 {
			return nil
		}
		select {
		case <-s.done:
		case <-s.ledger.failed:
			return s.ledger.err
		case <-ctx.Done():
			return fmt.Errorf("%s still waits for %d jobs: %w", s.world.sites[s.number].id, open, context.Cause(ctx))
		}
	}
}
