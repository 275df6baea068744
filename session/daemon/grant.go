package daemon

import (
	"errors"
	"fmt"

	"pushrelay/session/internal/ask"
	"pushrelay/wire"
)

// Why a job isn't taken.
var (
	errNoGrant   = errors.New("daemon: no grant of the control plane came with the job")
	errStranger  = errors.New("daemon: the job is another person's, and no control plane says that it may run here")
	errPrivate   = errors.New("daemon: the job is another person's, and private")
	errNoService = errors.New("daemon: the grant names a service that isn't offered here")
	errUnshared  = errors.New("daemon: the grant names a service that is for its owner only")
)

// admit judges, whatever the relay says, whether a job may run here; the reason is the release's, "" when it may. With the
// control plane's key a grant decides; without it the owner does, where it is known.
func (d *Daemon) admit(j *wire.ClaimedJob) (reason string, err error) {
	if d.cfg.ControlPlane == nil {
		if d.cfg.Owner != "" && j.Stub.Owner != d.cfg.Owner {
			return wire.ReleaseRefused, errStranger
		}
		return "", nil
	}
	if j.Grant == nil {
		return wire.ReleaseRefused, errNoGrant
	}
	now := d.cfg.wall()
	err = j.Grant.Check(d.cfg.ControlPlane, j.Stub, d.cfg.Owner, now.UnixMilli(), wire.GrantMaxAgeMs)
	if errors.Is(err, wire.ErrGrantStale) {
		// The next claim of the job brings another one. When all are stale it is this machine's clock that is wrong.
		return wire.ReleaseBackendDown, fmt.Errorf("%w, by this machine's clock", err)
	}
	if err == nil {
		err = d.offers(j)
	}
	if err != nil {
		return wire.ReleaseRefused, err
	}
	switch err = d.spent.check(j.Grant.GrantID, now); {
	case errors.Is(err, errUnsure):
		return wire.ReleaseBackendDown, err
	case err != nil:
		return wire.ReleaseRefused, err
	}
	return "", nil
}

// offers holds a grant against what this device offers to whom.
func (d *Daemon) offers(j *wire.ClaimedJob) error {
	c, ok := d.service(j.Stub.Kind, j.Grant.Service)
	switch {
	case !ok:
		return errNoService
	case j.Stub.Owner == d.cfg.Owner:
		return nil
	case j.Stub.Private():
		return errPrivate
	case c.OfferScope == ownersOnly:
		return errUnshared
	}
	return nil
}

// ownersOnly is the scope of dialect 2 that nobody else's job may use.
const ownersOnly = "private"

// service finds a capability; any of the kind when no service is named.
func (d *Daemon) service(kind, service string) (wire.Capability, bool) {
	for _, c := range d.cfg.Capabilities {
		if c.Kind == kind && (service == "" || c.Service == service) {
			return c, true
		}
	}
	return wire.Capability{}, false
}

// burn takes the grants of jobs that are about to be accepted, and answers the jobs that may be: the others are given back.
func (d *Daemon) burn(l *link, batch []*work) (good []*work) {
	var granted []*work
	var taken []*wire.SignedGrant
	for _, w := range batch {
		if w.signed == nil {
			good = append(good, w)
			continue
		}
		granted, taken = append(granted, w), append(taken, w.signed)
	}
	if len(taken) == 0 {
		return good
	}
	ok, err := d.spent.burn(taken, d.cfg.wall())
	if err != nil {
		d.log.Error().Str("error", ask.Saying(err)).Int("jobs", len(taken)).Msg("used grants can't be recorded; their jobs were given back, for a crash could run them twice")
	}
	for i, w := range granted {
		switch {
		case ok[i]:
			good = append(good, w)
		case err != nil:
			d.handBack(l, w, wire.ReleaseBackendDown)
		default:
			d.grantLog(w.grant).Msg("a grant was used before; its job was refused")
			d.handBack(l, w, wire.ReleaseRefused)
		}
	}
	return good
}
