package disk

import (
	"context"
	"time"

	"pushrelay/store"
	"pushrelay/store/memory"
	"pushrelay/wire"
)

// none is the answer of operations that answer nothing.
type none struct{}

// Enqueue is SiteStore's.
func (s *Store) Enqueue(ctx context.Context, site string, dialect wire.Dialect, stubs []wire.Stub) ([]store.Enqueued, error) {
	o := &op{keeps: true}
	for i := range stubs {
		o.stubs += len(stubs[i].Raw)
	}
	return await(ctx, s, o, func(m *memory.Machine) ([]store.Enqueued, error) { return m.Enqueue(site, dialect, stubs), nil })
}

// Sealing is SiteStore's.
func (s *Store) Sealing(ctx context.Context, site string, grants []wire.Grant) ([]wire.Grant, error) {
	return run(ctx, s, func(m *memory.Machine) []wire.Grant { return m.Sealing(site, grants) })
}

// Seal is SiteStore's.
func (s *Store) Seal(ctx context.Context, site string, grant wire.Grant, env wire.Envelope) (store.State, error) {
	return do(ctx, s, len(env.Raw), func(m *memory.Machine) (store.State, error) { return m.Seal(site, grant, &env) })
}

// Decline is SiteStore's.
func (s *Store) Decline(ctx context.Context, site string, grants []wire.Grant) ([]wire.Grant, error) {
	return run(ctx, s, func(m *memory.Machine) []wire.Grant { return m.Decline(site, grants) })
}

// Cancel is SiteStore's.
func (s *Store) Cancel(ctx context.Context, site string, jobs []string) ([]bool, error) {
	return run(ctx, s, func(m *memory.Machine) []bool { return m.Cancel(site, jobs) })
}

// Offer is SiteStore's.
func (s *Store) Offer(
	ctx context.Context, site, session string, what store.OfferKind, most int, bytes int64, span time.Duration,
) ([]store.Offered, error) {
	o := &op{fits: func(m *memory.Machine) bool { return m.Steady(s.clock(), site, what, most) }}
	return await(ctx, s, o, func(m *memory.Machine) ([]store.Offered, error) {
		return m.Offer(site, session, what, most, bytes, span), nil
	})
}

// Collect is SiteStore's.
func (s *Store) Collect(ctx context.Context, site string, grants []wire.Grant) error {
	_, err := run(ctx, s, func(m *memory.Machine) none { m.Collect(site, grants); return none{} })
	return err
}

// Claim is RunnerStore's.
func (s *Store) Claim(ctx context.Context, c store.Claim) ([]store.Claimed, error) {
	return do(ctx, s, 0, func(m *memory.Machine) ([]store.Claimed, error) { return m.Claim(&c) })
}

// Accept is RunnerStore's.
func (s *Store) Accept(ctx context.Context, runner string, grants []wire.Grant) ([]wire.Grant, error) {
	return run(ctx, s, func(m *memory.Machine) []wire.Grant { return m.Accept(runner, grants) })
}

// TakePayload is RunnerStore's.
func (s *Store) TakePayload(ctx context.Context, runner string, grant wire.Grant) (wire.Envelope, error) {
	return fetch(ctx, s, true, payloadKind, nil, func(m *memory.Machine) (*memory.Sealed, error) { return m.TakePayload(runner, grant) })
}

// Complete is RunnerStore's.
func (s *Store) Complete(
	ctx context.Context, runner string, grant wire.Grant, env wire.Envelope, disposition string,
) (store.Completion, error) {
	return do(ctx, s, len(env.Raw), func(m *memory.Machine) (store.Completion, error) { return m.Complete(runner, grant, &env, disposition) })
}

// Release is RunnerStore's.
func (s *Store) Release(
	ctx context.Context, runner string, grants []wire.Grant, reason string, notFor time.Duration,
) ([]wire.Grant, error) {
	return run(ctx, s, func(m *memory.Machine) []wire.Grant { return m.Release(runner, grants, reason, notFor) })
}

// Abandon is RunnerStore's.
func (s *Store) Abandon(ctx context.Context, runner string, number uint64) ([]wire.Grant, error) {
	return run(ctx, s, func(m *memory.Machine) []wire.Grant { return m.Abandon(runner, number) })
}

// Resume is RunnerStore's.
func (s *Store) Resume(
	ctx context.Context, runner string, number uint64, active []wire.Grant, leaseFor time.Duration,
) (store.Resumed, error) {
	return do(ctx, s, 0, func(m *memory.Machine) (store.Resumed, error) { return m.Resume(runner, number, active, leaseFor) })
}

// Renew is RunnerStore's.
func (s *Store) Renew(ctx context.Context, runner string, grants []wire.Grant, leaseFor time.Duration) ([]wire.Grant, error) {
	return run(ctx, s, func(m *memory.Machine) []wire.Grant { return m.Renew(runner, grants, leaseFor) })
}

// CancelRequests is RunnerStore's.
func (s *Store) CancelRequests(ctx context.Context, runner string) ([]wire.Grant, error) {
	return read(ctx, s, func(m *memory.Machine) []wire.Grant { return m.CancelRequests(runner) })
}

// Held is RunnerStore's.
func (s *Store) Held(ctx context.Context, runner string) ([]store.Job, error) {
	return read(ctx, s, func(m *memory.Machine) []store.Job { return m.Held(runner) })
}

// Attach is Presence's.
func (s *Store) Attach(ctx context.Context, p store.Party, session string, span time.Duration) (uint64, error) {
	o := &op{numbers: func() bool { return s.m.Number() < s.ceiling || s.m.Attached(p, session) }}
	return await(ctx, s, o, func(*memory.Machine) (uint64, error) {
		if !o.numbers() {
			if err := s.setAside(); err != nil {
				return 0, err
			}
		}
		return s.m.Attach(p, session, span), nil
	})
}

// Detach is Presence's.
func (s *Store) Detach(ctx context.Context, p store.Party, session string) error {
	_, err := read(ctx, s, func(m *memory.Machine) none { m.Detach(p, session); return none{} })
	return err
}

// Present is Presence's.
func (s *Store) Present(ctx context.Context, p store.Party) (bool, error) {
	return read(ctx, s, func(m *memory.Machine) bool { return m.Present(p) })
}

// Seen is Presence's.
func (s *Store) Seen(ctx context.Context, seen store.Sighting) error {
	_, err := read(ctx, s, func(m *memory.Machine) none { m.Seen(seen); return none{} })
	return err
}

// Everyone is Presence's.
func (s *Store) Everyone(ctx context.Context) ([]store.Sighting, error) {
	return read(ctx, s, (*memory.Machine).Everyone)
}

// Backlog is Reader's.
func (s *Store) Backlog(ctx context.Context, site string) ([]store.Backlog, error) {
	return read(ctx, s, func(m *memory.Machine) []store.Backlog { return m.Backlog(site) })
}

// Job is Reader's.
func (s *Store) Job(ctx context.Context, site, job string) (store.Job, error) {
	return ask(ctx, s, func(m *memory.Machine) (store.Job, error) { return m.Job(site, job) })
}

// Jobs is Reader's.
func (s *Store) Jobs(ctx context.Context, site string, after store.Cursor, most int) (store.Page, error) {
	return read(ctx, s, func(m *memory.Machine) store.Page { return m.Jobs(site, after, most) })
}

// Awaiting is Reader's.
func (s *Store) Awaiting(ctx context.Context, site string, after store.Cursor, most int) (store.Page, error) {
	return read(ctx, s, func(m *memory.Machine) store.Page { return m.Awaiting(site, after, most) })
}

// Finished is Reader's.
func (s *Store) Finished(ctx context.Context, site string, after store.Cursor, most int) (store.Page, error) {
	return read(ctx, s, func(m *memory.Machine) store.Page { return m.Finished(site, after, most) })
}

// ResultEnvelope is Reader's.
func (s *Store) ResultEnvelope(ctx context.Context, site string, grant wire.Grant) (wire.Envelope, error) {
	return fetch(ctx, s, false, resultKind, func(m *memory.Machine) bool { return m.Settled(site, grant) }, func(m *memory.Machine) (*memory.Sealed, error) { return m.ResultEnvelope(site, grant) })
}

// Stats is Reader's.
func (s *Store) Stats(ctx context.Context) (store.Stats, error) {
	return read(ctx, s, (*memory.Machine).Stats)
}

// Sweep is Keeper's.
func (s *Store) Sweep(ctx context.Context) (store.Swept, error) {
	return run(ctx, s, (*memory.Machine).Sweep)
}

// SiteStats is Reader's.
func (s *Store) SiteStats(ctx context.Context, site string) ([]store.SiteStats, error) {
	return read(ctx, s, func(m *memory.Machine) []store.SiteStats { return m.SiteStats(site) })
}

// Barred is Reader's.
func (s *Store) Barred(ctx context.Context, site, job string, runners []string) ([]store.Bar, error) {
	return ask(ctx, s, func(m *memory.Machine) ([]store.Bar, error) { return m.Barred(site, job, runners) })
}
