package bench

import (
	"strings"

	"pushrelay/wire"
	"pushrelay/wire/seal"
)

// sealed holds one payload and one result for each pair of site and daemon, sealed before anything is measured. Every
// job between the two carries the same bytes, so that what arrives can be compared whole.
type sealed struct{ payloads, results [][]wire.Envelope } // by site, then daemon

// seal seals for pairs of a site and a daemon.
func (w *world) seal() (*sealed, error) {
	payload, err := w.sample(wire.DirectionPayload)
	if err != nil {
		return nil, err
	}
	result, err := w.sample(wire.DirectionResult)
	if err != nil {
		return nil, err
	}
	s := &sealed{make([][]wire.Envelope, len(w.sites)), make([][]wire.Envelope, len(w.sites))}
	return s, parallel(len(w.sites), 2, func(i int) (err error) {
		s.payloads[i] = make([]wire.Envelope, len(w.daemons))
		s.results[i] = make([]wire.Envelope, len(w.daemons))
		for j, d := range w.daemons {
			if s.payloads[i][j], err = w.envelope(w.sites[i], d, wire.DirectionPayload, payload); err != nil {
				return err
			}
			if s.results[i][j], err = w.envelope(d, w.sites[i], wire.DirectionResult, result); err != nil {
				return err
			}
		}
		return nil
	})
}

// sample finds the shortest plaintext whose envelope has envelopeBytes.
func (w *world) sample(way wire.Direction) ([]byte, error) {
	for n := 0; ; n++ {
		plaintext, err := plain(way, n)
		if err != nil {
			return nil, err
		}
		e, err := w.envelope(w.sites[0], w.daemons[0], way, plaintext)
		if err != nil || len(e.Raw) >= envelopeBytes {
			return plaintext, err
		}
	}
}

func plain(way wire.Direction, n int) ([]byte, error) {
	text := strings.Repeat("x", n)
	if way == wire.DirectionPayload {
		return seal.GeneratePayload{Prompt: "p" + text}.Encode()
	}
	return seal.Result{Outcome: seal.OK(text), Ran: seal.Ran{Model: "none", BackendClass: "process"}}.Encode()
}

func (w *world) envelope(from, to *party, way wire.Direction, plaintext []byte) (wire.Envelope, error) {
	context := seal.Context{JobID: "bench", Direction: way, DeadlineAt: w.deadline}
	return seal.Seal(from.keys, to.keys.Public(), context, plaintext)
}
