package memory

import (
	"context"
	"time"

	"pushrelay/store"
	"pushrelay/wire"
)

// Enqueue is SiteStore's.
func (s *Store) Enqueue(_ context.Context, site string, dialect wire.Dialect, stubs []wire.Stub) ([]store.Enqueued, error) {
	return run(s, func(m *Machine) []store.Enqueued { return m.Enqueue(site, dialect, stubs) })
}

// Sealing is SiteStore's.
func (s *Store) Sealing(_ context.Context, site string, grants []wire.Grant) ([]wire.Grant, error) {
	return run(s, func(m *Machine) []wire.Grant { return m.Sealing(site, grants) })
}

// Seal is SiteStore's.
func (s *Store) Seal(_ context.Context, site string, grant wire.Grant, env wire.Envelope) (store.State, error) {
	return do(s, func(m *Machine) (store.State, error) { return m.Seal(site, grant, &env) })
}

// Decline is SiteStore's.
func (s *Store) Decline(_ context.Context, site string, grants []wire.Grant) ([]wire.Grant, error) {
	return run(s, func(m *Machine) []wire.Grant { return m.Decline(site, grants) })
}

// Cancel is SiteStore's.
func (s *Store) Cancel(_ context.Context, site string, jobs []string) ([]bool, error) {
	return run(s, func(m *Machine) []bool { return m.Cancel(site, jobs) })
}

// Offer is SiteStore's.
func (s *Store) Offer(
	_ context.Context, site, session string, what store.OfferKind, most int, bytes int64, span time.Duration,
) ([]store.Offered, error) {
	return run(s, func(m *Machine) []store.Offered { return m.Offer(site, session, what, most, bytes, span) })
}

// Collect is SiteStore's.
func (s *Store) Collect(_ context.Context, site string, grants []wire.Grant) error {
	_, err := run(s, func(m *Machine) none { m.Collect(site, grants); return none{} })
	return err
}

// Claim is RunnerStore's.
func (s *Store) Claim(_ context.Context, c store.Claim) ([]store.Claimed, error) {
	return do(s, func(m *Machine) ([]store.Claimed, error) { return m.Claim(&c) })
}

// Accept is RunnerStore's.
func (s *Store) Accept(_ context.Context, runner string, grants []wire.Grant) ([]wire.Grant, error) {
	return run(s, func(m *Machine) []wire.Grant { return m.Accept(runner, grants) })
}

// TakePayload is RunnerStore's.
func (s *Store) TakePayload(_ context.Context, runner string, grant wire.Grant) (wire.Envelope, error) {
	return do(s, func(m *Machine) (wire.Envelope, error) { return text(m.TakePayload(runner, grant)) })
}

// Complete is RunnerStore's.
func (s *Store) Complete(
	_ context.Context, runner string, grant wire.Grant, env wire.Envelope, disposition string,
) (store.Completion, error) {
	return do(s, func(m *Machine) (store.Completion, error) { return m.Complete(runner, grant, &env, disposition) })
}

// Release is RunnerStore's.
func (s *Store) Release(
	_ context.Context, runner string, grants []wire.Grant, reason string, notFor time.Duration,
) ([]wire.Grant, error) {
	return run(s, func(m *Machine) []wire.Grant { return m.Release(runner, grants, reason, notFor) })
}

// Abandon is RunnerStore's.
func (s *Store) Abandon(_ context.Context, runner string, number uint64) ([]wire.Grant, error) {
	return run(s, func(m *Machine) []wire.Grant { return m.Abandon(runner, number) })
}

// Resume is RunnerStore's.
func (s *Store) Resume(
	_ context.Context, runner string, number uint64, active []wire.Grant, leaseFor time.Duration,
) (store.Resumed, error) {
	return do(s, func(m *Machine) (store.Resumed, error) { return m.Resume(runner, number, active, leaseFor) })
}

// Renew is RunnerStore's.
func (s *Store) Renew(_ context.Context, runner string, grants []wire.Grant, leaseFor time.Duration) ([]wire.Grant, error) {
	return run(s, func(m *Machine) []wire.Grant { return m.Renew(runner, grants, leaseFor) })
}

// CancelRequests is RunnerStore's.
func (s *Store) CancelRequests(_ context.Context, runner string) ([]wire.Grant, error) {
	return run(s, func(m *Machine) []wire.Grant { return m.CancelRequests(runner) })
}

// Held is RunnerStore's.
func (s *Store) Held(_ context.Context, runner string) ([]store.Job, error) {
	return run(s, func(m *Machine) []store.Job { return m.Held(runner) })
}

// Attach is Presence's.
func (s *Store) Attach(_ context.Context, p store.Party, session string, span time.Duration) (uint64, error) {
	return run(s, func(m *Machine) uint64 { return m.Attach(p, session, span) })
}

// Detach is Presence's.
func (s *Store) Detach(_ context.Context, p store.Party, session string) error {
	_, err := run(s, func(m *Machine) none { m.Detach(p, session); return none{} })
	return err
}

// Present is Presence's.
func (s *Store) Present(_ context.Context, p store.Party) (bool, error) {
	return run(s, func(m *Machine) bool { return m.Present(p) })
}

// Seen is Presence's.
func (s *Store) Seen(_ context.Context, seen store.Sighting) error {
	_, err := run(s, func(m *Machine) none { m.Seen(seen); return none{} })
	return err
}

// Everyone is Presence's.
func (s *Store) Everyone(context.Context) ([]store.Sighting, error) {
	return run(s, (*Machine).Everyone)
}

// Backlog is Reader's.
func (s *Store) Backlog(_ context.Context, site string) ([]store.Backlog, error) {
	return run(s, func(m *Machine) []store.Backlog { return m.Backlog(site) })
}

// Job is Reader's.
func (s *Store) Job(_ context.Context, site, job string) (store.Job, error) {
	return do(s, func(m *Machine) (store.Job, error) { return m.Job(site, job) })
}

// Jobs is Reader's.
func (s *Store) Jobs(_ context.Context, site string, after store.Cursor, most int) (store.Page, error) {
	return run(s, func(m *Machine) store.Page { return m.Jobs(site, after, most) })
}

// Awaiting is Reader's.
func (s *Store) Awaiting(_ context.Context, site string, after store.Cursor, most int) (store.Page, error) {
	return run(s, func(m *Machine) store.Page { return m.Awaiting(site, after, most) })
}

// Finished is Reader's.
func (s *Store) Finished(_ context.Context, site string, after store.Cursor, most int) (store.Page, error) {
	return run(s, func(m *Machine) store.Page { return m.Finished(site, after, most) })
}

// ResultEnvelope is Reader's.
func (s *Store) ResultEnvelope(_ context.Context, site string, grant wire.Grant) (wire.Envelope, error) {
	return do(s, func(m *Machine) (wire.Envelope, error) { return text(m.ResultEnvelope(site, grant)) })
}

func text(e *Sealed, err error) (wire.Envelope, error) {
	if err != nil {
		return wire.Envelope{}, err
	}
	return e.Envelope, nil
}

// Stats is Reader's.
func (s *Store) Stats(context.Context) (store.Stats, error) {
	return run(s, (*Machine).Stats)
}

// SiteStats is Reader's.
func (s *Store) SiteStats(_ context.Context, site string) ([]store.SiteStats, error) {
	return run(s, func(m *Machine) []store.SiteStats { return m.SiteStats(site) })
}

// Barred is Reader's.
func (s *Store) Barred(_ context.Context, site, job string, runners []string) ([]store.Bar, error) {
	return do(s, func(m *Machine) ([]store.Bar, error) { return m.Barred(site, job, runners) })
}

// Sweep is Keeper's.
func (s *Store) Sweep(context.Context) (store.Swept, error) {
	return run(s, (*Machine).Sweep)
}
