package daemon

import (
	"context"
	"time"

	"pushrelay/session/internal/ask"
	"pushrelay/wire"
)

const (
	watchEvery = 2 * time.Second // how soon a sleep is noticed
	sleptFor   = 5 * time.Second // the wall clock ran on by so much more than the monotonic one
)

// heartbeat renews what the daemon holds, from a goroutine that does nothing else, and notices that the device slept.
func (d *Daemon) heartbeat(l *link) {
	ticker := time.NewTicker(min(watchEvery, l.every))
	defer ticker.Stop()
	last, wall := time.Now(), d.cfg.wall().Round(0)
	beaten := last
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-ticker.C:
		}
		now, nowWall := time.Now(), d.cfg.wall().Round(0)
		slept := nowWall.Sub(wall)-now.Sub(last) > sleptFor
		last, wall = now, nowWall
		d.watch(l)
		if slept || now.Sub(beaten) >= l.every-l.every/20 {
			beaten = now
			d.work.Go(func() { _ = d.beat(l) }) // logged there; a slow answer must not delay the next beat
		}
	}
}

// watch notices leases that may be over.
func (d *Daemon) watch(l *link) {
	if !d.doubtful(l) {
		return
	}
	d.mu.Lock()
	already := l.suspect
	l.suspect = true
	held := d.ledger.busy()
	d.mu.Unlock()
	if !already && held > 0 {
		d.log.Warn().Int("grants", held).Msg("the relay hasn't confirmed the leases in time; work goes on until it says what is lost")
		d.event(EventSuspect, wire.Grant{}, "", "")
	}
}

// beat sends one heartbeat and acts on its answer; nothing is sent while no grant is held.
func (d *Daemon) beat(l *link) error {
	d.mu.Lock()
	active := d.ledger.active()
	d.mu.Unlock()
	if len(active) == 0 {
		d.confirm(l)
		return nil
	}
	ctx, cancel := context.WithTimeout(l.ctx, l.lease)
	defer cancel()
	frame := wire.Heartbeat{ActiveLeases: active}
	raw, err := l.conn.Request(ctx, func(dst []byte, id string) []byte {
		frame.Head = wire.Head{Type: wire.TypeHeartbeat, ID: id}
		b, err := wire.Encode(frame)
		if err != nil {
			return nil // not possible: a list of strings
		}
		return append(dst, b...)
	})
	var reply wire.HeartbeatReply
	if err == nil {
		reply, err = ask.Read[wire.HeartbeatReply](raw)
	}
	if err != nil {
		if l.ctx.Err() == nil {
			d.log.Warn().Str("error", ask.Saying(err)).Msg("a heartbeat wasn't answered; the next one tries again")
		}
		return err
	}
	d.confirm(l)
	d.lose(reply.Lost, "")
	d.cancelGrants(l, reply.Cancel)
	return nil
}

func (d *Daemon) confirm(l *link) {
	wall := d.cfg.wall().Round(0)
	d.mu.Lock()
	was := l.suspect
	l.confirmed, l.wall, l.suspect = time.Now(), wall, false
	d.mu.Unlock()
	if was {
		d.event(EventConfirmed, wire.Grant{}, "", "")
	}
}
